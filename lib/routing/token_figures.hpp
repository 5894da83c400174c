#pragma once

// Figures that need token rows: counts alone cannot give them.

#include <cstdint>
#include <optional>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

struct TokenFigures {
  std::int64_t num_tokens = 0;
  // Experts of a token that the token before it used, too, in the same layer: what a cache of one
  // token would hit. Tokens in the order of the input, sequence borders included.
  std::optional<double> reuse_of_previous_token;
  // With experts in order on num_gpus GPUs (nodes), and over tokens and layers:
  std::optional<double> gpus_per_token_layer;   // distinct GPUs a token is sent to
  std::optional<double> nodes_per_token_layer;  // distinct nodes
  // Of all pairs (expert of a token in one layer, expert in the next) those on one GPU; chance
  // gives 1 / GPUs.
  std::optional<double> same_gpu_in_next_layer;
};

// num_gpus 0: no GPU figures; num_nodes 0 or 1: no node figures. Rewinds and reads the whole input.
[[nodiscard]] TokenFigures token_figures(RoutingInput& input, std::int64_t num_gpus,
                                         std::int64_t num_nodes);

}  // namespace moe::routing
