#pragma once

// Integers for int8 activations: see kernels/cpu/simd/int8_sums.hpp. Codes are widened to 16 bits
// and multiplied in pairs (vpmaddwd), which is exact: the product of 8-bit numbers is not (the
// sums of vpmaddubsw saturate at 16 bits), unless the sign is moved between the factors, which
// costs as much as the wider product saves. Codes of 4 bits are small enough for it.

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/avx2/simd.hpp"

namespace moe::kernels {
namespace {

struct Avx2Int8 : Avx2 {
  struct I {
    __m256i lo;
    __m256i hi;
  };
  using Dot = I;  // pairs of columns, those of outputs 0 to 7 and 8 to 15
  using DotElement = std::int16_t;
  static constexpr std::int64_t kDotCols = 2;
  static constexpr std::int32_t kCodeBase = 0;

  [[gnu::always_inline]] static I broadcast_int(std::int32_t value) noexcept {
    const __m256i all = _mm256_set1_epi32(value);
    return {all, all};
  }
  [[gnu::always_inline]] static I load_int(const std::int32_t* at) noexcept {
    return {load_all(at), load_all(at + 8)};
  }
  [[gnu::always_inline]] static void store_int(std::int32_t* at, I a) noexcept {
    store_all(at, a.lo);
    store_all(at + 8, a.hi);
  }
  [[gnu::always_inline]] static I add_int(I a, I b) noexcept {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static I max_int(I a, I b) noexcept {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  // a - b * c, modulo 2^32.
  [[gnu::always_inline]] static I sub_product(I a, I b, I c) noexcept {
    return {_mm256_sub_epi32(a.lo, _mm256_mullo_epi32(b.lo, c.lo)),
            _mm256_sub_epi32(a.hi, _mm256_mullo_epi32(b.hi, c.hi))};
  }
  [[gnu::always_inline]] static std::int32_t reduce_add_int(I a) noexcept {
    const __m256i sum8 = _mm256_add_epi32(a.lo, a.hi);
    const __m128i sum4 =
        _mm_add_epi32(_mm256_castsi256_si128(sum8), _mm256_extracti128_si256(sum8, 1));
    const __m128i sum2 = _mm_add_epi32(sum4, _mm_unpackhi_epi64(sum4, sum4));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum2, _mm_shuffle_epi32(sum2, 1)));
  }
  [[gnu::always_inline]] static std::int32_t reduce_max_int(I a) noexcept {
    const __m256i max8 = _mm256_max_epi32(a.lo, a.hi);
    const __m128i max4 =
        _mm_max_epi32(_mm256_castsi256_si128(max8), _mm256_extracti128_si256(max8, 1));
    const __m128i max2 = _mm_max_epi32(max4, _mm_unpackhi_epi64(max4, max4));
    return _mm_cvtsi128_si32(_mm_max_epi32(max2, _mm_shuffle_epi32(max2, 1)));
  }
  // The bits of |a|.
  [[gnu::always_inline]] static I magnitude_bits(V a) noexcept {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(a.lo), mask),
            _mm256_and_si256(_mm256_castps_si256(a.hi), mask)};
  }
  // The nearest integer, ties to even.
  [[gnu::always_inline]] static I to_int(V a) noexcept {
    return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
  }
  [[gnu::always_inline]] static V to_float(I a) noexcept {
    return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
  }
  // Integers of 8 bits.
  [[gnu::always_inline]] static void store_codes(std::int8_t* at, I a) noexcept {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    _mm_storeu_si128(
        static_cast<__m128i*>(static_cast<void*>(at)),
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
  // 16 signed bytes.
  [[gnu::always_inline]] static I load_i8_int(const std::byte* at) noexcept {
    const __m128i codes = load_codes(at);
    return {_mm256_cvtepi8_epi32(codes), _mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8))};
  }

