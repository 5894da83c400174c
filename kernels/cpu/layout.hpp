#pragma once

// Offsets inside a packed panel (kernels/api.hpp has the picture). Everything has internal linkage
// because files of every instruction-set level include this header.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"

namespace moe::kernels {
namespace {

inline constexpr std::int64_t kFp8ScaleBytes = kPanelRows * 4;
inline constexpr std::int64_t kMxfp4GroupBytes = kPanelRows + kMxfp4Group / 2 * kPanelRows;

// Byte offset of fp8 block `block` in a panel whose blocks are `block_cols` columns wide.
[[nodiscard]] constexpr inline std::int64_t fp8_block_offset(std::int64_t block,
                                                             std::int64_t block_cols) noexcept {
  return block * (kFp8ScaleBytes + block_cols * kPanelRows);
}

[[nodiscard]] constexpr inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return (a + b - 1) / b;
}

}  // namespace
}  // namespace moe::kernels
