#include "lib/stats/outliers.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace moe::stats {
namespace {

TEST(ModifiedZScores, MatchAWorkedExample) {
  // Median 3, deviations 2 1 0 1 97, MAD 1.
  const auto scores = modified_z_scores(std::vector<double>{1, 2, 3, 4, 100});
  EXPECT_NEAR(scores[0], -2.0 / 1.4826022185056018, 1e-12);
  EXPECT_EQ(scores[2], 0.0);
  EXPECT_NEAR(scores[4], 97.0 / 1.4826022185056018, 1e-12);
}

TEST(ModifiedZScores, FallBackToTheMeanDeviationWhenMostSamplesAreEqual) {
  // MAD 0; mean deviation 10 / 5 = 2.
  const auto scores = modified_z_scores(std::vector<double>{5, 5, 5, 5, 15});
  EXPECT_NEAR(scores[4], 10.0 / (1.2533141373155003 * 2.0), 1e-12);
  EXPECT_EQ(scores[0], 0.0);
}

TEST(FindOutliers, CountsBothSidesAndMarksTheFirstSample) {
  const Outliers found =
      find_outliers(std::vector<double>{1000, 10, 11, 12, 10, 11, 12, 11, -1000});
  EXPECT_EQ(found.indices, (std::vector<std::int64_t>{0, 8}));
  EXPECT_EQ(found.num_high, 1);
  EXPECT_EQ(found.num_low, 1);
  EXPECT_TRUE(found.first_is_outlier);
}

TEST(FindOutliers, FindsNoneAmongEqualOrFewSamples) {
  EXPECT_TRUE(find_outliers(std::vector<double>(30, 2.0)).indices.empty());
  EXPECT_TRUE(find_outliers({}).indices.empty());
  EXPECT_TRUE(find_outliers(std::vector<double>{1.0}).indices.empty());
  EXPECT_FALSE(find_outliers(std::vector<double>{1.0, 2.0, 3.0}).first_is_outlier);
}

TEST(FindOutliers, TakesAnotherThreshold) {
  const std::vector<double> samples = {1, 2, 3, 4, 10};  // 7 / 1.4826 = 4.7 deviations
  EXPECT_TRUE(find_outliers(samples).indices.empty());
  EXPECT_EQ(find_outliers(samples, 3.5).indices, (std::vector<std::int64_t>{4}));
}

}  // namespace
}  // namespace moe::stats
