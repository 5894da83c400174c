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

 protected:
  [[gnu::always_inline]] static __m128i load_codes(const void* at) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
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
