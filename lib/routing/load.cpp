#include "lib/routing/load.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/check.hpp"

namespace moe::routing {

LoadStats load_stats(std::span<const std::int64_t> counts) {
  LoadStats stats;
  if (counts.empty()) return stats;
  std::vector<std::int64_t> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  MOE_CHECK(sorted.front() >= 0);
  stats.num_experts = static_cast<std::int64_t>(sorted.size());
  stats.min = sorted.front();
  stats.max = sorted.back();
  const auto n = static_cast<double>(sorted.size());
  double rank_sum = 0.0;  // sum of rank * count, ranks from 1 in ascending order
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    stats.num_routed += sorted[i];
    if (sorted[i] > 0) ++stats.num_distinct;
    rank_sum += static_cast<double>(i + 1) * static_cast<double>(sorted[i]);
  }
  if (stats.num_routed == 0) return stats;
  const auto total = static_cast<double>(stats.num_routed);
  stats.mean = total / n;
  stats.max_over_mean = static_cast<double>(stats.max) / stats.mean;
  double squares = 0.0;
  for (const std::int64_t count : sorted) {
    const double off = static_cast<double>(count) - stats.mean;
    squares += off * off;
  }
  stats.coefficient_of_variation = std::sqrt(squares / n) / stats.mean;
  // G = 2 sum_i i x_(i) / (n sum x) - (n + 1) / n, x ascending, i from 1.
  stats.gini = std::max(0.0, 2.0 * rank_sum / (n * total) - (n + 1.0) / n);
  return stats;
}

}  // namespace moe::routing
