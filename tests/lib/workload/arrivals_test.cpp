#include "lib/workload/arrivals.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::workload {
namespace {

std::vector<double> first(ArrivalGenerator& generator, int count) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) times.push_back(generator.next_s());
  return times;
}

// Mean and coefficient of variation of the gaps.
std::pair<double, double> gaps(const std::vector<double>& times) {
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    sum += gap;
    squares += gap * gap;
  }
  const auto n = static_cast<double>(times.size() - 1);
  const double mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean) / mean};
}

TEST(RateCurve, DiurnalHasItsMeanAndPeak) {
  const RateCurve curve = RateCurve::diurnal(50.0, 1.6);
  EXPECT_NEAR(curve.mean_requests_per_s(), 50.0, 1e-9);
  EXPECT_NEAR(curve.peak_requests_per_s(), 80.0, 1e-9);
  EXPECT_DOUBLE_EQ(curve.period_s(), 86400.0);
  EXPECT_NEAR(curve.at(12.5 * 3600.0), 80.0, 1e-9);
  EXPECT_NEAR(curve.at(86400.0 * 3 + 1.0), 20.0, 1e-9);
}

TEST(RateCurve, RefusesWhatIsNoCurve) {
  EXPECT_THROW((void)RateCurve::constant(0.0), Error);
  EXPECT_THROW((void)RateCurve::constant(-1.0), Error);
  EXPECT_THROW((void)RateCurve::steps({}, 60.0), Error);
  EXPECT_THROW((void)RateCurve::diurnal(10.0, 2.5), Error);
}

TEST(ArrivalGenerator, EvenArrivalsAreEven) {
  ArrivalGenerator generator(RateCurve::constant(4.0), {ArrivalKind::kEven, 0.0}, 1);
  EXPECT_EQ(first(generator, 4), (std::vector<double>{0.25, 0.5, 0.75, 1.0}));
}

TEST(ArrivalGenerator, PoissonAndGammaHaveTheirRateAndSpread) {
  ArrivalGenerator poisson(RateCurve::constant(10.0), {ArrivalKind::kPoisson, 1.0}, 3);
  const auto [poisson_mean, poisson_cv] = gaps(first(poisson, 40000));
  EXPECT_NEAR(poisson_mean, 0.1, 0.002);
  EXPECT_NEAR(poisson_cv, 1.0, 0.03);
  ArrivalGenerator bursty(RateCurve::constant(10.0), {ArrivalKind::kGamma, 2.5}, 3);
  const auto [bursty_mean, bursty_cv] = gaps(first(bursty, 200000));
  EXPECT_NEAR(bursty_mean, 0.1, 0.003);
  EXPECT_NEAR(bursty_cv, 2.5, 0.1);
  ArrivalGenerator calm(RateCurve::constant(10.0), {ArrivalKind::kGamma, 0.4}, 3);
  EXPECT_NEAR(gaps(first(calm, 40000)).second, 0.4, 0.02);
}

TEST(ArrivalGenerator, FollowsTheCurve) {
  // Two requests a second in the first half of every 100 s, none in the second.
  ArrivalGenerator generator(RateCurve::steps({2.0, 0.0}, 50.0), {ArrivalKind::kPoisson, 1.0}, 9);
  const std::vector<double> times = first(generator, 20000);
  for (const double time : times) EXPECT_LT(std::fmod(time, 100.0), 50.0);
  EXPECT_NEAR(times.back(), 20000.0, 500.0);
}

TEST(ArrivalGenerator, TheSameSeedGivesTheSameTimes) {
  ArrivalGenerator a(RateCurve::diurnal(5.0, 1.5), {ArrivalKind::kGamma, 1.5}, 11);
  ArrivalGenerator b(RateCurve::diurnal(5.0, 1.5), {ArrivalKind::kGamma, 1.5}, 11);
  ArrivalGenerator other(RateCurve::diurnal(5.0, 1.5), {ArrivalKind::kGamma, 1.5}, 12);
  const std::vector<double> times = first(a, 1000);
  EXPECT_EQ(times, first(b, 1000));
  EXPECT_NE(times, first(other, 1000));
}

TEST(ArrivalGenerator, SparseArrivalsInShortStepsEnd) {
  ArrivalGenerator generator(RateCurve::steps({1e-9, 0.0}, 1e-3), {ArrivalKind::kPoisson, 1.0}, 1);
  EXPECT_GT(first(generator, 10).back(), 1e6);
}

TEST(ArrivalGenerator, RefusesGammaWithoutASpread) {
  EXPECT_THROW(ArrivalGenerator(RateCurve::constant(1.0), {ArrivalKind::kGamma, 0.0}, 1), Error);
}

}  // namespace
}  // namespace moe::workload
