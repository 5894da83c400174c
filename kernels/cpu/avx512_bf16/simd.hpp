#pragma once

// What AVX-512 BF16 adds: the dot product of pairs of bf16.

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/avx512/simd.hpp"

namespace moe::kernels {
namespace {

struct Avx512Bf16 : Avx512 {
  struct Pairs {
    __m512i lanes;
  };

  [[gnu::always_inline]] static Pairs load_pairs(const std::byte* at) noexcept {
    return {_mm512_loadu_si512(at)};
  }
  // The same two elements in every lane.
  [[gnu::always_inline]] static Pairs broadcast_pair(const std::uint16_t* at) noexcept {
    int pair = 0;
    __builtin_memcpy(&pair, at, sizeof(pair));
    return {_mm512_set1_epi32(pair)};
  }
  [[gnu::always_inline]] static Pairs broadcast_pair_with_zero(std::uint16_t even) noexcept {
    return {_mm512_set1_epi32(even)};
  }
  // sum + a.even * b.even + a.odd * b.odd in every lane.
  [[gnu::always_inline]] static V dot_bf16(Pairs a, Pairs b, V sum) noexcept {
    return {_mm512_dpbf16_ps(sum.lanes, __builtin_bit_cast(__m512bh, a.lanes),
                             __builtin_bit_cast(__m512bh, b.lanes))};
  }
};

}  // namespace
}  // namespace moe::kernels
