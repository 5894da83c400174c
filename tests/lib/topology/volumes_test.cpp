#include "lib/topology/volumes.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace moe::topology {
namespace {

TEST(Volumes, LogicalBandwidthIsWhatDeepEpPublishes) {
  // 7168 values in fp8, a float for 128 of them, and 16 bytes of header; then 16-bit values.
  EXPECT_NEAR(logical_bytes_per_s(7408, 128, 8, 77e-6) / 1e9, 98.5, 0.05);
  EXPECT_NEAR(logical_bytes_per_s(14336, 128, 8, 114e-6) / 1e9, 128.8, 0.05);
  EXPECT_NEAR(logical_bytes_per_s(7408, 128, 8, 194e-6) / 1e9, 39.1, 0.05);
}

TEST(Volumes, LogicalBandwidthIsWhatTensorRtPublishes) {
  EXPECT_NEAR(logical_bytes_per_s(14336, 128, 8, 31.7e-6) / 1e9, 463.0, 0.5);
  EXPECT_NEAR(logical_bytes_per_s(14336, 2048, 8, 311.8e-6) / 1e9, 753.0, 0.5);
}

TEST(Volumes, SevenOfEightSelectionsLeaveTheirRank) {
  EXPECT_DOUBLE_EQ(remote_selection_share(8), 0.875);
}

TEST(Volumes, BytesScaleWithWhatIsSent) {
  MoeTraffic traffic{128, 7168, 8, 256, 8, *element_bytes("bfloat16")};
  EXPECT_DOUBLE_EQ(logical_bytes(traffic), 128.0 * 8 * 14336);
  EXPECT_DOUBLE_EQ(remote_selection_bytes(traffic), 128.0 * 7 * 14336);
  // Eight selections over eight ranks hit 5.25 of them in the mean.
  EXPECT_NEAR(remote_rank_bytes(traffic) / remote_selection_bytes(traffic), 5.25 / 8.0, 0.001);
  EXPECT_DOUBLE_EQ(*element_bytes("fp8"), 1.03125);
  EXPECT_DOUBLE_EQ(*element_bytes("nvfp4"), 0.5625);
  EXPECT_FALSE(element_bytes("float13").has_value());
}

TEST(Volumes, DistinctGroupsAreExpectedOnesWithoutReplacement) {
  EXPECT_DOUBLE_EQ(distinct_groups(8, 8, 1), 1.0);
  EXPECT_NEAR(distinct_groups(8, 8, 8), 8.0, 1e-12);
  EXPECT_DOUBLE_EQ(distinct_groups(256, 1, 8), 1.0);
  // By hand for 4 experts in 2 groups and 2 selections: of 6 pairs, 2 lie in one group.
  EXPECT_NEAR(distinct_groups(4, 2, 2), (2.0 * 1.0 + 4.0 * 2.0) / 6.0, 1e-12);
  EXPECT_EQ(distinct_groups(16, 4, 0), 0.0);
}

TEST(Volumes, DistinctGroupsGrowWithSelectionsUpToTheGroups) {
  for (const std::int64_t groups : {2, 4, 8, 32}) {
    double before = 0.0;
    for (std::int64_t k = 0; k <= 256; ++k) {
      const double now = distinct_groups(256, groups, k);
      EXPECT_GE(now, before);
      EXPECT_LE(now, static_cast<double>(groups) + 1e-9);
      EXPECT_LE(now, static_cast<double>(k) + 1e-9);
      before = now;
    }
  }
}

}  // namespace
}  // namespace moe::topology
