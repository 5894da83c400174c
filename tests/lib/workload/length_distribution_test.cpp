#include "lib/workload/length_distribution.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::workload {
namespace {

TEST(LengthDistribution, FixedIsOneValueEverywhere) {
  const LengthDistribution d = LengthDistribution::fixed(2000);
  EXPECT_EQ(d.quantile(0.01), 2000);
  EXPECT_EQ(d.quantile(1.0), 2000);
  EXPECT_DOUBLE_EQ(d.mean(), 2000.0);
  EXPECT_DOUBLE_EQ(d.cv(), 0.0);
}

TEST(LengthDistribution, UniformHasItsMeanAndEnds) {
  const LengthDistribution small = LengthDistribution::uniform(1, 6);
  EXPECT_NEAR(small.mean(), 3.5, 1e-12);
  EXPECT_EQ(small.min(), 1);
  EXPECT_EQ(small.max(), 6);
  EXPECT_EQ(small.quantile(0.5), 3);
  // Variance of a fair die: 35 / 12.
  EXPECT_NEAR(small.cv(), std::sqrt(35.0 / 12.0) / 3.5, 1e-12);
  EXPECT_NEAR(LengthDistribution::uniform(1000, 100000).mean(), 50500.0, 60.0);
}

TEST(LengthDistribution, LognormalMeetsItsPercentilesMeanAndSpread) {
  const LengthDistribution p = LengthDistribution::lognormal_from_percentiles(1200, 9000, 131072);
  EXPECT_NEAR(static_cast<double>(p.quantile(0.5)), 1200.0, 6.0);
  EXPECT_NEAR(static_cast<double>(p.quantile(0.99)), 9000.0, 150.0);
  const LengthDistribution m = LengthDistribution::lognormal(2000, 0.8, 131072);
  EXPECT_NEAR(m.mean(), 2000.0, 10.0);
  EXPECT_NEAR(m.cv(), 0.8, 0.02);
}

TEST(LengthDistribution, TheCutBoundsEveryLength) {
  const LengthDistribution d = LengthDistribution::lognormal(2000, 1.0, 4096);
  EXPECT_EQ(d.max(), 4096);
  EXPECT_LT(d.mean(), 2000.0);
}

TEST(LengthDistribution, EmpiricalCountsAsSeen) {
  const LengthDistribution d = LengthDistribution::empirical({{10, 1}, {20, 2}, {70, 1}, {80, 0}});
  EXPECT_DOUBLE_EQ(d.mean(), 30.0);
  EXPECT_EQ(d.quantile(0.25), 10);
  EXPECT_EQ(d.quantile(0.26), 20);
  EXPECT_EQ(d.quantile(0.75), 20);
  EXPECT_EQ(d.max(), 70);
}

TEST(LengthDistribution, SamplesFollowItAndRepeatWithTheSeed) {
  const LengthDistribution d = LengthDistribution::empirical({{10, 3}, {50, 1}});
  Rng rng(7);
  Rng again(7);
  int small = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::int64_t length = d.sample(rng);
    ASSERT_EQ(length, d.sample(again));
    if (length == 10) ++small;
  }
  EXPECT_NEAR(small / 20000.0, 0.75, 0.015);
}

TEST(LengthDistribution, ScalingKeepsTheShape) {
  const LengthDistribution d = LengthDistribution::uniform(100, 300);
  EXPECT_NEAR(d.scaled(1.2).mean(), 1.2 * d.mean(), 0.5);
  EXPECT_EQ(LengthDistribution::fixed(1).scaled(0.1).mean(), 1.0);
}

TEST(LengthDistribution, RefusesWhatNoRequestHas) {
  EXPECT_THROW((void)LengthDistribution::fixed(0), Error);
  EXPECT_THROW((void)LengthDistribution::fixed(kMaxTokens + 1), Error);
  EXPECT_THROW((void)LengthDistribution::uniform(9, 3), Error);
  EXPECT_THROW((void)LengthDistribution::lognormal(100, -1.0, 1000), Error);
  EXPECT_THROW((void)LengthDistribution::lognormal_from_percentiles(100, 50, 1000), Error);
}

}  // namespace
}  // namespace moe::workload
