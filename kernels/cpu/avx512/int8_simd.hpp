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
  // Columns 0 to 3 (half 0) or 4 to 7 of eight 4-bit codes.
  template <int half>
  [[gnu::always_inline]] static Dot load_u4_fours(const std::byte* at) noexcept {
    const __m512i codes = _mm512_loadu_si512(at);
    return {
        _mm512_and_si512(half == 0 ? codes : _mm512_srli_epi16(codes, 4), _mm512_set1_epi8(0x0f))};
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
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(out)),
                        _mm256_cvtepi8_epi16(_mm_shuffle_epi8(load_codes(codes), order)));
  }
  template <int dot>
  [[gnu::always_inline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    const __m512i codes = _mm512_loadu_si512(at);
    return {_mm512_srai_epi16(dot == 0 ? _mm512_slli_epi16(codes, 8) : codes, 8)};
  }
  template <int dot>
  [[gnu::always_inline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    constexpr int kShift = 8 * (dot % 2) + 4 * (dot / 2);
    const __m512i codes = _mm512_srli_epi16(_mm512_loadu_si512(at), kShift);
    return {kShift == 12 ? codes : _mm512_and_si512(codes, _mm512_set1_epi16(0x0f))};
  }
  [[gnu::always_inline]] static I dot(I sum, Dot w, Dot x) noexcept {
    return {add_dwords(sum.lanes, _mm512_madd_epi16(w.lanes, x.lanes))};
  }

 private:
  // See kernels/cpu/avx2/int8_simd.hpp.
  [[gnu::always_inline]] static __m512i add_dwords(__m512i a, __m512i b) noexcept {
    __asm__("vpaddd %1, %0, %0" : "+v"(a) : "v"(b));
    return a;
  }
};

}  // namespace
}  // namespace moe::kernels
