#include "lib/stats/distribution.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"

namespace moe::stats {
namespace {

// The part of Binomial(n, p) that holds all but a negligible share of the mass, as probabilities of
// first, first + 1, ... Weights grow from the mode by the exact ratio of neighbours and are
// normalized by their sum, so nothing overflows and no logarithm of a factorial loses digits.
struct BinomialMass {
  std::int64_t first = 0;
  std::vector<double> probability;
};

BinomialMass binomial_mass(std::int64_t n, double p) {
  constexpr double kNegligible = 1e-18;
  const double odds = p / (1.0 - p);
  const auto mode = std::min(n, static_cast<std::int64_t>(static_cast<double>(n + 1) * p));
  std::vector<double> below;  // from the mode downwards, the mode included
  double weight = 1.0;
  std::int64_t k = mode;
  for (; weight > kNegligible; --k) {
    below.push_back(weight);
    if (k == 0) break;
    weight *= static_cast<double>(k) / (static_cast<double>(n - k + 1) * odds);
  }
  BinomialMass mass;
  mass.first = mode - static_cast<std::int64_t>(below.size()) + 1;
  mass.probability.assign(below.rbegin(), below.rend());
  weight = 1.0;
  for (k = mode; k < n; ++k) {
    weight *= static_cast<double>(n - k) * odds / static_cast<double>(k + 1);
    if (weight <= kNegligible) break;
    mass.probability.push_back(weight);
  }
  double sum = 0.0;
  for (const double value : mass.probability) sum += value;
  for (double& value : mass.probability) value /= sum;
  return mass;
}

double mean_of(std::span<const double> samples) {
  // Neumaier's compensated sum: a million equal samples must give their value back.
  double sum = 0.0;
  double lost = 0.0;
  for (const double value : samples) {
    const double next = sum + value;
    lost += std::abs(sum) >= std::abs(value) ? (sum - next) + value : (value - next) + sum;
    sum = next;
  }
  return (sum + lost) / static_cast<double>(samples.size());
}

double stdev_of(std::span<const double> samples, double mean) {
  double squares = 0.0;
  for (const double value : samples) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

}  // namespace

std::int64_t min_samples_for(double p) {
  MOE_CHECK(p > 0.0 && p < 1.0);
  const double tail = std::log(1.0 - kSupportConfidence) / std::log(std::max(p, 1.0 - p));
  return static_cast<std::int64_t>(std::ceil(tail));
}

std::int64_t nearest_rank(std::int64_t n, double p) {
  MOE_CHECK(n >= 1);
  MOE_CHECK(p >= 0.0 && p <= 1.0);
  // 0.9 is a little more than nine tenths in binary; without the margin rank 9 of 10 would be 10.
  const double position = static_cast<double>(n) * p;
  const auto rank = static_cast<std::int64_t>(std::ceil(position - 1e-12 * (position + 1.0)));
  return std::clamp<std::int64_t>(rank, 1, n);
}

std::optional<RankInterval> ci_ranks(std::int64_t n, double p, double confidence) {
  MOE_CHECK(n >= 0);
  MOE_CHECK(p > 0.0 && p < 1.0);
  MOE_CHECK(confidence > 0.0 && confidence < 1.0);
  if (n == 0) return std::nullopt;
  const double tail = (1.0 - confidence) / 2.0;
  const BinomialMass mass = binomial_mass(n, p);
  RankInterval ranks{0, 0};
  double cumulative = 0.0;  // P(B <= k)
  for (std::size_t i = 0; i < mass.probability.size(); ++i) {
    const std::int64_t k = mass.first + static_cast<std::int64_t>(i);
    cumulative += mass.probability[i];
    if (cumulative <= tail) ranks.low = k + 1;
    if (cumulative >= 1.0 - tail) {
      ranks.high = k + 1;
      break;
    }
  }
  // The mass below `first` is negligible, so every rank up to `first` satisfies the lower tail.
  if (ranks.low == 0) ranks.low = mass.first;
  if (ranks.low < 1 || ranks.high < 1 || ranks.high > n) return std::nullopt;
  return ranks;
}

double percentile_of_sorted(std::span<const double> sorted, double p) {
  MOE_CHECK(!sorted.empty());
  const std::int64_t rank = nearest_rank(static_cast<std::int64_t>(sorted.size()), p);
  return sorted[static_cast<std::size_t>(rank - 1)];
}

Percentile percentile(std::span<const double> sorted, double p) {
  Percentile result;
  const auto n = static_cast<std::int64_t>(sorted.size());
  const std::int64_t needed = min_samples_for(p);
  if (n < needed) {
    result.absent_reason =
        fmt::format("p{:g} needs {} samples, there are {}", p * 100.0, needed, n);
    return result;
  }
  result.value = percentile_of_sorted(sorted, p);
  if (const auto ranks = ci_ranks(n, p)) {
    result.ci95 = Interval{sorted[static_cast<std::size_t>(ranks->low - 1)],
                           sorted[static_cast<std::size_t>(ranks->high - 1)]};
  }
  return result;
}

double median(std::span<const double> samples) {
  MOE_CHECK(!samples.empty());
  std::vector<double> copy(samples.begin(), samples.end());
  const std::int64_t rank = nearest_rank(static_cast<std::int64_t>(copy.size()), 0.5);
  const auto middle = copy.begin() + (rank - 1);
  std::nth_element(copy.begin(), middle, copy.end());
  return *middle;
}

Distribution summarize(std::span<const double> samples) {
  for (const double value : samples) MOE_CHECK(std::isfinite(value));
  Distribution result;
  result.count = static_cast<std::int64_t>(samples.size());
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  result.p50 = percentile(sorted, 0.50);
  result.p90 = percentile(sorted, 0.90);
  result.p95 = percentile(sorted, 0.95);
  result.p99 = percentile(sorted, 0.99);
  if (sorted.empty()) {
    result.absent_reason = "there are no samples";
    return result;
  }
  result.min = sorted.front();
  result.max = sorted.back();
  // Rounding must not push the mean of equal samples outside [min, max].
  result.mean = std::clamp(mean_of(sorted), sorted.front(), sorted.back());
  const double center = percentile_of_sorted(sorted, 0.5);
  std::vector<double> deviations(sorted.size());
  std::transform(sorted.begin(), sorted.end(), deviations.begin(),
                 [center](double value) { return std::abs(value - center); });
  result.mad = median(deviations);
  if (sorted.size() >= 2) {
    result.stdev = stdev_of(sorted, *result.mean);
  } else {
    result.absent_reason = "stdev needs 2 samples, there is 1";
  }
  return result;
}

}  // namespace moe::stats
