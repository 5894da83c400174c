#pragma once

// Integers for int8 activations without VNNI: see kernels/cpu/avx2/int8_simd.hpp, here in one
// register.

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/avx512/simd.hpp"

namespace moe::kernels {
namespace {

struct Avx512Integers : Avx512 {
  struct I {
    __m512i lanes;
  };
  using Dot = I;

  [[gnu::always_inline]] static I broadcast_int(std::int32_t value) noexcept {
    return {_mm512_set1_epi32(value)};
  }
  [[gnu::always_inline]] static I load_int(const std::int32_t* at) noexcept {
    return {_mm512_loadu_si512(at)};
  }
  [[gnu::always_inline]] static void store_int(std::int32_t* at, I a) noexcept {
    _mm512_storeu_si512(at, a.lanes);
  }
  [[gnu::always_inline]] static I add_int(I a, I b) noexcept {
    return {_mm512_add_epi32(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static I max_int(I a, I b) noexcept {
    return {_mm512_max_epi32(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static I sub_product(I a, I b, I c) noexcept {
    return {_mm512_sub_epi32(a.lanes, _mm512_mullo_epi32(b.lanes, c.lanes))};
  }
  [[gnu::always_inline]] static std::int32_t reduce_add_int(I a) noexcept {
    return _mm512_reduce_add_epi32(a.lanes);
  }
  [[gnu::always_inline]] static std::int32_t reduce_max_int(I a) noexcept {
    return _mm512_reduce_max_epi32(a.lanes);
  }
  [[gnu::always_inline]] static I magnitude_bits(V a) noexcept {
    return {_mm512_and_si512(_mm512_castps_si512(a.lanes), _mm512_set1_epi32(0x7fffffff))};
  }
  [[gnu::always_inline]] static I to_int(V a) noexcept { return {_mm512_cvtps_epi32(a.lanes)}; }
  [[gnu::always_inline]] static V to_float(I a) noexcept { return {_mm512_cvtepi32_ps(a.lanes)}; }
  [[gnu::always_inline]] static void store_codes(std::int8_t* at, I a) noexcept {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(at)), _mm512_cvtepi32_epi8(a.lanes));
  }
  [[gnu::always_inline]] static I load_i8_int(const std::byte* at) noexcept {
    return {_mm512_cvtepi8_epi32(load_codes(at))};
  }
  [[gnu::always_inline]] static Dot load_dot(const std::byte* at) noexcept {
    return {_mm512_loadu_si512(at)};
  }
  [[gnu::always_inline]] static void store_dot(std::byte* at, Dot a) noexcept {
    _mm512_storeu_si512(at, a.lanes);
  }
  // The same four bytes in every lane.
  [[gnu::always_inline]] static Dot broadcast_dot(const void* at) noexcept {
    int group = 0;
    __builtin_memcpy(&group, at, sizeof(group));
    return {_mm512_set1_epi32(group)};
  }
  // Four columns of 16 signed bytes, those of an output side by side.
  [[gnu::always_inline]] static Dot load_i8_fours(const std::byte* at) noexcept {
    return {turn(_mm512_loadu_si512(at), 0x0c080400)};
  }
  // Two times 16 bytes of two 4-bit codes: the low halves are columns 0 and 2, the high ones 1, 3.
  [[gnu::always_inline]] static Dot load_u4_fours(const std::byte* at) noexcept {
    const __m256i codes =
        _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(at)));
    const __m256i mask = _mm256_set1_epi8(0x0f);
    const __m256i even = _mm256_and_si256(codes, mask);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask);
    return {turn(_mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1), 0x0c040800)};
  }

 protected:
  [[gnu::always_inline]] static __m128i load_codes(const void* at) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
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

struct Avx512Int8 : Avx512Integers {
  using DotElement = std::int16_t;
  static constexpr std::int64_t kDotCols = 2;
  static constexpr std::int32_t kCodeBase = 0;

  [[gnu::always_inline]] static void widen_codes(const std::int8_t* codes,
                                                 DotElement* out) noexcept {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(out)),
                        _mm256_cvtepi8_epi16(load_codes(codes)));
  }
  [[gnu::always_inline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    return {_mm512_cvtepi8_epi16(pairs_of(load_codes(at), load_codes(at + 16)))};
  }
  [[gnu::always_inline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    const __m128i codes = load_codes(at);
    const __m128i mask = _mm_set1_epi8(0x0f);
    return {_mm512_cvtepu8_epi16(
        pairs_of(_mm_and_si128(codes, mask), _mm_and_si128(_mm_srli_epi16(codes, 4), mask)))};
  }
  [[gnu::always_inline]] static I dot(I sum, Dot w, Dot x) noexcept {
    return {_mm512_add_epi32(sum.lanes, _mm512_madd_epi16(w.lanes, x.lanes))};
  }

 private:
  // Bytes of the two by turns.
  [[gnu::always_inline]] static __m256i pairs_of(__m128i even, __m128i odd) noexcept {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(even, odd)),
                                   _mm_unpackhi_epi8(even, odd), 1);
  }
};

}  // namespace
}  // namespace moe::kernels
