#pragma once

// Sixteen rows of a matrix laid side by side, column by column: what packing a panel of a plain
// format comes to. Vectors of 16 bytes, which every x86-64 processor has: packing is bound by
// memory, and its result must not depend on the level.

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/api.hpp"

namespace moe::kernels {

#if defined(__SSE2__)

// Words [0, 4) of four rows that start `stride` bytes apart; words[i] becomes word i of each.
inline void load_turned(const std::byte* in, std::int64_t stride, __m128i words[4]) {
  __m128i rows[4];
  for (std::int64_t r = 0; r < 4; ++r) {
    rows[r] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + r * stride));
  }
  const __m128i low01 = _mm_unpacklo_epi32(rows[0], rows[1]);
  const __m128i low23 = _mm_unpacklo_epi32(rows[2], rows[3]);
  const __m128i high01 = _mm_unpackhi_epi32(rows[0], rows[1]);
  const __m128i high23 = _mm_unpackhi_epi32(rows[2], rows[3]);
  words[0] = _mm_unpacklo_epi64(low01, low23);
  words[1] = _mm_unpackhi_epi64(low01, low23);
  words[2] = _mm_unpacklo_epi64(high01, high23);
  words[3] = _mm_unpackhi_epi64(high01, high23);
}

inline void store_vector(std::byte* out, __m128i vector) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), vector);
}

// The four low halves, then the four high halves of the words.
inline __m128i halves_apart(__m128i words) {
  constexpr int kEvenThenOdd = 0xd8;
  words = _mm_shufflelo_epi16(words, kEvenThenOdd);
  words = _mm_shufflehi_epi16(words, kEvenThenOdd);
  return _mm_shuffle_epi32(words, kEvenThenOdd);
}

// out[w][row] = 32-bit word w of the row, for whole blocks of 16 words. A cache line of a row is
// used at once: rows a power of two apart share a set of the cache. Returns the words done.
inline std::int64_t interleave_words(const std::byte* in, std::int64_t row_bytes,
                                     std::int64_t num_words, std::byte* out) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t done = num_words / kLine * kLine;
  __m128i words[4];
  for (std::int64_t begin = 0; begin < done; begin += kLine) {
    for (std::int64_t row = 0; row < kPanelRows; row += 4) {
      for (std::int64_t w = begin; w < begin + kLine; w += 4) {
        load_turned(in + row * row_bytes + 4 * w, row_bytes, words);
        for (std::int64_t i = 0; i < 4; ++i) {
          store_vector(out + ((w + i) * kPanelRows + row) * 4, words[i]);
        }
      }
    }
  }
  return done;
}

// The same for 16-bit elements that stand alone, in blocks of 32.
inline std::int64_t interleave_halves(const std::byte* in, std::int64_t row_bytes,
                                      std::int64_t num_halves, std::byte* out) {
  constexpr std::int64_t kLine = 32;
  const std::int64_t done = num_halves / kLine * kLine;
  __m128i upper[4];
  __m128i lower[4];
  for (std::int64_t begin = 0; begin < done; begin += kLine) {
    for (std::int64_t row = 0; row < kPanelRows; row += 8) {
      for (std::int64_t col = begin; col < begin + kLine; col += 8) {
        load_turned(in + row * row_bytes + 2 * col, row_bytes, upper);
        load_turned(in + (row + 4) * row_bytes + 2 * col, row_bytes, lower);
        for (std::int64_t i = 0; i < 4; ++i) {
          const __m128i first = halves_apart(upper[i]);
          const __m128i second = halves_apart(lower[i]);
          std::byte* const pair_out = out + ((col + 2 * i) * kPanelRows + row) * 2;
          store_vector(pair_out, _mm_unpacklo_epi64(first, second));
          store_vector(pair_out + 2 * kPanelRows, _mm_unpackhi_epi64(first, second));
        }
      }
    }
  }
  return done;
}

#else

inline std::int64_t interleave_words(const std::byte*, std::int64_t, std::int64_t, std::byte*) {
  return 0;
}
inline std::int64_t interleave_halves(const std::byte*, std::int64_t, std::int64_t, std::byte*) {
  return 0;
}

#endif

}  // namespace moe::kernels