  // Codes of 16 activations, columns 0 and 2 of each four before 1 and 3.
  [[gnu::always_inline]] static void widen_codes(const std::int8_t* codes,
                                                 DotElement* out) noexcept {
    const __m128i order = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    store_all(out, _mm256_cvtepi8_epi16(_mm_shuffle_epi8(load_codes(codes), order)));
  }
  [[gnu::always_inline]] static Dot broadcast_dot(const DotElement* at) noexcept {
    int pair = 0;
    __builtin_memcpy(&pair, at, sizeof(pair));
    const __m256i all = _mm256_set1_epi32(pair);
    return {all, all};
  }
  // Columns 0 and 2 of four signed bytes, or 1 and 3.
  template <int dot>
  [[gnu::always_inline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    return {i8_pairs<dot>(load_all(at)), i8_pairs<dot>(load_all(at + 32))};
  }
  // No pair of products of an int8 with an activation leaves 2^15, no sum of them 32 bits.
  [[gnu::always_inline]] static I dot(I sum, Dot w, Dot x) noexcept {
    return {add_dwords(sum.lo, _mm256_madd_epi16(w.lo, x.lo)),
            add_dwords(sum.hi, _mm256_madd_epi16(w.hi, x.hi))};
  }

 protected:
  [[gnu::always_inline]] static __m128i load_codes(const void* at) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  }
  [[gnu::always_inline]] static __m256i load_all(const void* at) noexcept {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
  }
  [[gnu::always_inline]] static void store_all(void* at, __m256i a) noexcept {
    _mm256_storeu_si256(static_cast<__m256i*>(at), a);
  }

 private:
  // As an instruction: with the intrinsic, GCC 12 first adds what several dots give, which takes
  // more registers than there are beside the twelve sums of the largest tile.
  [[gnu::always_inline]] static __m256i add_dwords(__m256i a, __m256i b) noexcept {
    __asm__("vpaddd %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
  }
  template <int dot>
  [[gnu::always_inline]] static __m256i i8_pairs(__m256i codes) noexcept {
    return _mm256_srai_epi16(dot == 0 ? _mm256_slli_epi16(codes, 8) : codes, 8);
  }
};

// Of 4-bit codes: at most 15 in magnitude, so that two products with activations stay below 4000,
// vpmaddubsw does not saturate, and eight of its results can be added in 16 bits.
struct Avx2Int4 : Avx2Int8 {
  using DotElement = std::int8_t;
  static constexpr std::int64_t kDotCols = 4;
  static constexpr std::int64_t kNarrowDots = 8;

  [[gnu::always_inline]] static Dot broadcast_dot(const DotElement* at) noexcept {
    int four = 0;
    __builtin_memcpy(&four, at, sizeof(four));
    const __m256i all = _mm256_set1_epi32(four);
    return {all, all};
  }
  // Columns 0 to 3 of eight codes, or 4 to 7.
  template <int dot>
  [[gnu::always_inline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    return {fours<dot>(load_all(at)), fours<dot>(load_all(at + 32))};
  }
  // Sums of columns 0 and 1 beside those of 2 and 3, of 16 bits.
  [[gnu::always_inline]] static I dot(I sum, Dot w, Dot x) noexcept {
    return {add_words(sum.lo, _mm256_maddubs_epi16(w.lo, x.lo)),
            add_words(sum.hi, _mm256_maddubs_epi16(w.hi, x.hi))};
  }
  // The ones stay in memory: in a register they would push a sum out of the loop before.
  [[gnu::always_inline]] static I widen(I narrow) noexcept {
    const std::int16_t* at = kOnes;
    __asm__ volatile("" : "+r"(at));
    return {_mm256_madd_epi16(narrow.lo, load_all(at)), _mm256_madd_epi16(narrow.hi, load_all(at))};
  }

 private:
  template <int half>
  [[gnu::always_inline]] static __m256i fours(__m256i codes) noexcept {
    return _mm256_and_si256(half == 0 ? codes : _mm256_srli_epi16(codes, 4),
                            _mm256_set1_epi8(0x0f));
  }
  // As an instruction: with the intrinsic, GCC 12 keeps half of the twelve sums of the largest tile
  // on the stack.
  [[gnu::always_inline]] static __m256i add_words(__m256i a, __m256i b) noexcept {
    __asm__("vpaddw %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
  }

  alignas(32) static constexpr std::int16_t kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1,
                                                         1, 1, 1, 1, 1, 1, 1, 1};
};

}  // namespace
}  // namespace moe::kernels
