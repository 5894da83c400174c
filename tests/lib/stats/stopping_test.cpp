#include "lib/stats/stopping.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"

namespace moe::stats {
namespace {

TEST(MedianHalfWidth, MatchesAWorkedExample) {
  // 1..10: median 5, interval [2, 9].
  const std::vector<double> samples = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_DOUBLE_EQ(*median_half_width_ratio(samples), 3.5 / 5.0);
}

TEST(MedianHalfWidth, IsAbsentWithTooFewSamplesOrAZeroMedian) {
  EXPECT_FALSE(median_half_width_ratio(std::vector<double>(6, 1.0)));
  EXPECT_FALSE(median_half_width_ratio(std::vector<double>{-3, -2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(*median_half_width_ratio(std::vector<double>(7, 0.0)), 0.0);
}

TEST(DecideStop, ConvergesOnQuietSamples) {
  const StoppingRules rules{.min_samples = 10,
                            .max_samples = 100,
                            .target_half_width_ratio = 0.05,
                            .time_budget_s = 60.0};
  const std::vector<double> quiet(10, 1.0);
  const StopDecision decision = decide_stop(rules, quiet, 1.0);
  EXPECT_EQ(decision.reason, StopReason::kConverged);
  EXPECT_TRUE(decision.target_met);
  EXPECT_EQ(describe(rules, decision),
            "stopped after 10 samples in 1.00 s: converged; the median's interval is +-0.0 %, "
            "target 5.0 %");
}

TEST(DecideStop, TakesTheLeastNumberOfSamplesFirst) {
  const StoppingRules rules{.min_samples = 10, .target_half_width_ratio = 0.05};
  EXPECT_FALSE(decide_stop(rules, std::vector<double>(9, 1.0), 1.0).stop());
}

TEST(DecideStop, SaysThatTheCountEndedANoisyRun) {
  const StoppingRules rules{.max_samples = 8, .target_half_width_ratio = 0.01};
  const std::vector<double> noisy = {1, 2, 3, 4, 5, 6, 7, 8};
  const StopDecision decision = decide_stop(rules, noisy, 1.0);
  EXPECT_EQ(decision.reason, StopReason::kSampleCount);
  EXPECT_FALSE(decision.target_met);
}

TEST(DecideStop, EndsWithTheTimeBudgetEvenBelowTheLeastNumber) {
  const StoppingRules rules{
      .min_samples = 10, .target_half_width_ratio = 0.05, .time_budget_s = 2.0};
  const StopDecision decision = decide_stop(rules, std::vector<double>{1.0, 2.0}, 2.0);
  EXPECT_EQ(decision.reason, StopReason::kTimeBudget);
  EXPECT_FALSE(decision.target_met);
  EXPECT_EQ(describe(rules, decision),
            "stopped after 2 samples in 2.00 s: time budget of 2.00 s used; too few samples for an "
            "interval of the median, target 5.0 %");
}

TEST(DecideStop, NeverStopsWithoutARule) {
  EXPECT_FALSE(decide_stop({}, std::vector<double>(10'000, 1.0), 1e9).stop());
}

TEST(DecideStop, ConvergesAsSamplesGrow) {
  const StoppingRules rules{.min_samples = 7, .target_half_width_ratio = 0.02};
  Rng rng(5);
  std::vector<double> samples;
  while (!decide_stop(rules, samples, 0.0).stop()) {
    samples.push_back(1.0 + 0.1 * rng.next_normal());
    ASSERT_LT(samples.size(), 2000U);
  }
  // About (1.96 * 1.2533 * 0.1 / 0.02)^2 = 151 samples for this noise.
  EXPECT_GT(samples.size(), 20U);
}

TEST(StopReason, HasANameInReports) {
  EXPECT_STREQ(stop_reason_name(StopReason::kConverged), "converged");
  EXPECT_STREQ(stop_reason_name(StopReason::kSampleCount), "sample_count");
  EXPECT_STREQ(stop_reason_name(StopReason::kTimeBudget), "time_budget");
}

}  // namespace
}  // namespace moe::stats
