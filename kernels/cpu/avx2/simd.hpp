#pragma once

// Sixteen f32 lanes in two AVX2 registers: the vector type under the templates of
// kernels/cpu/simd. Internal linkage, so that no copy compiled for AVX2 can end up in a program
// that runs without it.

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace moe::kernels {
namespace {

struct Avx2 {
  struct V {
    __m256 lo;
    __m256 hi;
  };

  // 16 registers: 12 hold sums, the others a panel column and an activation.
  static constexpr int kMaxTileRows = 6;
  // 48 rows of 2048 f32 activations are 384 KiB: they stay in the L2 cache while panels stream by.
  static constexpr int kBlockRows = 48;
  [[nodiscard]] static constexpr int tile_panels(int rows, bool is_coded, std::int64_t) noexcept {
    if (rows == 1) {
      return 4;
    }
    return rows == 2 || (rows == 3 && !is_coded) ? 2 : 1;
  }
  // One row is done before the processor's own prefetcher falls behind; so are steps of few bytes
  // of weights a multiply-add.
  [[nodiscard]] static constexpr bool fetches_in_tile(int rows, std::int64_t bytes) noexcept {
    return rows > 1 && bytes >= 32;
  }
  [[nodiscard]] static constexpr bool fetches_next(int, int) noexcept { return false; }
  [[nodiscard]] static constexpr bool fetches_in_stage(std::int64_t) noexcept { return true; }
  [[nodiscard]] static constexpr bool forgets_between_steps(int rows, int panels) noexcept {
    return rows * panels >= 4;
  }
  [[nodiscard]] static constexpr bool forgets_between_panels(int rows, int panels) noexcept {
    return rows * panels >= 4;
  }
  [[nodiscard]] static constexpr int spare_registers(int rows, int panels) noexcept {
    return 16 - 2 * rows * panels;
  }
  // From this many rows on, weights are made f32 in the L1 cache, kStagedCols columns (16 KiB) at
  // a time. mxfp4 is so dear to decode that one tile of one panel already gains (4 rows: the same,
  // 6 rows: 57 against 37 GFLOP/s on Zen 3); fp8 gains from the second tile on.
  static constexpr int kStageRows = 24;
  static constexpr int kStageFp8Rows = 7;
  static constexpr int kStageMxfp4Rows = 4;
  static constexpr int kStageInt8Rows = 7;
  static constexpr int kStageInt4Rows = 6;
  static constexpr std::int64_t kStagedCols = 256;

  [[gnu::always_inline]] static V broadcast(float value) noexcept {
    const __m256 all = _mm256_set1_ps(value);
    return {all, all};
  }
  [[gnu::always_inline]] static V load(const float* at) noexcept {
    return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)};
  }
  [[gnu::always_inline]] static void store(float* at, V a) noexcept {
    _mm256_storeu_ps(at, a.lo);
    _mm256_storeu_ps(at + 8, a.hi);
  }
  // Lanes of index count and above are zero and their memory is not touched.
  [[gnu::always_inline]] static V load_partial(const float* at, std::int64_t count) noexcept {
    return {_mm256_maskload_ps(at, lane_mask(count)),
            _mm256_maskload_ps(at + 8, lane_mask(count - 8))};
  }
  [[gnu::always_inline]] static void store_partial(float* at, V a, std::int64_t count) noexcept {
    _mm256_maskstore_ps(at, lane_mask(count), a.lo);
    _mm256_maskstore_ps(at + 8, lane_mask(count - 8), a.hi);
  }

  [[gnu::always_inline]] static V add(V a, V b) noexcept {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V sub(V a, V b) noexcept {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V mul(V a, V b) noexcept {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V div(V a, V b) noexcept {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  // a * b + c, rounded once.
  [[gnu::always_inline]] static V fma(V a, V b, V c) noexcept {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  // Both give b where one of the two is NaN.
  [[gnu::always_inline]] static V min(V a, V b) noexcept {
    return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V max(V a, V b) noexcept {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  // Nearest integer, ties to even.
  [[gnu::always_inline]] static V round(V a) noexcept {
    return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // a * 2^n for integers n in [-126, 127].
  [[gnu::always_inline]] static V scale_by_power(V a, V n) noexcept {
    return mul(a, {power_of_two(n.lo), power_of_two(n.hi)});
  }
  // value where x >= threshold or x is NaN, else 0.
  [[gnu::always_inline]] static V zero_below(V x, V threshold, V value) noexcept {
    return {_mm256_and_ps(_mm256_cmp_ps(x.lo, threshold.lo, _CMP_NLT_UQ), value.lo),
            _mm256_and_ps(_mm256_cmp_ps(x.hi, threshold.hi, _CMP_NLT_UQ), value.hi)};
  }
  // a in lanes of index begin to end - 1, fill in the others.
  [[gnu::always_inline]] static V select_lanes(V a, std::int64_t begin, std::int64_t end,
                                               V fill) noexcept {
    const __m256 lo = _mm256_castsi256_ps(lane_range(begin, end));
    const __m256 hi = _mm256_castsi256_ps(lane_range(begin - 8, end - 8));
    return {_mm256_blendv_ps(fill.lo, a.lo, lo), _mm256_blendv_ps(fill.hi, a.hi, hi)};
  }
  [[gnu::always_inline]] static float first(V a) noexcept { return _mm256_cvtss_f32(a.lo); }
  // Sum and maximum of all lanes.
  [[gnu::always_inline]] static float reduce_add(V a) noexcept {
    const __m256 sum8 = _mm256_add_ps(a.lo, a.hi);
    const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
    const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
    return _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
  }
  [[gnu::always_inline]] static float reduce_max(V a) noexcept {
    const __m256 max8 = _mm256_max_ps(a.lo, a.hi);
    const __m128 max4 = _mm_max_ps(_mm256_castps256_ps128(max8), _mm256_extractf128_ps(max8, 1));
    const __m128 max2 = _mm_max_ps(max4, _mm_movehl_ps(max4, max4));
    return _mm_cvtss_f32(_mm_max_ss(max2, _mm_movehdup_ps(max2)));
  }

  // Interleave the lower or upper half of each group of four lanes, by one lane or by two.
  [[gnu::always_inline]] static V unpack_low(V a, V b) noexcept {
    return {_mm256_unpacklo_ps(a.lo, b.lo), _mm256_unpacklo_ps(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V unpack_high(V a, V b) noexcept {
    return {_mm256_unpackhi_ps(a.lo, b.lo), _mm256_unpackhi_ps(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V unpack_low_pairs(V a, V b) noexcept {
    return {unpacklo_pd(a.lo, b.lo), unpacklo_pd(a.hi, b.hi)};
  }
  [[gnu::always_inline]] static V unpack_high_pairs(V a, V b) noexcept {
    return {unpackhi_pd(a.lo, b.lo), unpackhi_pd(a.hi, b.hi)};
  }
  // Lanes 4 quarter to 4 quarter + 3.
  template <int quarter>
  [[gnu::always_inline]] static void store_quarter(float* at, V a) noexcept {
    const __m256 half = quarter < 2 ? a.lo : a.hi;
    _mm_storeu_ps(at,
                  quarter % 2 == 0 ? _mm256_castps256_ps128(half) : _mm256_extractf128_ps(half, 1));
  }

  [[gnu::always_inline]] static V load_f16(const std::byte* at) noexcept {
    return {_mm256_cvtph_ps(load16(at)), _mm256_cvtph_ps(load16(at + 16))};
  }
  // The even or the odd column of 16 pairs of bf16. Two shifts clear the even half when no register
  // is free for a mask.
  [[gnu::always_inline]] static V load_bf16_even(const std::byte* at) noexcept {
    return {bf16_even(load32(at)), bf16_even(load32(at + 32))};
  }
  [[gnu::always_inline]] static V load_bf16_odd(const std::byte* at, int spare) noexcept {
    return {bf16_odd(load32(at), spare), bf16_odd(load32(at + 32), spare)};
  }
  // e4m3fn codes, divided by 256: their bits, moved into place, are a binary16 number with an
  // exponent bias that is larger by 8, subnormals included.
  [[gnu::always_inline]] static V load_e4m3_div256(const std::byte* at) noexcept {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load16(at)), 7);
    const __m256i half = _mm256_and_si256(wide, _mm256_set1_epi16(-0x4001));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
  }
  // The low or the high nibbles of 16 bytes of e2m1 pairs.
  [[gnu::always_inline]] static V load_e2m1_low(const std::byte* at) noexcept {
    return e2m1(load16(at));
  }
  [[gnu::always_inline]] static V load_e2m1_high(const std::byte* at) noexcept {
    return e2m1(_mm_srli_epi16(load16(at), 4));
  }
  // 16 signed bytes.
  [[gnu::always_inline]] static V load_i8(const std::byte* at) noexcept {
    const __m128i codes = load16(at);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)))};
  }
  // One column of a group of codes, kernels/api.hpp: signed bytes, of four; unsigned halves of
  // bytes, of eight.
  template <int col>
  [[gnu::always_inline]] static V load_i8_col(const std::byte* at, int) noexcept {
    return {i8_col<col>(load32(at)), i8_col<col>(load32(at + 32))};
  }
  template <int col>
  [[gnu::always_inline]] static V load_u4_col(const std::byte* at) noexcept {
    return {u4_col<col>(load32(at)), u4_col<col>(load32(at + 32))};
  }
  // 2^(code - 127); code 255 is NaN, code 0 is subnormal.
  [[gnu::always_inline]] static V load_e8m0(const std::byte* at) noexcept {
    const __m128i codes = load16(at);
    return {e8m0(codes), e8m0(_mm_srli_si128(codes, 8))};
  }

  // 16 consecutive bf16.
  [[gnu::always_inline]] static V load_bf16(const std::uint16_t* at) noexcept {
    return {bf16(static_cast<const void*>(at)), bf16(static_cast<const void*>(at + 8))};
  }
  // Rounds to nearest even; NaN stays NaN.
  [[gnu::always_inline]] static void store_bf16(std::uint16_t* at, V a) noexcept {
    const __m256i packed = _mm256_packus_epi32(bf16_bits(a.lo), bf16_bits(a.hi));
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(at)),
                        _mm256_permute4x64_epi64(packed, 0xd8));
  }

 private:
  [[gnu::always_inline]] static __m128i load16(const std::byte* at) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(at)));
  }
  [[gnu::always_inline]] static __m256i load32(const std::byte* at) noexcept {
    return _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(at)));
  }
  [[gnu::always_inline]] static __m256i lane_range(std::int64_t begin, std::int64_t end) noexcept {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i below_begin =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(begin)), lane);
    const __m256i below_end = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(end)), lane);
    return _mm256_andnot_si256(below_begin, below_end);
  }
  [[gnu::always_inline]] static __m256i lane_mask(std::int64_t count) noexcept {
    return lane_range(0, count);
  }
  [[gnu::always_inline]] static __m256 power_of_two(__m256 n) noexcept {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  [[gnu::always_inline]] static __m256 unpacklo_pd(__m256 a, __m256 b) noexcept {
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
  }
  [[gnu::always_inline]] static __m256 unpackhi_pd(__m256 a, __m256 b) noexcept {
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
  }
  [[gnu::always_inline]] static __m256 bf16_even(__m256i pairs) noexcept {
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
  }
  [[gnu::always_inline]] static __m256 bf16_odd(__m256i pairs, int spare) noexcept {
    return _mm256_castsi256_ps(spare >= 8 ? _mm256_and_si256(pairs, _mm256_set1_epi32(-65536))
                                          : _mm256_slli_epi32(_mm256_srli_epi32(pairs, 16), 16));
  }
  [[gnu::always_inline]] static __m256 bf16(const void* at) noexcept {
    return bf16_even(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(at))));
  }
  // As binary16 the eight magnitudes have a zero low byte: a table of high bytes is enough.
  [[gnu::always_inline]] static V e2m1(__m128i nibbles) noexcept {
    const __m128i table = _mm_setr_epi8(0x00, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, -0x80,
                                        -0x48, -0x44, -0x42, -0x40, -0x3e, -0x3c, -0x3a);
    const __m128i codes = _mm_and_si128(nibbles, _mm_set1_epi8(0x0f));
    const __m128i high = _mm_shuffle_epi8(table, codes);
    const __m128i zero = _mm_setzero_si128();
    return {_mm256_cvtph_ps(_mm_unpacklo_epi8(zero, high)),
            _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, high))};
  }
  template <int col>
  [[gnu::always_inline]] static __m256 i8_col(__m256i codes) noexcept {
    if constexpr (col < 3) {
      codes = _mm256_slli_epi32(codes, 24 - 8 * col);
    }
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(codes, 24));
  }
  template <int col>
  [[gnu::always_inline]] static __m256 u4_col(__m256i codes) noexcept {
    constexpr int kShift = 8 * (col % 4) + 4 * (col / 4);
    const __m256i shifted = _mm256_srli_epi32(codes, kShift);
    return _mm256_cvtepi32_ps(kShift == 28 ? shifted
                                           : _mm256_and_si256(shifted, _mm256_set1_epi32(0x0f)));
  }
  [[gnu::always_inline]] static __m256 e8m0(__m128i codes) noexcept {
    const __m256i wide = _mm256_cvtepu8_epi32(codes);
    const __m256i special = _mm256_or_si256(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256()),
                                            _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(255)));
    const __m256i fraction = _mm256_and_si256(special, _mm256_set1_epi32(0x00400000));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(wide, 23), fraction));
  }
  [[gnu::always_inline]] static __m256i bf16_bits(__m256 a) noexcept {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, is_nan);
  }
};

}  // namespace
}  // namespace moe::kernels
