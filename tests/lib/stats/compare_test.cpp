#include "lib/stats/compare.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"

namespace moe::stats {
namespace {

// Reference p values: scipy.stats.mannwhitneyu 1.17, two-sided.

TEST(Compare, MatchesScipyOnTheExampleOfItsManual) {
  const Comparison result =
      compare(std::vector<double>{19, 22, 16, 29, 24}, std::vector<double>{20, 11, 17, 12});
  EXPECT_TRUE(result.is_exact);
  EXPECT_NEAR(*result.p_value, 0.1111111111111111, 1e-14);
}

TEST(Compare, MatchesScipyExactly) {
  const std::vector<double> a = {1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
  const std::vector<double> b = {0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.07, 3.14, 1.28};
  const Comparison result = compare(a, b);
  EXPECT_TRUE(result.is_exact);
  EXPECT_TRUE(result.enough_samples);
  EXPECT_NEAR(*result.p_value, 0.13591114767585355, 1e-13);
  EXPECT_DOUBLE_EQ(*result.median_ratio, 1.07 / 1.68);
}

TEST(Compare, UsesTheTieCorrectedNormalApproximationWithTies) {
  const std::vector<double> a = {1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
  const std::vector<double> b = {0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29};
  const Comparison result = compare(a, b);
  EXPECT_FALSE(result.is_exact);
  EXPECT_NEAR(*result.p_value, 0.13291945818531892, 1e-12);
}

TEST(Compare, MatchesScipyAtTheLimitOfTheExactDistribution) {
  std::vector<double> a(50);
  std::vector<double> b(50);
  for (int i = 0; i < 50; ++i) {
    a[static_cast<std::size_t>(i)] = i;
    b[static_cast<std::size_t>(i)] = i * 1.0 + 0.5 + (i % 3 == 0 ? 7.0 : 0.01 * i);
  }
  const Comparison result = compare(a, b);
  EXPECT_TRUE(result.is_exact);
  EXPECT_NEAR(*result.p_value, 0.35537592793091966, 1e-12);
}

TEST(Compare, MatchesScipyOnManySamples) {
  std::vector<double> a(60);
  std::vector<double> b(70);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i + 3);
  const Comparison result = compare(a, b);
  EXPECT_FALSE(result.is_exact);
  EXPECT_NEAR(*result.p_value, 0.026521346238614595, 1e-12);
}

TEST(Compare, CountsEveryOrderOfSixSamples) {
  // U = 0 for 1 of the 20 orders; two-sided 2/20.
  const Comparison result = compare(std::vector<double>{1, 2, 3}, std::vector<double>{4, 5, 6});
  EXPECT_NEAR(*result.p_value, 0.1, 1e-15);
  EXPECT_FALSE(result.enough_samples);
}

TEST(Compare, IsSymmetricInP) {
  Rng rng(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> a(5 + rng.next_below(60));
    std::vector<double> b(5 + rng.next_below(60));
    for (double& value : a) value = rng.next_normal();
    for (double& value : b) value = rng.next_normal() + 0.3;
    EXPECT_NEAR(*compare(a, b).p_value, *compare(b, a).p_value, 1e-12);
  }
}

TEST(Compare, FindsNothingBetweenSetsOfOneDistributionMoreOftenThanItsPSays) {
  // p below 0.05 in at most 5 % of rounds, plus four standard deviations of 2,000 rounds.
  Rng rng(11);
  int significant = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> a(12);
    std::vector<double> b(15);
    for (double& value : a) value = rng.next_uniform();
    for (double& value : b) value = rng.next_uniform();
    significant += *compare(a, b).p_value < 0.05 ? 1 : 0;
  }
  EXPECT_LE(significant, 140);
  EXPECT_GE(significant, 40);
}

TEST(Compare, OfEqualConstantsIsNoDifference) {
  const Comparison result = compare(std::vector<double>(20, 1.0), std::vector<double>(20, 1.0));
  EXPECT_EQ(*result.p_value, 1.0);
  EXPECT_EQ(*result.median_ratio, 1.0);
}

TEST(Compare, HasNoRatioToAMedianOfZero) {
  EXPECT_FALSE(compare(std::vector<double>(9, 0.0), std::vector<double>(9, 1.0)).median_ratio);
}

TEST(Compare, OfNothingHasNeitherRatioNorP) {
  const Comparison result = compare({}, std::vector<double>{1.0});
  EXPECT_FALSE(result.median_ratio || result.p_value || result.enough_samples);
}

}  // namespace
}  // namespace moe::stats
