#pragma once

// Which experts a usage profile would let go, and what routing mass goes with them.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

// How often, and with how much weight, experts were chosen.
struct UsageProfile {
  std::vector<std::int64_t> counts;  // [layers, experts]
  std::vector<double> mass;          // sum of router weights, the same shape; empty without weights
  std::int64_t num_tokens = 0;       // 0: not known
};
// Rewinds and reads the whole input.
[[nodiscard]] UsageProfile usage_profile(RoutingInput& input);

struct PrunedLayer {
  std::vector<std::int32_t> experts;  // ascending; those with the least mass (count), ties to the
                                      // higher id
  double lost_share = 0.0;            // of the layer's assignments that chose one of them
  double lost_mass_share = 0.0;       // of its router weights; equals lost_share without weights
};
// Prunes floor(share * experts) experts of every layer, by mass where there is one. At least
// `num_kept_min` experts stay (a token needs top_k). 0 < share < 1.
[[nodiscard]] std::vector<PrunedLayer> prune_experts(const UsageProfile& profile,
                                                     std::int64_t num_layers, double share,
                                                     std::int64_t num_kept_min);
// What the same experts would lose on other traffic of the same model.
[[nodiscard]] std::vector<PrunedLayer> judge_pruning(const std::vector<PrunedLayer>& pruned,
                                                     const UsageProfile& profile);

}  // namespace moe::routing
