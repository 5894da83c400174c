#pragma once

// How the formats with scales keep codes, scales and offsets, as vectors of a level; see
// kernels/cpu/layout.hpp.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

template <class S>
struct Fp8Codes {
  using Product = E4m3Product<S>;
  static constexpr int kStageRows = S::kStageFp8Rows;
  static constexpr bool kMayHaveOffsets = false;

  static std::int64_t block_cols(const PackedMatrix& weight) noexcept { return weight.block_cols; }
  static BlockLayout layout(const PackedMatrix& weight) noexcept {
    return {.block_bytes = fp8_block_offset(1, weight.block_cols)};
  }
  static std::int64_t header_bytes(const PackedMatrix&) noexcept { return kFp8ScaleBytes; }
  // Makes up for the codes being loaded divided by 256.
  [[gnu::always_inline]] static typename S::V scale(const PackedMatrix&,
                                                    const BlockPlace& at) noexcept {
    return S::mul(S::load(static_cast<const float*>(static_cast<const void*>(at.header))),
                  S::broadcast(256.0F));
  }
};

template <class S>
struct Mxfp4Codes {
  using Product = E2m1Product<S>;
  static constexpr int kStageRows = S::kStageMxfp4Rows;
  static constexpr bool kMayHaveOffsets = false;

  static std::int64_t block_cols(const PackedMatrix&) noexcept { return kMxfp4Group; }
  static BlockLayout layout(const PackedMatrix&) noexcept {
    return {.block_bytes = kMxfp4GroupBytes};
  }
  static std::int64_t header_bytes(const PackedMatrix&) noexcept { return kPanelRows; }
  [[gnu::always_inline]] static typename S::V scale(const PackedMatrix&,
                                                    const BlockPlace& at) noexcept {
    return S::load_e8m0(at.header);
  }
};

template <class S, class CodeProduct, int stage_rows>
struct IntCodes {
  using V = typename S::V;
  using Product = CodeProduct;
  static constexpr int kStageRows = stage_rows;
  static constexpr bool kMayHaveOffsets = true;

  static std::int64_t block_cols(const PackedMatrix& weight) noexcept { return weight.block_cols; }
  static BlockLayout layout(const PackedMatrix& weight) noexcept {
    return int_block_layout(weight.format, weight.block_cols, weight.block);
  }
  static std::int64_t header_bytes(const PackedMatrix& weight) noexcept {
    return block_header_bytes(weight.block);
  }
  static bool has_offsets(const PackedMatrix& weight) noexcept {
    return weight.format == WeightFormat::kInt4 || weight.block.offset != OffsetKind::kCentred;
  }
  [[gnu::always_inline]] static V scale(const PackedMatrix& weight, const BlockPlace& at) noexcept {
    const void* const header = at.header;
    switch (weight.block.scale) {
      case ScaleFormat::kF16:
        return S::load_f16(at.header);
      case ScaleFormat::kBf16:
        return S::load_bf16(static_cast<const std::uint16_t*>(header));
      case ScaleFormat::kTwoLevel:
        return S::mul(S::load_f16(at.supers), S::load_i8(at.header));
      case ScaleFormat::kF32:
        break;
    }
    return S::load(static_cast<const float*>(header));
  }
  // What the sum of the activations is multiplied by; `at` as for scale().
  [[gnu::always_inline]] static V offset(const PackedMatrix& weight, const BlockPlace& at,
                                         V scale) noexcept {
    const std::byte* const offsets = at.header + scales_bytes(weight.block);
    switch (weight.block.offset) {
      case OffsetKind::kCentred:
        return S::mul(S::broadcast(-8.0F), scale);
      case OffsetKind::kZeroPoints:
        return S::mul(S::sub(S::broadcast(0.0F), S::load_i8(offsets)), scale);
      case OffsetKind::kTwoLevel:
        return S::mul(S::sub(S::broadcast(0.0F), S::load_i8(offsets)),
                      S::load_f16(at.supers + 2 * kPanelRows));
    }
    return S::broadcast(0.0F);
  }
};

template <class S>
using Int8Codes = IntCodes<S, Int8Product<S>, S::kStageInt8Rows>;
template <class S>
using Int4Codes = IntCodes<S, Int4Product<S>, S::kStageInt4Rows>;

}  // namespace moe::kernels::simd
