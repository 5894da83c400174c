#include "lib/stats/compare.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::stats {
namespace {

constexpr std::size_t kMaxExactSamples = 50;

struct RankSum {
  double u = 0.0;         // Mann-Whitney U of the first set
  double tie_term = 0.0;  // sum over groups of equal values of t^3 - t
};

RankSum rank_sum(std::span<const double> a, std::span<const double> b) {
  std::vector<std::pair<double, bool>> all;  // value, is of the first set
  all.reserve(a.size() + b.size());
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::sort(all.begin(), all.end());
  RankSum result;
  double ranks_of_a = 0.0;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    double num_of_a = 0.0;
    while (end < all.size() && all[end].first == all[begin].first) {
      num_of_a += all[end].second ? 1.0 : 0.0;
      ++end;
    }
    const auto ties = static_cast<double>(end - begin);
    const double middle_rank = static_cast<double>(begin) + (ties + 1.0) / 2.0;
    ranks_of_a += num_of_a * middle_rank;
    result.tie_term += ties * ties * ties - ties;
    begin = end;
  }
  const auto n = static_cast<double>(a.size());
  result.u = ranks_of_a - n * (n + 1.0) / 2.0;
  return result;
}

// P(U <= u) when all orders are equally likely. The number of orders of i and j samples with a
// given U is f(i, j)[u] = f(i - 1, j)[u - j] + f(i, j - 1)[u]: the largest of all is either of the
// first set, and then above j samples of the second, or of the second. Sums only, so no
// cancellation.
double exact_lower_tail(std::size_t m, std::size_t n, double u) {
  std::vector<std::vector<double>> orders(m + 1, std::vector<double>(m * n + 1, 0.0));
  for (auto& row : orders) row[0] = 1.0;  // j = 0: one order, U = 0
  for (std::size_t j = 1; j <= n; ++j) {
    for (std::size_t i = 1; i <= m; ++i) {
      for (std::size_t k = i * j; k >= j; --k) orders[i][k] += orders[i - 1][k - j];
    }
  }
  double total = 0.0;
  double lower = 0.0;
  for (std::size_t k = 0; k <= m * n; ++k) {
    total += orders[m][k];
    if (static_cast<double>(k) <= u) lower += orders[m][k];
  }
  return lower / total;
}

double normal_two_sided(double m, double n, const RankSum& sum) {
  const double total = m + n;
  const double mean = m * n / 2.0;
  const double variance = m * n / 12.0 * ((total + 1.0) - sum.tie_term / (total * (total - 1.0)));
  if (!(variance > 0.0)) return 1.0;  // all values equal
  const double distance = std::max(0.0, std::abs(sum.u - mean) - 0.5);
  return std::min(1.0, std::erfc(distance / std::sqrt(variance) / std::numbers::sqrt2));
}

}  // namespace

Comparison compare(std::span<const double> baseline, std::span<const double> candidate) {
  for (const double value : baseline) MOE_CHECK(std::isfinite(value));
  for (const double value : candidate) MOE_CHECK(std::isfinite(value));
  Comparison result;
  result.num_baseline = static_cast<std::int64_t>(baseline.size());
  result.num_candidate = static_cast<std::int64_t>(candidate.size());
  result.enough_samples =
      std::min(result.num_baseline, result.num_candidate) >= kMinSamplesToCompare;
  if (baseline.empty() || candidate.empty()) return result;
  const double base = median(baseline);
  if (base != 0.0) result.median_ratio = median(candidate) / base;
  const RankSum sum = rank_sum(baseline, candidate);
  const auto m = static_cast<double>(baseline.size());
  const auto n = static_cast<double>(candidate.size());
  result.is_exact =
      sum.tie_term == 0.0 && std::max(baseline.size(), candidate.size()) <= kMaxExactSamples;
  if (result.is_exact) {
    const double smaller = std::min(sum.u, m * n - sum.u);
    result.p_value =
        std::min(1.0, 2.0 * exact_lower_tail(baseline.size(), candidate.size(), smaller));
  } else {
    result.p_value = normal_two_sided(m, n, sum);
  }
  return result;
}

}  // namespace moe::stats
