#include "lib/planner/expert_hits.hpp"

#include <numeric>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/base/rng.hpp"

namespace moe::planner {
namespace {

struct Published {
  double experts, top_k, tokens, hits;
};

// Values computed by hand from E (1 - (1 - k/E)^B), to one decimal.
TEST(ExpertHits, UniformRoutingMatchesTheWorkedTable) {
  for (const Published& p :
       {Published{8, 2, 4, 5.5}, Published{8, 2, 16, 7.9}, Published{64, 8, 4, 26.5},
        Published{64, 8, 16, 56.4}, Published{128, 8, 16, 82.4}, Published{128, 8, 64, 125.9},
        Published{256, 8, 16, 102.0}, Published{256, 8, 64, 222.4}, Published{384, 8, 64, 284.2},
        Published{512, 10, 256, 508.7}, Published{128, 4, 64, 111.2}}) {
    EXPECT_NEAR(expected_hits(p.experts, p.top_k, p.tokens), p.hits, 0.051);
  }
}

TEST(ExpertHits, OneTokenHitsTopK) {
  EXPECT_NEAR(expected_hits(256.0, 8.0, 1.0), 8.0, 1e-9);
}

TEST(ExpertHits, UniformPopularityIsUniformRouting) {
  const std::vector<double> popularity(128, 3.0);
  EXPECT_NEAR(expected_hits(popularity, 8.0, 16.0), expected_hits(128.0, 8.0, 16.0), 1e-9);
}

TEST(ExpertHits, AgreesWithSampledRouting) {
  const std::vector<double> popularity = power_law_popularity(32, 0.8);
  const std::vector<double> p = selection_probabilities(popularity, 4.0);
  Rng rng(7);
  double total = 0.0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    for (const double probability : p) {
      // Ten tokens, each picks the expert with its probability.
      bool is_hit = false;
      for (int token = 0; token < 10; ++token) is_hit |= rng.next_uniform() < probability;
      total += is_hit ? 1.0 : 0.0;
    }
  }
  EXPECT_NEAR(expected_hits(popularity, 4.0, 10.0), total / kTrials, 0.15);
}

TEST(ExpertHits, ProbabilitiesAddUpToTopKAndStayBelowOne) {
  for (const double alpha : {0.0, 0.5, 1.0, 2.0, 4.0}) {
    const std::vector<double> p = selection_probabilities(power_law_popularity(64, alpha), 8.0);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 8.0, 1e-6) << alpha;
    for (const double value : p) EXPECT_LE(value, 1.0 + 1e-9);
  }
}

TEST(ExpertHits, SkewReadsFewerExpertsAndLoadsTheFullestRankMore) {
  RoutingSkew skew;
  skew.popularity = power_law_popularity(128, 1.0);
  const SkewFactors factors = skew_factors(skew, 128, 8.0, 8, 32.0);
  EXPECT_LT(factors.hits, 0.95);
  EXPECT_GT(factors.load, 1.4);
  EXPECT_EQ(skew_factors(skew, 128, 8.0, 1, 32.0).load, 1.0);
}

TEST(ExpertHits, AReplayedLoadReplacesTheDerivedOne) {
  RoutingSkew skew;
  skew.popularity = power_law_popularity(128, 1.0);
  skew.rank_max_over_mean = 1.1;
  EXPECT_DOUBLE_EQ(skew_factors(skew, 128, 8.0, 8, 32.0).load, 1.1);
}

TEST(ExpertHits, BadPopularityIsRefused) {
  EXPECT_THROW((void)expected_hits(std::vector<double>{1.0, -1.0}, 1.0, 4.0), Error);
  EXPECT_THROW((void)expected_hits(std::vector<double>{1.0, 0.0, 0.0}, 2.0, 4.0), Error);
}

}  // namespace
}  // namespace moe::planner
