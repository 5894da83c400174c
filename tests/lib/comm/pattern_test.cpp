// Traffic matrices against counts made by hand and against the rounding of nccl-tests.

#include "lib/comm/pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::comm {
namespace {

using ::testing::HasSubstr;

TEST(UniformTraffic, RoundsThePartOfAPairDownTo16BytesAsNcclTestsDo) {
  EXPECT_EQ(uniform_traffic(4, 1024).at(1, 3), 256);
  EXPECT_EQ(uniform_traffic(3, 1024).at(0, 1), 336);  // 341.3
  EXPECT_EQ(uniform_traffic(8, 64).max_sent(), 0);    // 8 bytes a pair
}

TEST(ZipfTraffic, GivesOneReceiverTheLargestShareOfEverySender) {
  const TrafficMatrix matrix = zipf_traffic(4, 1 << 20, 1.0, 7);
  // 1 / (1 + 1/2 + 1/3 + 1/4) = 12/25 of what a rank sends.
  EXPECT_NEAR(static_cast<double>(matrix.max_received()), 4.0 * (1 << 20) * 12.0 / 25.0, 64.0);
  for (int s = 1; s < 4; ++s) {
    for (int r = 0; r < 4; ++r) EXPECT_EQ(matrix.at(s, r), matrix.at(0, r));
  }
  EXPECT_EQ(zipf_traffic(4, 1 << 20, 0.0, 7), uniform_traffic(4, 1 << 20));
  EXPECT_EQ(matrix, zipf_traffic(4, 1 << 20, 1.0, 7));
}

TEST(SumTraffic, TellsOwnInsideAndBetweenNodesApart) {
  const std::vector<int> nodes{0, 0, 1, 1};
  const TrafficSums sums = sum_traffic(uniform_traffic(4, 4096), nodes);
  EXPECT_EQ(sums.local_bytes, 4 * 1024);
  EXPECT_EQ(sums.intra_bytes, 4 * 1024);
  EXPECT_EQ(sums.inter_bytes, 8 * 1024);
  EXPECT_EQ(sums.max_rank_send_bytes, 3 * 1024);
  EXPECT_EQ(sums.max_node_inter_bytes, 4 * 1024);
}

TEST(ParseTraffic, ReadsASquareMatrixWithComments) {
  const TrafficShares shares = parse_traffic("# bytes\n0 10 20\n1,2,3\n\n 4\t5 6\n", "m");
  EXPECT_EQ(shares.num_ranks, 3);
  EXPECT_EQ(shares.bytes, (std::vector<double>{0, 10, 20, 1, 2, 3, 4, 5, 6}));
}

TEST(ParseTraffic, NamesTheLineOfWhatIsWrong) {
  const auto message = [](const char* text) -> std::string {
    try {
      (void)parse_traffic(text, "m.txt");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message("1 2\n3 x\n"), HasSubstr("m.txt:2: column 2"));
  EXPECT_THAT(message("1 -2\n3 4\n"), HasSubstr("m.txt:1"));
  EXPECT_THAT(message("1 nan\n3 4\n"), HasSubstr("m.txt:1"));
  EXPECT_THAT(message("1 2\n3\n"), HasSubstr("m.txt:2: expected 2 columns"));
  EXPECT_THAT(message("1 2\n"), HasSubstr("square"));
  EXPECT_THAT(message("1 2\n3 4\n5 6\n"), HasSubstr("more rows"));
  EXPECT_THAT(message(""), HasSubstr("square"));
}

TEST(ScaleTraffic, MakesTheBusiestSenderSendTheSize) {
  const TrafficShares shares = parse_traffic("0 3 1\n1 0 1\n0 0 0\n", "m");
  const TrafficMatrix matrix = scale_traffic(shares, 3, 1 << 20);
  EXPECT_EQ(matrix.at(0, 1), 3 << 18);
  EXPECT_EQ(matrix.max_sent(), 1 << 20);
  EXPECT_EQ(matrix.sent_by(2), 0);
  EXPECT_EQ(scale_traffic(shares, 2, 1600).at(0, 1), 1600);
  EXPECT_THROW((void)scale_traffic(shares, 4, 1600), Error);
}

TEST(ScaleTraffic, RefusesAMatrixThatSendsNothing) {
  EXPECT_THROW((void)scale_traffic(parse_traffic("0 0\n0 0\n", "m"), 2, 1024), Error);
}

}  // namespace
}  // namespace moe::comm
