#pragma once

// Block sizes of the vector attention kernel and the scratch that follows from them. Internal
// linkage: files of every instruction-set level include this header.

#include <cstdint>

namespace moe::kernels {
namespace {

// Keys are taken in blocks that begin at multiples of kAttentionKeys, whatever the query, so that a
// query's result does not depend on which other queries are in the call.
inline constexpr std::int64_t kAttentionKeys = 64;
// (query, head) pairs that share one pass over the keys.
inline constexpr std::int64_t kAttentionRows = 48;

[[nodiscard]] constexpr inline std::int64_t attention_padded_dim(std::int64_t v_dim) noexcept {
  return (v_dim + 15) / 16 * 16;
}

// Logits [rows][keys], weighted values [rows][padded v_dim], and per row the running maximum and
// denominator.
[[nodiscard]] constexpr inline std::int64_t attention_block_floats(std::int64_t v_dim) noexcept {
  return kAttentionRows * (kAttentionKeys + attention_padded_dim(v_dim) + 2);
}

}  // namespace
}  // namespace moe::kernels
