#pragma once

// Rows of activations as int8 codes, over a level's vector type S (int8_sums.hpp).

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/row_block.hpp"

namespace moe::kernels::simd {

template <class S>
[[gnu::always_inline]] inline typename S::V load_up_to_16(const float* at,
                                                          std::int64_t count) noexcept {
  return count >= 16 ? S::load(at) : S::load_partial(at, count);
}

// Magnitudes are compared as the integers that their bits are: these order all floats, with
// infinity and NaN above the finite ones.
template <class S>
[[gnu::always_inline]] inline std::int32_t largest_magnitude_bits(const float* x,
                                                                  std::int64_t count) noexcept {
  auto largest = S::broadcast_int(0);
  for (std::int64_t i = 0; i < count; i += 16) {
    largest = S::max_int(largest, S::magnitude_bits(load_up_to_16<S>(x + i, count - i)));
  }
  return S::reduce_max_int(largest);
}

// Writes the codes of `count` values and zeros up to a multiple of 4; returns their sum.
template <class S>
[[gnu::always_inline]] inline std::int32_t write_codes(const float* x, std::int64_t count,
                                                       float factor, std::int8_t* out) noexcept {
  auto sums = S::broadcast_int(0);
  const auto factors = S::broadcast(factor);
  for (std::int64_t i = 0; i < count; i += 16) {
    const auto codes = S::to_int(S::mul(load_up_to_16<S>(x + i, count - i), factors));
    sums = S::add_int(sums, codes);
    if (count - i >= 16) {
      S::store_codes(out + i, codes);
    } else {
      std::int8_t rest[16];
      S::store_codes(rest, codes);
      __builtin_memcpy(out + i, rest, static_cast<std::size_t>(padded_codes(count - i)));
    }
  }
  return S::reduce_add_int(sums);
}

template <class S>
void quantize_row(const QuantizeArgs& args) noexcept {
  constexpr std::int32_t kInfinityBits = 0x7f800000;
  const std::int64_t stride = padded_codes(args.block_cols);
  std::int64_t idx = 0;
  for (std::int64_t begin = 0; begin < args.cols; begin += args.block_cols) {
    const std::int64_t count = smaller(args.block_cols, args.cols - begin);
    const float* const x = args.x + begin;
    const std::int32_t bits = largest_magnitude_bits<S>(x, count);
    const float largest = __builtin_bit_cast(float, bits);
    const bool is_zero = bits >= kInfinityBits || largest < kLeastInt8Magnitude;
    args.scales[idx] = bits >= kInfinityBits ? __builtin_nanf("")
                       : is_zero             ? 0.0F
                                             : largest / 127.0F;
    if (is_zero) {
      args.sums[idx] = 0;
      __builtin_memset(args.codes + idx * stride, 0, static_cast<std::size_t>(padded_codes(count)));
    } else {
      args.sums[idx] = write_codes<S>(x, count, 127.0F / largest, args.codes + idx * stride);
    }
    ++idx;
  }
}

}  // namespace moe::kernels::simd
