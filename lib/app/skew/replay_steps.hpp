#pragma once

// Steps to time a placement by: the recorded windows, or steps drawn from the recorded shares where
// the input has no steps of its own.

#include <cstdint>
#include <vector>

#include "lib/app/skew/skew_placement.hpp"

namespace moe::app {

struct Step {
  double num_tokens = 0.0;
  std::vector<double> counts;  // [layers, experts], copies
};

// Every window with load.
[[nodiscard]] std::vector<Step> recorded_steps(const LoadedTrace& trace, std::int64_t top_k);

// Independent Poisson counts around the recorded shares: what batches of so many tokens look like
// when tokens are routed independently. Recorded traffic is burstier.
[[nodiscard]] std::vector<Step> drawn_steps(const LoadedTrace& trace, std::int64_t top_k,
                                            std::int64_t tokens_per_step, std::int64_t num_steps,
                                            std::uint64_t seed);

}  // namespace moe::app
