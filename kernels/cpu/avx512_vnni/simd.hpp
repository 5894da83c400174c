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

  // Four columns of 16 signed bytes.
  [[gnu::always_inline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    const __m512i quads = turn(_mm512_loadu_si512(at), 0x0c080400);
    return {_mm512_xor_si512(quads, _mm512_set1_epi8(-128))};
  }
  // Two times 16 bytes of two 4-bit codes: the low halves are columns 0 and 2, the high ones 1, 3.
  [[gnu::always_inline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    const __m256i codes =
        _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(at)));
    const __m256i mask = _mm256_set1_epi8(0x0f);
    const __m256i even = _mm256_and_si256(codes, mask);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask);
    return {turn(_mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1), 0x0c040800)};
  }
  [[gnu::always_inline]] static I dot(I sum, Dot w, Dot x) noexcept {
    return {_mm512_dpbusd_epi32(sum.lanes, w.lanes, x.lanes)};
  }

 private:
  // Four columns of 16 bytes become 16 groups of four; bytes of `first` say where in 16 bytes,
  // four outputs of each column, the columns of the first output stand.
  [[gnu::always_inline]] static __m512i turn(__m512i columns, std::int32_t first) noexcept {
    const __m512i quarters =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i of_lane =
        _mm_add_epi32(_mm_set1_epi32(first), _mm_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303));
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(quarters, columns),
                               _mm512_broadcast_i32x4(of_lane));
  }
};

}  // namespace
}  // namespace moe::kernels
