#pragma once

// Which offsets make experts as popular as a Zipf law asks. Internal to the checkpoint writer.

#include <cstdint>
#include <vector>

#include "lib/model/config.hpp"

namespace moe::model {

// Standard deviation of the router logits that the writer aims at.
inline constexpr double kRouterLogitStdev = 2.0;

// The share of tokens that should choose each popularity rank: top_k * rank^-exponent / norm,
// capped at 0.98 (no expert is chosen twice by a token) with the rest spread over the other ranks.
[[nodiscard]] std::vector<double> zipf_selection_shares(std::int32_t num_experts,
                                                        std::int32_t top_k, double exponent);

// One offset per expert, added to what the router selects by (the logit, or the score where a
// correction bias is added to it), so that independent normal logits of stdev kRouterLogitStdev
// choose the experts with those shares. Found by simulating the selection rule, groups included.
// Expert index = popularity rank, spread over the groups where there are any.
[[nodiscard]] std::vector<float> calibrate_router_offsets(const MoeConfig& moe, double exponent,
                                                          std::uint64_t seed);

// The experts of a layer renumbered: offsets[i] belongs to expert permutation[i]. Groups stay
// together, as group-limited selection needs.
[[nodiscard]] std::vector<std::int32_t> expert_permutation(const MoeConfig& moe, std::uint64_t seed,
                                                           std::int32_t layer);

}  // namespace moe::model
