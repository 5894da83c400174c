// Measured exchanges: every byte arrives, and a byte that does not is found and placed.

#include "lib/comm/measure.hpp"

#include <gtest/gtest.h>

#include "lib/comm/faults.hpp"
#include "lib/comm/pipeline.hpp"
#include "tests/lib/comm/jobs.hpp"

namespace moe::comm {
namespace {

ExchangeResult measure(int num_ranks, const TrafficMatrix& traffic, const MeasureOptions& options,
                       const Fault& fault = {}) {
  ExchangeResult at_rank_0;
  threads_job(num_ranks)->run([&](Communicator& communicator) {
    const std::unique_ptr<Communicator> faulty = make_faulty(communicator, fault);
    ExchangeResult result = measure_exchange(*faulty, traffic, options);
    if (communicator.rank() == 0) at_rank_0 = std::move(result);
  });
  return at_rank_0;
}

MeasureOptions every(std::int64_t iterations) {
  MeasureOptions options;
  options.num_iterations = iterations;
  options.num_warm_up = 1;
  options.check = Check::kEvery;
  return options;
}

TEST(MeasureExchange, DeliversEveryByteAtAnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3, 4, 8}) {
    for (const std::int64_t size : {16 * 8, 4096, 100'000}) {
      const ExchangeResult result = measure(num_ranks, uniform_traffic(num_ranks, size), every(4));
      EXPECT_TRUE(result.is_verified);
      EXPECT_TRUE(result.wrong.empty()) << num_ranks << " ranks, " << size << " bytes";
      EXPECT_EQ(result.iteration_s.size(), 4u);
      EXPECT_EQ(result.rank_s.size(), static_cast<std::size_t>(num_ranks));
    }
  }
}

TEST(MeasureExchange, DeliversUnevenTrafficWithEmptyPairsAndRanks) {
  const TrafficMatrix traffic =
      scale_traffic(parse_traffic("0 7 0 1\n0 0 0 0\n5 0 3 0\n1 1 1 1\n", "m"), 4, 50'000);
  EXPECT_TRUE(measure(4, traffic, every(5)).wrong.empty());
  EXPECT_TRUE(measure(3, zipf_traffic(3, 40'000, 1.5, 3), every(5)).wrong.empty());
}

TEST(MeasureExchange, FindsAFlippedBitInTheIterationInWhichItHappens) {
  Fault fault;
  fault.kind = FaultKind::kCorrupt;
  fault.rank = 2;
  fault.after_exchanges = 3;  // one of warm-up and two timed ones are good
  const ExchangeResult result = measure(3, uniform_traffic(3, 3 * 4096), every(4), fault);
  ASSERT_EQ(result.wrong.size(), 2u);
  EXPECT_EQ(result.wrong[0].receiver, 2);
  EXPECT_EQ(result.wrong[0].sender, 0);
  EXPECT_EQ(result.wrong[0].num_wrong_bytes, 1);
  EXPECT_EQ(result.wrong[0].first_offset, 2048);
  EXPECT_EQ(result.wrong[0].iteration, 2);
  EXPECT_EQ(result.wrong[1].iteration, 3);
}

TEST(MeasureExchange, FindsAFlippedBitInTheOneCheckOfASize) {
  Fault fault;
  fault.kind = FaultKind::kCorrupt;
  fault.rank = 0;
  MeasureOptions options = every(3);
  options.check = Check::kSize;
  const ExchangeResult result = measure(2, uniform_traffic(2, 4096), options, fault);
  ASSERT_EQ(result.wrong.size(), 1u);
  EXPECT_EQ(result.wrong[0].iteration, -1);
  options.check = Check::kOff;
  EXPECT_FALSE(measure(2, uniform_traffic(2, 4096), options, fault).is_verified);
}

TEST(MeasureExchange, StopsEveryRankAtTheSameIteration) {
  Interrupt interrupt;
  interrupt.request();
  MeasureOptions options = every(1'000'000);
  options.check = Check::kOff;
  options.interrupt = &interrupt;
  const ExchangeResult result = measure(2, uniform_traffic(2, 4096), options);
  EXPECT_TRUE(result.is_partial);
  EXPECT_LT(result.iteration_s.size(), 1'000'000u);
  EXPECT_EQ(result.rank_s[0].size(), result.rank_s[1].size());
}

TEST(MeasureExchange, TakesTheIterationsThatTheTimeAllows) {
  MeasureOptions options;
  options.time_budget_s = 0.0;
  options.min_iterations = 12;
  EXPECT_EQ(measure(2, uniform_traffic(2, 1024), options).iteration_s.size(), 12u);
  options.time_budget_s = 1e6;
  options.max_iterations = 40;
  EXPECT_EQ(measure(2, uniform_traffic(2, 1024), options).iteration_s.size(), 40u);
}

TEST(NullJob, MeasuresNothingButItself) {
  BackendOptions options;
  options.num_ranks = 8;
  open_null_job(options)->run([](Communicator& communicator) {
    MeasureOptions measure_options;
    measure_options.num_iterations = 100;
    const ExchangeResult result =
        measure_exchange(communicator, uniform_traffic(8, std::int64_t{1} << 40), measure_options);
    EXPECT_FALSE(result.is_verified);
    EXPECT_EQ(result.iteration_s.size(), 100u);
    EXPECT_EQ(result.bytes, std::int64_t{1} << 40);
  });
}

TEST(GatherScatter, ChecksWhatItGathersAndSums) {
  threads_job(3)->run([](Communicator& communicator) {
    MeasureOptions options;
    options.num_iterations = 2;
    const GatherScatterResult result =
        measure_gather_scatter(communicator, 10'000, 40'000, options);
    EXPECT_EQ(result.num_wrong, 0);
    EXPECT_EQ(result.gather_s.size(), 2u);
    EXPECT_EQ(result.scatter_bytes, 40'000);
  });
}

TEST(Pipeline, ReportsEveryChunkCountAndAShareBetween0And1) {
  MoeStages stages;
  stages.dispatch = {uniform_traffic(2, 1 << 16)};
  stages.combine = {uniform_traffic(2, 1 << 17)};
  std::vector<PipelineResult> at_rank_0;
  threads_job(2)->run([&](Communicator& communicator) {
    PipelineOptions options;
    options.chunk_counts = {1, 4};
    options.compute_s = 1e-3;
    options.num_repeats = 3;
    std::vector<PipelineResult> results = measure_pipeline(communicator, stages, options);
    if (communicator.rank() == 0) at_rank_0 = std::move(results);
  });
  ASSERT_EQ(at_rank_0.size(), 2u);
  for (const PipelineResult& result : at_rank_0) {
    EXPECT_GT(result.compute_s, 0.0);
    EXPECT_GT(result.comm_s, 0.0);
    EXPECT_GE(result.idle_ratio, 0.0);
    EXPECT_LE(result.idle_ratio, 1.0);
  }
  EXPECT_EQ(at_rank_0[1].num_chunks, 4);
}

TEST(ParseFault, ReadsEveryKindAndRefusesTheRest) {
  EXPECT_EQ(parse_fault("corrupt:3@7", "--inject").after_exchanges, 7);
  EXPECT_EQ(parse_fault("hang:2", "--inject").rank, 2);
  EXPECT_EQ(parse_fault("slow:1:20ms", "--inject").delay_s, 0.02);
  EXPECT_EQ(parse_fault("", "--inject").kind, FaultKind::kNone);
  for (const char* text : {"corrupt", "corrupt:", "corrupt:x", "corrupt:-1", "burn:1", "slow:1",
                           "slow:1:x", "kill:1@", "kill:99999999999"}) {
    EXPECT_THROW((void)parse_fault(text, "--inject"), Error) << text;
  }
}

}  // namespace
}  // namespace moe::comm
