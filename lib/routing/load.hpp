#pragma once

// How evenly a layer's tokens fall on its experts. Counts are routed copies: a token with top_k 4
// adds one to each of four experts.

#include <cstdint>
#include <span>

namespace moe::routing {

struct LoadStats {
  std::int64_t num_experts = 0;
  std::int64_t num_routed = 0;    // sum of the counts
  std::int64_t num_distinct = 0;  // experts with at least one token
  std::int64_t max = 0;
  std::int64_t min = 0;
  double mean = 0.0;
  // Largest load over the mean: 1 is perfect balance, num_experts is everything on one expert.
  // 0 when nothing was routed.
  double max_over_mean = 0.0;
  // Standard deviation of the counts (divisor num_experts) over the mean. 0 when nothing was
  // routed.
  double coefficient_of_variation = 0.0;
  // Gini coefficient of the counts: 0 equal, (num_experts - 1) / num_experts everything on one.
  double gini = 0.0;
};

// counts[e] >= 0 of one layer; may be empty.
[[nodiscard]] LoadStats load_stats(std::span<const std::int64_t> counts);

}  // namespace moe::routing
