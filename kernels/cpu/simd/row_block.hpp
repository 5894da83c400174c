#pragma once

// A block of rows, its tiles, and the buffer of its sums with a group of panels.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

// At most as many rows as any level's kBlockRows.
inline constexpr int kMaxBlockRows = 72;
// Panels of a group, whose sums are kept at a time: many for few rows, so that wide tiles find
// enough panels.
inline constexpr int kMaxGroupPanels = 8;
inline constexpr int kFewRows = 6;
inline constexpr int kGroupPanels = 4;
// Columns that all tiles of a block work through before the next, so that panels of long rows are
// still in the L2 cache for the second tile.
inline constexpr std::int64_t kChunkCols = 2048;

// The rows of one block and the buffer of their sums: those of row r and panel p of the group begin
// at sums + sums_offset(r, p).
template <class Activation>
struct RowBlock {
  const Activation* rows[kMaxBlockRows];
  int num_rows;
  float* sums;
};

// Constant strides: the addresses of a tile's sums then need one register.
template <class S>
[[nodiscard]] constexpr int sums_offset(int row, int panel) noexcept {
  return (panel * S::kBlockRows + row) * kLanes;
}

// Columns [first, first + count) of a matrix.
struct ColumnRange {
  std::int64_t first;
  std::int64_t count;
};

[[nodiscard]] constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) noexcept {
  return a < b ? a : b;
}

[[gnu::always_inline]] inline float* as_floats(std::byte* at) noexcept {
  return static_cast<float*>(static_cast<void*>(at));
}

template <class S>
[[nodiscard]] constexpr int num_tiles(int num_rows) noexcept {
  return (num_rows + S::kMaxTileRows - 1) / S::kMaxTileRows;
}

// Calls visit(first_row, num_rows, tile) for tiles of at most kMaxTileRows rows of nearly equal
// size.
template <class S, class Visit>
[[gnu::always_inline]] inline void for_each_tile(int num_rows, Visit visit) noexcept {
  const int tiles = num_tiles<S>(num_rows);
  const int tile_rows = num_rows / tiles;
  const int num_larger = num_rows % tiles;
  int first = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const int rows = tile_rows + (tile < num_larger ? 1 : 0);
    visit(first, rows, tile);
    first += rows;
  }
}

template <class S, int R, int P>
[[gnu::always_inline]] inline void load_sums(const float* at, bool is_first,
                                             Matrix<typename S::V, R, P>& sums) noexcept {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      sums[r][p] = is_first ? S::broadcast(0.0F) : S::load(at + sums_offset<S>(r, p));
    }
  }
}

template <class S, int R, int P>
[[gnu::always_inline]] inline void store_sums(const Matrix<typename S::V, R, P>& sums,
                                              float* at) noexcept {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      S::store(at + sums_offset<S>(r, p), sums[r][p]);
    }
  }
}

}  // namespace moe::kernels::simd
