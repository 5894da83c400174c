#pragma once

// Turns one row of logits into a token.

#include <cstdint>
#include <span>

#include "lib/base/rng.hpp"

namespace moe::engine {

struct SamplingOptions {
  double temperature = 0.0;  // 0: greedy; ties go to the lower id
  std::int32_t top_k = 0;    // 0: all
  double top_p = 1.0;        // smallest set of tokens whose probability reaches top_p
  std::uint64_t seed = 0;
};

[[nodiscard]] std::int32_t argmax(std::span<const float> logits);

// Filters in the order temperature, top-k, top-p, then draws one uniform number from `rng` (none
// when greedy).
[[nodiscard]] std::int32_t sample(std::span<const float> logits, const SamplingOptions& options,
                                  Rng& rng);

}  // namespace moe::engine
