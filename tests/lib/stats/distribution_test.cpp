#include "lib/stats/distribution.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"

namespace moe::stats {
namespace {

std::vector<double> one_to(std::int64_t n) {
  std::vector<double> samples(static_cast<std::size_t>(n));
  std::iota(samples.begin(), samples.end(), 1.0);
  return samples;
}

TEST(NearestRank, IsTheSmallestRankThatCoversTheShare) {
  // Brute force in integers: the smallest r with r * 1000 >= permille * n.
  for (std::int64_t n = 1; n <= 1500; ++n) {
    for (const std::int64_t permille : {1, 100, 250, 500, 750, 900, 950, 990, 999, 1000}) {
      std::int64_t rank = 1;
      while (rank * 1000 < permille * n) ++rank;
      EXPECT_EQ(nearest_rank(n, static_cast<double>(permille) / 1000.0), rank)
          << n << " samples, " << permille << " per mille";
    }
  }
}

TEST(NearestRank, OfZeroIsTheMinimum) {
  EXPECT_EQ(nearest_rank(10, 0.0), 1);
}

TEST(NearestRank, HoldsForManySamples) {
  EXPECT_EQ(nearest_rank(1'000'000'000, 0.9), 900'000'000);
  EXPECT_EQ(nearest_rank(1'000'000'000, 0.99), 990'000'000);
  EXPECT_EQ(nearest_rank(999'999'999, 0.5), 500'000'000);
}

TEST(PercentileOfSorted, OfTenSamplesIsASample) {
  // One definition among those in use: interpolation would give 5.5, 9.1 and 9.91.
  const std::vector<double> ten = one_to(10);
  EXPECT_EQ(percentile_of_sorted(ten, 0.5), 5.0);
  EXPECT_EQ(percentile_of_sorted(ten, 0.9), 9.0);
  EXPECT_EQ(percentile_of_sorted(ten, 0.99), 10.0);
}

TEST(MinSamples, FollowsFromTheSupportRule) {
  EXPECT_EQ(min_samples_for(0.50), 7);
  EXPECT_EQ(min_samples_for(0.90), 44);
  EXPECT_EQ(min_samples_for(0.95), 90);
  EXPECT_EQ(min_samples_for(0.99), 459);
  EXPECT_EQ(min_samples_for(0.10), 44);
  for (const double p : {0.5, 0.9, 0.95, 0.99, 0.999}) {
    const auto n = static_cast<double>(min_samples_for(p));
    EXPECT_GE(1.0 - std::pow(p, n), 0.99);
    EXPECT_LT(1.0 - std::pow(p, n - 1.0), 0.99);
  }
}

TEST(Percentile, IsRefusedOneSampleBelowTheRule) {
  const Percentile refused = percentile(one_to(458), 0.99);
  EXPECT_FALSE(refused.value);
  EXPECT_FALSE(refused.ci95);
  EXPECT_EQ(refused.absent_reason, "p99 needs 459 samples, there are 458");
  const Percentile given = percentile(one_to(459), 0.99);
  ASSERT_TRUE(given.value);
  EXPECT_EQ(*given.value, 455.0);
  EXPECT_TRUE(given.absent_reason.empty());
}

struct RankCase {
  std::int64_t n;
  double p;
  std::int64_t low;
  std::int64_t high;
};

TEST(CiRanks, AgreeWithTheBinomialDistributionOfScipy) {
  // scipy.stats.binom 1.17: largest l with cdf(l - 1) <= 0.025, smallest u with cdf(u - 1) >=
  // 0.975.
  const std::vector<RankCase> cases = {{6, 0.5, 1, 6},
                                       {7, 0.5, 1, 7},
                                       {10, 0.5, 2, 9},
                                       {20, 0.5, 6, 15},
                                       {44, 0.5, 16, 29},
                                       {44, 0.9, 35, 44},
                                       {59, 0.5, 22, 38},
                                       {59, 0.9, 48, 58},
                                       {90, 0.5, 36, 55},
                                       {90, 0.9, 75, 87},
                                       {90, 0.95, 81, 90},
                                       {100, 0.5, 40, 61},
                                       {100, 0.9, 84, 96},
                                       {100, 0.95, 90, 100},
                                       {459, 0.5, 209, 251},
                                       {459, 0.9, 400, 426},
                                       {459, 0.95, 427, 446},
                                       {459, 0.99, 450, 459},
                                       {1000, 0.5, 469, 532},
                                       {1000, 0.9, 881, 919},
                                       {1000, 0.95, 936, 964},
                                       {1000, 0.99, 983, 997},
                                       {10007, 0.5, 4905, 5103},
                                       {10007, 0.9, 8947, 9066},
                                       {10007, 0.95, 9463, 9550},
                                       {10007, 0.99, 9887, 9927},
                                       {1000000, 0.5, 499020, 500981},
                                       {1000000, 0.9, 899412, 900589},
                                       {1000000, 0.95, 949572, 950428},
                                       {1000000, 0.99, 989805, 990196}};
  for (const RankCase& one : cases) {
    const auto ranks = ci_ranks(one.n, one.p);
    ASSERT_TRUE(ranks) << one.n << " " << one.p;
    EXPECT_EQ(ranks->low, one.low) << one.n << " " << one.p;
    EXPECT_EQ(ranks->high, one.high) << one.n << " " << one.p;
  }
}

TEST(CiRanks, AreAbsentWhereNoRankEncloses) {
  EXPECT_FALSE(ci_ranks(5, 0.5));
  EXPECT_FALSE(ci_ranks(20, 0.9));
  EXPECT_FALSE(ci_ranks(59, 0.95));
  EXPECT_FALSE(ci_ranks(100, 0.99));
  EXPECT_FALSE(ci_ranks(0, 0.5));
}

TEST(CiRanks, ExistWhereverThePercentileIsGiven) {
  for (const double p : {0.5, 0.9, 0.95, 0.99}) {
    for (std::int64_t n = min_samples_for(p); n < min_samples_for(p) + 200; ++n) {
      const auto ranks = ci_ranks(n, p);
      ASSERT_TRUE(ranks) << n << " " << p;
      EXPECT_LE(ranks->low, nearest_rank(n, p));
      EXPECT_GE(ranks->high, nearest_rank(n, p));
    }
  }
}

TEST(CiRanks, CoverTheTrueQuantileAtLeastNinetyFivePercentOfTheTime) {
  // Uniform samples, whose p-quantile is p. The interval is exact, so the true coverage is at least
  // 0.95; 4,000 rounds put 0.935 more than four standard deviations below it.
  constexpr int kRounds = 4000;
  for (const auto& [n, p] :
       {std::pair<std::size_t, double>{7, 0.5}, {50, 0.5}, {44, 0.9}, {200, 0.95}, {459, 0.99}}) {
    int covered = 0;
    Rng rng(20261, n);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> samples(n);
      for (double& value : samples) value = rng.next_uniform();
      std::sort(samples.begin(), samples.end());
      const Percentile result = percentile(samples, p);
      ASSERT_TRUE(result.ci95);
      covered += result.ci95->low <= p && p <= result.ci95->high ? 1 : 0;
    }
    EXPECT_GE(static_cast<double>(covered) / kRounds, 0.935) << n << " samples, p " << p;
  }
}

TEST(Summarize, MatchesAWorkedExample) {
  // 1..10: mean 5.5, sample variance 55/6, median (rank 5) 5, deviations 4 3 2 1 0 1 2 3 4 5.
  const Distribution d = summarize(one_to(10));
  EXPECT_EQ(d.count, 10);
  EXPECT_DOUBLE_EQ(*d.mean, 5.5);
  EXPECT_DOUBLE_EQ(*d.stdev, std::sqrt(55.0 / 6.0));
  EXPECT_EQ(*d.mad, 2.0);
  EXPECT_EQ(*d.min, 1.0);
  EXPECT_EQ(*d.max, 10.0);
  EXPECT_EQ(*d.p50.value, 5.0);
  EXPECT_EQ(d.p50.ci95->low, 2.0);
  EXPECT_EQ(d.p50.ci95->high, 9.0);
  EXPECT_FALSE(d.p90.value);
  EXPECT_EQ(d.percentile_method, "nearest_rank");
  EXPECT_TRUE(d.absent_reason.empty());
}

TEST(Summarize, OfNothingHasAReasonForEveryFigure) {
  const Distribution d = summarize({});
  EXPECT_EQ(d.count, 0);
  EXPECT_FALSE(d.mean || d.stdev || d.mad || d.min || d.max);
  EXPECT_EQ(d.absent_reason, "there are no samples");
  EXPECT_EQ(d.p50.absent_reason, "p50 needs 7 samples, there are 0");
}

TEST(Summarize, OfOneSampleHasNoSpread) {
  const Distribution d = summarize(std::vector<double>{3.0});
  EXPECT_EQ(*d.mean, 3.0);
  EXPECT_EQ(*d.mad, 0.0);
  EXPECT_FALSE(d.stdev);
  EXPECT_EQ(d.absent_reason, "stdev needs 2 samples, there is 1");
}

TEST(Summarize, DoesNotDependOnTheOrder) {
  std::vector<double> samples = one_to(501);
  const Distribution sorted = summarize(samples);
  Rng rng(7);
  for (std::size_t i = samples.size() - 1; i > 0; --i) {
    std::swap(samples[i], samples[rng.next_below(i + 1)]);
  }
  const Distribution shuffled = summarize(samples);
  EXPECT_EQ(*shuffled.mean, *sorted.mean);
  EXPECT_EQ(*shuffled.stdev, *sorted.stdev);
  EXPECT_EQ(*shuffled.p99.value, *sorted.p99.value);
}

TEST(Summarize, KeepsFiguresOrderedOnRandomSamples) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    std::vector<double> samples(1 + rng.next_below(1200));
    for (double& value : samples) value = std::exp(3.0 * rng.next_normal());
    const Distribution d = summarize(samples);
    EXPECT_LE(*d.min, *d.mean) << "seed " << seed;
    EXPECT_LE(*d.mean, *d.max) << "seed " << seed;
    double last = *d.min;
    for (const Percentile* one : {&d.p50, &d.p90, &d.p95, &d.p99}) {
      if (!one->value) continue;
      EXPECT_GE(*one->value, last) << "seed " << seed;
      EXPECT_LE(one->ci95->low, *one->value) << "seed " << seed;
      EXPECT_GE(one->ci95->high, *one->value) << "seed " << seed;
      last = *one->value;
    }
    EXPECT_LE(last, *d.max) << "seed " << seed;
  }
}

TEST(Summarize, GivesEqualSamplesBackExactly) {
  const Distribution d = summarize(std::vector<double>(100'000, 0.1));
  EXPECT_EQ(*d.mean, 0.1);
  EXPECT_EQ(*d.stdev, 0.0);
  EXPECT_EQ(*d.mad, 0.0);
}

TEST(Summarize, KeepsTheSpreadOfSmallDifferencesAroundALargeValue) {
  const Distribution d = summarize(std::vector<double>{1e9, 1e9 + 1.0, 1e9 + 2.0});
  EXPECT_DOUBLE_EQ(*d.stdev, 1.0);
}

TEST(SummarizeDeathTest, RefusesNan) {
  EXPECT_DEATH((void)summarize(std::vector<double>{1.0, std::nan("")}), "isfinite");
}

}  // namespace
}  // namespace moe::stats
