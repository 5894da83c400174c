#pragma once

// What AVX-512 BF16 adds: the dot product of pairs of bf16, and codes unpacked to such pairs.

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

  using Avx512::store;
  [[gnu::always_inline]] static void store(float* at, Pairs a) noexcept {
    _mm512_storeu_si512(at, a.lanes);
  }
  // Values of two columns that bf16 holds exactly.
  [[gnu::always_inline]] static Pairs to_pairs(V even, V odd) noexcept {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even.lanes), 16);
    return {_mm512_mask_blend_epi16(0xaaaaaaaaU, low, _mm512_castps_si512(odd.lanes))};
  }
  // Columns 2 * pair and 2 * pair + 1 of four int8 codes.
  template <int pair>
  [[gnu::always_inline]] static Pairs load_i8_pairs(const std::byte* at) noexcept {
    const __m512i codes = biased_codes(at);
    const __m512i even = _mm512_castps_si512(biased_value<2 * pair>(codes).lanes);
    const __m512i odd = _mm512_castps_si512(biased_value<2 * pair + 1>(codes).lanes);
    return {_mm512_mask_shuffle_epi8(odd, 0x3333333333333333U, even, by_output(0x03020302))};
  }
  // Columns 2 * pair and 2 * pair + 1 of eight 4-bit codes. The permutation of words takes five
  // bits of an index; the table has every value twice, for the fifth belongs to another code.
  template <int pair>
  [[gnu::always_inline]] static Pairs load_u4_pairs(const std::byte* at) noexcept {
    return {_mm512_permutexvar_epi16(u4_pair_indices<pair>(at), u4_table())};
  }
  [[gnu::always_inline]] static Pairs load_e2m1_pairs(const std::byte* at) noexcept {
    return {_mm512_permutexvar_epi16(spread_codes(at), e2m1_bf16_table())};
  }

 private:
  // A code in the low four bits of every word. The permutation of words takes five bits.
  [[gnu::always_inline]] static __m512i spread_codes(const std::byte* at) noexcept {
    const __m512i codes = _mm512_cvtepu8_epi32(
        _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(at))));
    const __m512i both = _mm512_or_si512(codes, _mm512_slli_epi32(codes, 12));
    return _mm512_and_si512(both, _mm512_set1_epi32(0x000f000f));
  }
  // bf16 of the values of codes 0 to 15, two of them in an element.
  [[gnu::always_inline]] static __m512i u4_table() noexcept {
    return _mm512_broadcast_i64x4(_mm256_setr_epi32(0x3f800000, 0x40404000, 0x40a04080, 0x40e040c0,
                                                    0x41104100, 0x41304120, 0x41504140,
                                                    0x41704160));
  }
  [[gnu::always_inline]] static __m512i e2m1_bf16_table() noexcept {
    const auto word = [](std::uint32_t pair) { return static_cast<int>(pair); };
    return _mm512_setr_epi32(word(0x3f000000U), word(0x3fc03f80U), word(0x40404000U),
                             word(0x40c04080U), word(0xbf008000U), word(0xbfc0bf80U),
                             word(0xc040c000U), word(0xc0c0c080U), 0, 0, 0, 0, 0, 0, 0, 0);
  }
};

}  // namespace
}  // namespace moe::kernels
