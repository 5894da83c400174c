#pragma once

// Packed weights as tiles, over the vector type S of a level. bf16 panels are tiles as they stand.
// The other formats are unpacked to bf16, which holds each of their codes exactly:
//   int8   -128 .. 127, less a zero point: up to 255 in magnitude, and bf16 has 8 bits
//   int4   0 .. 15, -8 .. 7, less a zero point
//   fp8    e4m3 / 256 (the scale makes up for it): 4 bits, normal in bf16
//   mxfp4  times its scale, a power of two; magnitudes that are not normal in f32 count as zero or
//          infinite
// so that only the sum over a scale block, in f32, meets the scale. For int8 activations codes stay
// what they are, in fours of columns; zero points and scales are applied to the integer sums.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx/blocking.hpp"
#include "kernels/cpu/amx/rows.hpp"
#include "kernels/cpu/simd/block_codes.hpp"

namespace moe::kernels::amx {

template <class S>
struct Bf16Weights {
  using Rows = SourceRows;
  static constexpr bool kIsInt8 = false;
  static constexpr std::int64_t kCols = kStepCols;
  static constexpr bool kIsDirect = true;
  static constexpr bool kHasScales = false;

  static std::int64_t step_block_cols(const PackedMatrix& weight) noexcept { return weight.cols; }
};

// The values of `num_cols` columns of a block, in pairs; zeros up to 32. value(col) makes a vector
// of a column's 16 outputs.
template <class S, class Value>
[[gnu::always_inline]] inline void unpack_columns(std::int64_t num_cols, std::byte* out,
                                                  Value value) noexcept {
  const auto zero = S::broadcast(0.0F);
  std::int64_t col = 0;
  for (; col + 2 <= num_cols; col += 2) {
    S::store_pairs(out, value(col), value(col + 1));
    out += kRowBytes;
  }
  if (col < num_cols) {
    S::store_pairs(out, value(col), zero);
    out += kRowBytes;
    col += 2;
  }
  for (; col < kStepCols; col += 2) {
    S::store_pairs(out, zero, zero);
    out += kRowBytes;
  }
}

// Codes of pairs in a byte: pair_value(pair) stores one.
template <class S, class StorePair>
[[gnu::always_inline]] inline void unpack_pairs(std::int64_t num_cols, std::byte* out,
                                                StorePair store_pair) noexcept {
  const auto zero = S::broadcast(0.0F);
  const std::int64_t num_pairs = (num_cols + 1) / 2;
  for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
    store_pair(out + pair * kRowBytes, pair);
  }
  for (std::int64_t pair = num_pairs; pair < kStepCols / 2; ++pair) {
    S::store_pairs(out + pair * kRowBytes, zero, zero);
  }
}

// Where a step lies in a panel.
struct StepCodes {
  BlockPlace block;        // its scale block
  const std::byte* codes;  // of its first column
  std::int64_t num_cols;
};

template <class S>
struct Mxfp4Weights {
  using Codes = simd::Mxfp4Codes<S>;
  using Rows = SourceRows;
  static constexpr bool kIsInt8 = false;
  static constexpr std::int64_t kCols = kStepCols;
  static constexpr bool kIsDirect = false;
  static constexpr bool kHasScales = false;
  static constexpr bool kMayHaveOffsets = false;
  static constexpr std::int64_t kCodesPerByte = 2;

  // A step is a scale block.
  static std::int64_t step_block_cols(const PackedMatrix&) noexcept { return kStepCols; }
  static void unpack(const PackedMatrix& weight, const StepCodes& in, std::byte* out) noexcept {
    const auto scale = Codes::scale(weight, in.block);
    unpack_pairs<S>(in.num_cols, out, [&](std::byte* at, std::int64_t pair) {
      const std::byte* codes = in.codes + pair * kPanelRows;
      S::store_pairs(at, S::mul(S::load_e2m1_low(codes), scale),
                     S::mul(S::load_e2m1_high(codes), scale));
    });
  }
};
static_assert(kMxfp4Group == kStepCols);

template <class S>
struct Fp8Weights {
  using Codes = simd::Fp8Codes<S>;
  using Rows = SourceRows;
  static constexpr bool kIsInt8 = false;
  static constexpr std::int64_t kCols = kStepCols;
  static constexpr bool kIsDirect = false;
  static constexpr bool kHasScales = true;
  static constexpr bool kMayHaveOffsets = false;
  static constexpr std::int64_t kCodesPerByte = 1;

  static std::int64_t step_block_cols(const PackedMatrix& weight) noexcept {
    return weight.block_cols;
  }
  static void unpack(const PackedMatrix&, const StepCodes& in, std::byte* out) noexcept {
    unpack_columns<S>(in.num_cols, out, [&](std::int64_t col) {
      return S::load_e4m3_div256(in.codes + col * kPanelRows);
    });
  }
};

template <class S>
struct Int8Weights {
  using Codes = simd::Int8Codes<S>;
  using Rows = SourceRows;
  static constexpr bool kIsInt8 = false;
  static constexpr std::int64_t kCols = kStepCols;
  static constexpr bool kIsDirect = false;
  static constexpr bool kHasScales = true;
  static constexpr bool kMayHaveOffsets = true;
  static constexpr std::int64_t kCodesPerByte = 1;

