#pragma once

// Rotary position embedding: the angles of every variant, and the rotation. Formulas: Su et al.
// 2021 (arXiv 2104.09864), linear interpolation (2306.15595), YaRN (2309.00071), LongRoPE
// (2402.13753), and the band rule of Llama 3.1.

#include <cstdint>
#include <vector>

#include "lib/model/config.hpp"

namespace moe::engine {

// LongRoPE has two sets of frequencies. One of them holds for a whole forward pass of a sequence:
// the long one when the largest position + 1 exceeds original_max_position_embeddings.
enum class RopeMode : std::uint8_t { kShort, kLong };

[[nodiscard]] RopeMode rope_mode(const model::RopeConfig& config, std::int64_t sequence_length);

struct RopeTable {
  std::vector<double> inverse_frequencies;  // [dim / 2]: angle per position
  double scaling = 1.0;                     // multiplies cos and sin
};

[[nodiscard]] RopeTable make_rope_table(const model::RopeConfig& config, RopeMode mode);

// Cosine and sine of one position, times the scaling, in f32: [dim / 2] each.
void rope_angles(const RopeTable& table, std::int64_t position, float* cosines, float* sines);

// Rotates the first 2 * half_dim elements of `x` in place.
void rotate(model::RopeStyle style, std::int64_t half_dim, const float* cosines, const float* sines,
            float* x);

}  // namespace moe::engine
