#pragma once

// Sixteen f32 lanes in one AVX-512 register (F, BW, VL, DQ): the vector type under the templates of
// kernels/cpu/simd. See kernels/cpu/avx2/simd.hpp for what the functions mean. Internal linkage, as
// there.

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "kernels/cpu/avx512/shape.hpp"

namespace moe::kernels {
namespace {

struct Avx512 : Avx512Shape {
  struct V {
    __m512 lanes;
  };

  [[gnu::always_inline]] static V broadcast(float value) noexcept {
    return {_mm512_set1_ps(value)};
  }
  [[gnu::always_inline]] static V load(const float* at) noexcept { return {_mm512_loadu_ps(at)}; }
  [[gnu::always_inline]] static void store(float* at, V a) noexcept {
    _mm512_storeu_ps(at, a.lanes);
  }
  [[gnu::always_inline]] static V load_partial(const float* at, std::int64_t count) noexcept {
    return {_mm512_maskz_loadu_ps(lanes_below(count), at)};
  }
  [[gnu::always_inline]] static void store_partial(float* at, V a, std::int64_t count) noexcept {
    _mm512_mask_storeu_ps(at, lanes_below(count), a.lanes);
  }

  [[gnu::always_inline]] static V add(V a, V b) noexcept {
    return {_mm512_add_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V sub(V a, V b) noexcept {
    return {_mm512_sub_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V mul(V a, V b) noexcept {
    return {_mm512_mul_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V div(V a, V b) noexcept {
    return {_mm512_div_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V fma(V a, V b, V c) noexcept {
    return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)};
  }
  [[gnu::always_inline]] static V min(V a, V b) noexcept {
    return {_mm512_min_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V max(V a, V b) noexcept {
    return {_mm512_max_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V round(V a) noexcept {
    return {_mm512_roundscale_ps(a.lanes, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  [[gnu::always_inline]] static V scale_by_power(V a, V n) noexcept {
    return {_mm512_scalef_ps(a.lanes, n.lanes)};
  }
  [[gnu::always_inline]] static V zero_below(V x, V threshold, V value) noexcept {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.lanes, threshold.lanes, _CMP_NLT_UQ),
                                value.lanes)};
  }
  [[gnu::always_inline]] static V select_lanes(V a, std::int64_t begin, std::int64_t end,
                                               V fill) noexcept {
    const __mmask16 inside = _kandn_mask16(lanes_below(begin), lanes_below(end));
    return {_mm512_mask_blend_ps(inside, fill.lanes, a.lanes)};
  }
  [[gnu::always_inline]] static float first(V a) noexcept { return _mm512_cvtss_f32(a.lanes); }
  [[gnu::always_inline]] static float reduce_add(V a) noexcept {
    return _mm512_reduce_add_ps(a.lanes);
  }
  [[gnu::always_inline]] static float reduce_max(V a) noexcept {
    return _mm512_reduce_max_ps(a.lanes);
  }

  [[gnu::always_inline]] static V unpack_low(V a, V b) noexcept {
    return {_mm512_unpacklo_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V unpack_high(V a, V b) noexcept {
    return {_mm512_unpackhi_ps(a.lanes, b.lanes)};
  }
  [[gnu::always_inline]] static V unpack_low_pairs(V a, V b) noexcept {
    return {
        _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a.lanes), _mm512_castps_pd(b.lanes)))};
  }
  [[gnu::always_inline]] static V unpack_high_pairs(V a, V b) noexcept {
    return {
        _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a.lanes), _mm512_castps_pd(b.lanes)))};
  }
  template <int quarter>
  [[gnu::always_inline]] static void store_quarter(float* at, V a) noexcept {
    _mm_storeu_ps(at, _mm512_extractf32x4_ps(a.lanes, quarter));
  }

  [[gnu::always_inline]] static V load_f16(const std::byte* at) noexcept {
    return {_mm512_cvtph_ps(load32(at))};
  }
  [[gnu::always_inline]] static V load_bf16_even(const std::byte* at) noexcept {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(at), 16))};
  }
  [[gnu::always_inline]] static V load_bf16_odd(const std::byte* at, int spare) noexcept {
    const __m512i pairs = _mm512_loadu_si512(at);
    return {_mm512_castsi512_ps(spare > 8 ? _mm512_and_si512(pairs, _mm512_set1_epi32(-65536))
                                          : _mm512_slli_epi32(_mm512_srli_epi32(pairs, 16), 16))};
  }
  [[gnu::always_inline]] static V load_bf16(const std::uint16_t* at) noexcept {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(at)), 16))};
  }
  [[gnu::always_inline]] static V load_e4m3_div256(const std::byte* at) noexcept {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load16(at)), 7);
    return {_mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16(-0x4001)))};
  }
  // The permutation takes the low four bits of an index and ignores the others.
  [[gnu::always_inline]] static V load_e2m1_low(const std::byte* at) noexcept {
    return {_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(load16(at)), e2m1_table())};
  }
  [[gnu::always_inline]] static V load_e2m1_high(const std::byte* at) noexcept {
    const __m512i codes = _mm512_srli_epi32(_mm512_cvtepu8_epi32(load16(at)), 4);
    return {_mm512_permutexvar_ps(codes, e2m1_table())};
  }
  [[gnu::always_inline]] static V load_i8(const std::byte* at) noexcept {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(at)))};
  }
  template <int col>
  [[gnu::always_inline]] static V load_i8_col(const std::byte* at, int spare) noexcept {
    if (spare >= 24) {  // room for five constants and the codes of eight panels
      return biased_value<col>(biased_codes(at));
    }
    __m512i codes = _mm512_loadu_si512(at);
    if constexpr (col < 3) {
      codes = _mm512_slli_epi32(codes, 24 - 8 * col);
    }
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(codes, 24))};
  }
  template <int col>
  [[gnu::always_inline]] static V load_u4_col(const std::byte* at) noexcept {
    constexpr int kShift = 8 * (col % 4) + 4 * (col / 4);
    const __m512i codes = _mm512_srli_epi32(_mm512_loadu_si512(at), kShift);
    return {_mm512_cvtepi32_ps(kShift == 28 ? codes
                                            : _mm512_and_si512(codes, _mm512_set1_epi32(0x0f)))};
  }
  [[gnu::always_inline]] static V load_e8m0(const std::byte* at) noexcept {
    const __m512i codes = _mm512_cvtepu8_epi32(load16(at));
    const __mmask16 special = _kor_mask16(_mm512_cmpeq_epi32_mask(codes, _mm512_setzero_si512()),
                                          _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255)));
    const __m512i bits = _mm512_slli_epi32(codes, 23);
    return {_mm512_castsi512_ps(
        _mm512_mask_or_epi32(bits, special, bits, _mm512_set1_epi32(0x00400000)))};
  }
  // int8 codes + 128, and the code of column `col` of them: as the low byte of 2^23, less
  // 2^23 + 128. Two instructions, where widening the sign and converting take three.
  [[gnu::always_inline]] static __m512i biased_codes(const std::byte* at) noexcept {
    return _mm512_xor_si512(_mm512_loadu_si512(at), _mm512_set1_epi8(-128));
  }
  template <int col>
  [[gnu::always_inline]] static V biased_value(__m512i biased) noexcept {
    const __m512i wide = _mm512_mask_shuffle_epi8(
        _mm512_set1_epi32(0x4b000000), 0x1111111111111111U, biased, by_output(0x01010101 * col));
    return {_mm512_sub_ps(_mm512_castsi512_ps(wide), _mm512_set1_ps(8388736.0F))};
  }
  // The same places in the four bytes of every output, for a shuffle of bytes.
  [[gnu::always_inline]] static __m512i by_output(int places) noexcept {
    return _mm512_broadcast_i32x4(_mm_add_epi32(
        _mm_set1_epi32(places), _mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
  }
  // Columns 2 * pair and 2 * pair + 1 of eight 4-bit codes, each in the low four bits of a word;
  // the bits above are those of other codes.
  template <int pair>
  [[gnu::always_inline]] static __m512i u4_pair_indices(const std::byte* at) noexcept {
    constexpr int kFirst = 2 * (pair % 2);
    const __m512i doubled =
        _mm512_shuffle_epi8(_mm512_loadu_si512(at), by_output(0x01010000 + 0x01010101 * kFirst));
    return pair < 2 ? doubled : _mm512_srli_epi16(doubled, 4);
  }
  // In integers: the instruction of AVX-512 BF16 flushes subnormals, which no other level does.
  [[gnu::always_inline]] static void store_bf16(std::uint16_t* at, V a) noexcept {
    const __m512i bits = _mm512_castps_si512(a.lanes);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.lanes, a.lanes, _CMP_UNORD_Q);
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(at)),
                        _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet)));
  }

 private:
  [[gnu::always_inline]] static __m128i load16(const void* at) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  }
  [[gnu::always_inline]] static __m256i load32(const void* at) noexcept {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
  }
  [[gnu::always_inline]] static __mmask16 lanes_below(std::int64_t count) noexcept {
    const std::uint32_t bits = count >= 16 ? 0xffffU : count <= 0 ? 0U : (1U << count) - 1U;
    return static_cast<__mmask16>(bits);
  }
  [[gnu::always_inline]] static __m512 e2m1_table() noexcept {
    return _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F, -1.0F,
                          -1.5F, -2.0F, -3.0F, -4.0F, -6.0F);
  }
};

}  // namespace
}  // namespace moe::kernels
