#pragma once

// What unpacking into tiles asks of a vector type, beyond the operations of AVX-512.

#include <cstddef>

#include <immintrin.h>

#include "kernels/cpu/avx512/simd.hpp"

namespace moe::kernels {
namespace {

struct AmxVectors : Avx512 {
  // Values that bf16 holds exactly, those of two columns side by side: 64 bytes.
  [[gnu::always_inline]] static void store_pairs(std::byte* at, V even, V odd) noexcept {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even.lanes), 16);
    const __m512i high = _mm512_castps_si512(odd.lanes);
    // high half of the lanes from `high`, low half from `low`
    const __m512i mask = _mm512_set1_epi32(-65536);
    _mm512_storeu_si512(at, _mm512_ternarylogic_epi32(mask, high, low, 0xca));
  }
  // code + shift of columns 2 * pair and 2 * pair + 1 of eight 4-bit codes. The table has every
  // value twice: see u4_pair_indices().
  template <int shift, int pair>
  [[gnu::always_inline]] static void store_u4_pairs(std::byte* at,
                                                    const std::byte* codes) noexcept {
    _mm512_storeu_si512(
        at, _mm512_permutexvar_epi16(u4_pair_indices<pair>(codes), bf16_table<shift>()));
  }

 private:
  // bf16 of i + shift at word i.
  template <int shift>
  [[gnu::always_inline]] static __m512i bf16_table() noexcept {
    const __m512i numbers = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 values = _mm512_cvtepi32_ps(_mm512_add_epi32(numbers, _mm512_set1_epi32(shift)));
    const __m256i words = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(values), 16));
    return _mm512_broadcast_i64x4(words);
  }
};

}  // namespace
}  // namespace moe::kernels
