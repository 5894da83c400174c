#include "lib/workload/trace_profile.hpp"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace moe::workload {
namespace {

Request at(double time_s, std::int64_t input = 100, std::int64_t output = 10) {
  Request request;
  request.arrival_s = time_s;
  request.input_tokens = input;
  request.output_tokens = output;
  return request;
}

TEST(TraceProfile, EvenTrafficHasItsRateAndNoBursts) {
  TraceProfiler profiler;
  for (int i = 0; i < 7200; ++i) profiler.add(at(i * 0.5));
  const TraceProfile profile = profiler.finish({});
  EXPECT_NEAR(*profile.mean_requests_per_s, 2.0, 1e-9);
  EXPECT_NEAR(*profile.peak_requests_per_s, 2.0, 1e-9);
  EXPECT_NEAR(*profile.dispersion, 0.0, 1e-9);
  EXPECT_NEAR(*profile.gap_cv, 0.0, 1e-9);
  EXPECT_FALSE(profile.hourly);  // half a second short of an hour
}

TEST(TraceProfile, PoissonTrafficHasADispersionOfOne) {
  TraceProfiler profiler;
  ArrivalGenerator generator(RateCurve::constant(5.0), {}, 4);
  for (int i = 0; i < 100000; ++i) profiler.add(at(generator.next_s()));
  const TraceProfile profile = profiler.finish({});
  EXPECT_NEAR(*profile.dispersion, 1.0, 0.05);
  EXPECT_NEAR(*profile.gap_cv, 1.0, 0.02);
  ASSERT_TRUE(profile.hourly);
  EXPECT_NEAR(profile.hourly->mean_requests_per_s(), 5.0, 0.2);
}

TEST(TraceProfile, ThePeakIsTheBusiestMinute) {
  TraceProfiler profiler;
  for (int i = 0; i < 1000; ++i) profiler.add(at(i * 10.0));
  for (int i = 0; i < 600; ++i) profiler.add(at(20000.0 + i * 0.1));
  const TraceProfile profile = profiler.finish({});
  EXPECT_NEAR(*profile.peak_requests_per_s, 10.0, 0.01);
}

TEST(TraceProfile, CountsLengthsAndRoundsOnlyLongOnes) {
  TraceProfiler profiler;
  profiler.add(at(0, 10, 1));
  profiler.add(at(1, 65536, 3));
  profiler.add(at(2, 1000003, 5));
  const TraceProfile profile = profiler.finish({});
  EXPECT_EQ(profile.input_tokens.min(), 10);
  EXPECT_EQ(profile.input_tokens.quantile(0.6), 65536);
  EXPECT_NEAR(static_cast<double>(profile.input_tokens.max()), 1000003.0, 1000003.0 / 256.0);
  EXPECT_EQ(profile.output_tokens.max(), 5);
}

TEST(TraceProfile, PrefixHitsAreLeadingBlocksSeenBefore) {
  TraceProfiler profiler;
  const std::vector<std::uint64_t> first = {1, 2, 3};
  const std::vector<std::uint64_t> second = {1, 2, 9, 3};  // 3 is known, but not a prefix
  Request request = at(0, 1500);
  request.prefix_blocks = first;
  profiler.add(request);
  request = at(1, 2000);
  request.prefix_blocks = second;
  profiler.add(request);
  const TraceProfile profile = profiler.finish({});
  EXPECT_DOUBLE_EQ(*profile.prefix_hit_ratio, 1024.0 / 3500.0);
}

TEST(TraceProfile, ALastPartialBlockDoesNotHitMoreThanThePrompt) {
  TraceProfiler profiler;
  const std::vector<std::uint64_t> blocks = {1, 2};
  for (int i = 0; i < 2; ++i) {
    Request request = at(i, 600);
    request.prefix_blocks = blocks;
    profiler.add(request);
  }
  EXPECT_DOUBLE_EQ(*profiler.finish({}).prefix_hit_ratio, 0.5);
}

TEST(TraceProfile, WithoutTimesThereIsNoRate) {
  TraceProfiler profiler;
  Request request = at(0);
  request.arrival_s.reset();
  profiler.add(request);
  const TraceProfile profile = profiler.finish({});
  EXPECT_FALSE(profile.mean_requests_per_s);
  EXPECT_FALSE(profile.prefix_hit_ratio);
}

TEST(TraceProfile, ReadsAFile) {
  const test::TempDir dir;
  test::write_file(dir / "t.csv", "arrival_s,input_tokens,output_tokens\n0,10,1\n1,30,1\n");
  const TraceProfile profile = profile_trace(dir / "t.csv", {});
  EXPECT_EQ(profile.info.requests, 2);
  EXPECT_DOUBLE_EQ(profile.input_tokens.mean(), 20.0);
}

}  // namespace
}  // namespace moe::workload
