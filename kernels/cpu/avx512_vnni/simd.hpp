#pragma once

// What VNNI adds: products of four neighbouring columns, unsigned times signed (vpdpbusd), with
// sums modulo 2^32. The weights are the unsigned ones: int8 codes plus 128, which the sum of the
// activations takes back.

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/avx512/int8_simd.hpp"

namespace moe::kernels {
namespace {

struct Avx512Vnni : Avx512Integers {
  using DotElement = std::int8_t;
  static constexpr std::int64_t kDotCols = 4;
  static constexpr std::int32_t kCodeBase = 128;

  template <int>
  [[gnu::always_inline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    return {_mm512_xor_si512(load_dot(at).lanes, _mm512_set1_epi8(-128))};
  }
  template <int dot>
  [[gnu::always_inline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    return load_u4_fours<dot>(at);
  }
  [[gnu::always_inline]] static I dot(I sum, Dot w, Dot x) noexcept {
    return {_mm512_dpbusd_epi32(sum.lanes, w.lanes, x.lanes)};
  }
};

}  // namespace
}  // namespace moe::kernels
