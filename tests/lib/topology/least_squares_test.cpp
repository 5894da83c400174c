#include "lib/topology/least_squares.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"

namespace moe::topology {
namespace {

TEST(LeastSquares, FindsTheCoefficientsOfExactData) {
  Design design{3, {}};
  std::vector<double> targets;
  for (int i = 0; i < 20; ++i) {
    const double volume = std::pow(2.0, 9 + i);
    design.values.insert(design.values.end(), {1.0, volume, std::sqrt(volume)});
    targets.push_back(1e-5 + volume / 3e11 + 2e-9 * std::sqrt(volume));
  }
  const std::vector<double> x = fit_relative(design, targets);
  EXPECT_NEAR(x[0], 1e-5, 1e-9);
  EXPECT_NEAR(x[1], 1.0 / 3e11, 1e-15);
  EXPECT_NEAR(x[2], 2e-9, 1e-12);
}

TEST(LeastSquares, NeverTurnsNegative) {
  // The data fall with the second column, so its coefficient is zero.
  Design design{2, {1, 1, 1, 2, 1, 3, 1, 4}};
  const std::vector<double> x =
      fit_non_negative(design, std::vector<double>{4, 3, 2, 1}, std::vector<double>{1, 1, 1, 1});
  EXPECT_NEAR(x[0], 2.5, 1e-9);
  EXPECT_EQ(x[1], 0.0);
}

TEST(LeastSquares, MeetsTheOptimalityConditions) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Design design{6, {}};
    std::vector<double> targets;
    for (int i = 0; i < 30; ++i) {
      for (int c = 0; c < 6; ++c) design.values.push_back(rng.next_uniform());
      targets.push_back(rng.next_normal());
    }
    const std::vector<double> ones(30, 1.0);
    const std::vector<double> x = fit_non_negative(design, targets, ones);
    for (std::size_t column = 0; column < 6; ++column) {
      double slope = 0.0;
      for (std::size_t i = 0; i < 30; ++i) {
        slope += design.row(i)[column] * (targets[i] - dot(design.row(i), x));
      }
      EXPECT_GE(x[column], 0.0);
      if (x[column] > 1e-9) {
        EXPECT_NEAR(slope, 0.0, 1e-6);
      } else {
        EXPECT_LE(slope, 1e-6);
      }
    }
  }
}

TEST(LeastSquares, MinimaxSpreadsTheErrorEvenly) {
  // One column of ones: the best is where the largest relative errors of both ends are equal.
  Design design{1, {1, 1, 1}};
  const std::vector<double> x = fit_minimax(design, std::vector<double>{1.0, 1.5, 2.0});
  // |x - 1| / 1 = |2 - x| / 2 at x = 4/3.
  EXPECT_NEAR(x[0], 4.0 / 3.0, 0.01);
}

TEST(LeastSquares, SummaryHasNearestRankPercentiles) {
  const ErrorSummary summary = summarise_errors({0.4, 0.1, 0.3, 0.2});
  EXPECT_EQ(summary.count, 4);
  EXPECT_DOUBLE_EQ(summary.p50, 0.2);
  EXPECT_DOUBLE_EQ(summary.p90, 0.4);
  EXPECT_DOUBLE_EQ(summary.max, 0.4);
  EXPECT_EQ(summarise_errors({}).count, 0);
}

}  // namespace
}  // namespace moe::topology