  static std::int64_t step_block_cols(const PackedMatrix& weight) noexcept {
    return weight.block_cols;
  }
  static void unpack(const PackedMatrix& weight, const StepCodes& in, std::byte* out) noexcept {
    if (weight.block.offset == OffsetKind::kZeroPoints) {
      const auto zero = S::load_i8(in.block.header + scales_bytes(weight.block));
      unpack_columns<S>(in.num_cols, out,
                        [&](std::int64_t col) { return S::sub(code(in, col), zero); });
      return;
    }
    unpack_columns<S>(in.num_cols, out, [&](std::int64_t col) { return code(in, col); });
  }

 private:
  using Product = simd::Int8Product<S>;

  [[gnu::always_inline]] static typename S::V code(const StepCodes& in, std::int64_t col) noexcept {
    return Product::weight(in.codes + col / Product::kColumns * Product::kStepBytes,
                           static_cast<int>(col % Product::kColumns), S::spare_registers(0, 0));
  }
};

template <class S>
struct Int4Weights {
  using Codes = simd::Int4Codes<S>;
  using Rows = SourceRows;
  static constexpr bool kIsInt8 = false;
  static constexpr std::int64_t kCols = kStepCols;
  static constexpr bool kIsDirect = false;
  static constexpr bool kHasScales = true;
  static constexpr bool kMayHaveOffsets = true;
  static constexpr std::int64_t kCodesPerByte = 2;

  static std::int64_t step_block_cols(const PackedMatrix& weight) noexcept {
    return weight.block_cols;
  }
  static void unpack(const PackedMatrix& weight, const StepCodes& in, std::byte* out) noexcept {
    switch (weight.block.offset) {
      case OffsetKind::kCentred:
        return unpack_code_pairs(in, out, [&]<int pair>(std::byte* at, const std::byte* codes) {
          S::template store_u4_pairs<-8, pair>(at, codes);
        });
      case OffsetKind::kZeroPoints: {
        const auto zero = S::load_i8(in.block.header + scales_bytes(weight.block));
        return unpack_code_pairs(in, out, [&]<int pair>(std::byte* at, const std::byte* codes) {
          S::store_pairs(at, S::sub(S::template load_u4_col<2 * pair>(codes), zero),
                         S::sub(S::template load_u4_col<2 * pair + 1>(codes), zero));
        });
      }
      case OffsetKind::kTwoLevel:
        return unpack_code_pairs(in, out, [&]<int pair>(std::byte* at, const std::byte* codes) {
          S::template store_u4_pairs<0, pair>(at, codes);
        });
    }
  }

 private:
  // store.template operator()<pair>(out, codes) for pair `pair` of the group at `codes`.
  template <class Store>
  [[gnu::always_inline]] static void unpack_code_pairs(const StepCodes& in, std::byte* out,
                                                       Store store) noexcept {
    constexpr int kGroupPairs = static_cast<int>(code_group_cols(WeightFormat::kInt4) / 2);
    unpack_pairs<S>(in.num_cols, out, [&](std::byte* at, std::int64_t pair) {
      const std::byte* const codes = in.codes + pair / kGroupPairs * kCodeGroupBytes;
      simd::with_constant<kGroupPairs>(static_cast<int>(pair % kGroupPairs), [&]<int of_group>() {
        store.template operator()<of_group>(at, codes);
      });
    });
  }
};

// Codes of int8 activations' products, in fours of columns. store(four, out) stores one.
template <class Store>
[[gnu::always_inline]] inline void unpack_fours(std::int64_t num_cols, std::byte* out,
                                                Store store) noexcept {
  const std::int64_t num_fours = ceil_div(num_cols, kCodeBytes);
  for (std::int64_t four = 0; four < num_fours; ++four) {
    store(four, out + four * kRowBytes);
  }
  for (std::int64_t four = num_fours; four < kInt8StepCols / kCodeBytes; ++four) {
    __builtin_memset(out + four * kRowBytes, 0, kRowBytes);
  }
}

template <class S>
struct Int8TileCodes {
  using Codes = simd::Int8Codes<S>;
  using Rows = Int8SourceRows;
  static constexpr bool kIsInt8 = true;
  static constexpr std::int64_t kCols = kInt8StepCols;
  static constexpr bool kIsDirect = false;
  static constexpr bool kHasScales = true;
  static constexpr bool kMayHaveOffsets = false;  // those of bf16 sums
  static constexpr std::int64_t kCodesPerByte = 1;

  static std::int64_t step_block_cols(const PackedMatrix& weight) noexcept {
    return activation_block_cols(weight.cols, weight.block_cols);
  }
  static void unpack(const PackedMatrix&, const StepCodes& in, std::byte* out) noexcept {
    unpack_fours(in.num_cols, out, [&](std::int64_t four, std::byte* to) {
      S::store_dot(to, S::load_dot(in.codes + four * kCodeGroupBytes));
    });
  }
};

template <class S>
struct Int4TileCodes : Int8TileCodes<S> {
  using Codes = simd::Int4Codes<S>;
  static constexpr std::int64_t kCodesPerByte = 2;

  static void unpack(const PackedMatrix&, const StepCodes& in, std::byte* out) noexcept {
    unpack_fours(in.num_cols, out, [&](std::int64_t four, std::byte* to) {
      const std::byte* const codes = in.codes + four / 2 * kCodeGroupBytes;
      simd::with_constant<2>(static_cast<int>(four % 2), [&]<int half>() {
        S::store_dot(to, S::template load_u4_fours<half>(codes));
      });
    });
  }
};

}  // namespace moe::kernels::amx
