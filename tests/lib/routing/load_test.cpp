#include "lib/routing/load.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace moe::routing {
namespace {

TEST(LoadStats, OfEqualCountsIsPerfectBalance) {
  const std::vector<std::int64_t> counts = {5, 5, 5, 5};
  const LoadStats stats = load_stats(counts);
  EXPECT_EQ(stats.num_routed, 20);
  EXPECT_EQ(stats.num_distinct, 4);
  EXPECT_DOUBLE_EQ(stats.max_over_mean, 1.0);
  EXPECT_DOUBLE_EQ(stats.coefficient_of_variation, 0.0);
  EXPECT_NEAR(stats.gini, 0.0, 1e-15);
}

TEST(LoadStats, OfOneBusyExpertReachesTheLimits) {
  const std::vector<std::int64_t> counts = {0, 0, 12, 0};
  const LoadStats stats = load_stats(counts);
  EXPECT_EQ(stats.num_distinct, 1);
  EXPECT_EQ(stats.max, 12);
  EXPECT_EQ(stats.min, 0);
  EXPECT_DOUBLE_EQ(stats.max_over_mean, 4.0);
  EXPECT_DOUBLE_EQ(stats.gini, 0.75);
  EXPECT_DOUBLE_EQ(stats.coefficient_of_variation, std::sqrt(3.0));
}

// Worked by hand: mean 2.5, deviations 1.5 0.5 0.5 1.5, variance 1.25; Gini = 2 * 30 / 40 - 5 / 4.
TEST(LoadStats, MatchesHandWorkedFigures) {
  const std::vector<std::int64_t> counts = {4, 1, 3, 2};
  const LoadStats stats = load_stats(counts);
  EXPECT_DOUBLE_EQ(stats.mean, 2.5);
  EXPECT_DOUBLE_EQ(stats.max_over_mean, 1.6);
  EXPECT_DOUBLE_EQ(stats.coefficient_of_variation, std::sqrt(1.25) / 2.5);
  EXPECT_DOUBLE_EQ(stats.gini, 0.25);
}

TEST(LoadStats, DoesNotDependOnTheOrderOfExperts) {
  const std::vector<std::int64_t> a = {9, 0, 4, 4, 1};
  const std::vector<std::int64_t> b = {4, 1, 9, 4, 0};
  EXPECT_DOUBLE_EQ(load_stats(a).gini, load_stats(b).gini);
  EXPECT_DOUBLE_EQ(load_stats(a).coefficient_of_variation, load_stats(b).coefficient_of_variation);
}

TEST(LoadStats, OfNothingIsZeroAndFinite) {
  const std::vector<std::int64_t> counts = {0, 0, 0};
  const LoadStats stats = load_stats(counts);
  EXPECT_EQ(stats.num_experts, 3);
  EXPECT_EQ(stats.num_routed, 0);
  EXPECT_DOUBLE_EQ(stats.max_over_mean, 0.0);
  EXPECT_EQ(load_stats({}).num_experts, 0);
}

}  // namespace
}  // namespace moe::routing
