#pragma once

// How the AMX kernels cut columns and rows. Internal linkage.

#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/amx/tile_config.hpp"
#include "kernels/cpu/layout.hpp"

namespace moe::kernels::amx {
namespace {

// Rows of a block: their activations stay in the L2 cache (2 MiB) beside sums and panels.
inline constexpr std::int64_t kMaxBlockRows = 256;
inline constexpr std::int64_t kMaxTiles = kMaxBlockRows / kTileRows;
inline constexpr std::int64_t kRowBufferBytes = 512 << 10;
inline constexpr std::int64_t kSumBufferFloats = 128 << 10;
// Up to this many tiles of rows a pair of panels is taken over all columns at a time; with more, in
// pieces of kPieceSteps, 32 KiB of the two panels, which then stay in the L1 cache for all tiles.
inline constexpr std::int64_t kWholeTiles = 6;
inline constexpr std::int64_t kPieceSteps = 16;
// Scale blocks whose sums of activations are kept.
inline constexpr std::int64_t kMaxSumBlocks = 64;

[[nodiscard]] constexpr inline std::int64_t smaller_of(std::int64_t a, std::int64_t b) noexcept {
  return a < b ? a : b;
}

// The columns of a matrix in steps of 32, or what one product takes. A step does not cross the
// border of a block: the last step of a block may be shorter, filled up with zeros.
struct StepMap {
  std::int64_t cols;
  std::int64_t block_cols;
  std::int64_t step_cols;
  std::int64_t block_steps;
  std::int64_t num_steps;

  // Without scales the matrix is one block.
  static constexpr StepMap make(std::int64_t cols, std::int64_t block_cols,
                                std::int64_t step_cols = kStepCols) noexcept {
    StepMap map{cols, block_cols, step_cols, ceil_div(block_cols, step_cols), 0};
    if (cols > 0) {
      const std::int64_t last_block = (cols - 1) / block_cols;
      map.num_steps =
          last_block * map.block_steps + ceil_div(cols - last_block * block_cols, step_cols);
    }
    return map;
  }
  [[nodiscard]] constexpr std::int64_t block(std::int64_t step) const noexcept {
    return step / block_steps;
  }
  [[nodiscard]] constexpr std::int64_t col_in_block(std::int64_t step) const noexcept {
    return step % block_steps * step_cols;
  }
  [[nodiscard]] constexpr std::int64_t first_col(std::int64_t step) const noexcept {
    return block(step) * block_cols + col_in_block(step);
  }
  [[nodiscard]] constexpr std::int64_t num_cols(std::int64_t step) const noexcept {
    const std::int64_t block_end = smaller_of(cols, (block(step) + 1) * block_cols);
    return smaller_of(step_cols, block_end - first_col(step));
  }
  // One past the last step of the block that `step` is in.
  [[nodiscard]] constexpr std::int64_t block_end_step(std::int64_t step) const noexcept {
    return smaller_of(num_steps, (block(step) + 1) * block_steps);
  }
};

// Rows in tiles of equal height; the last one may have rows that do not exist, zeros.
struct RowTiles {
  std::int64_t num_rows;
  std::int64_t num_tiles;
  std::int64_t tile_rows;

  static constexpr RowTiles make(std::int64_t num_rows) noexcept {
    const std::int64_t num_tiles = ceil_div(num_rows, kTileRows);
    return {num_rows, num_tiles, ceil_div(num_rows, num_tiles)};
  }
  [[nodiscard]] constexpr std::int64_t tile_bytes() const noexcept { return tile_rows * kRowBytes; }
  [[nodiscard]] constexpr std::int64_t tile_floats() const noexcept { return tile_rows * 16; }
};

// Steps whose activations the buffer holds: all, or whole blocks, or pieces of a block.
[[nodiscard]] constexpr inline std::int64_t steps_at_once(const StepMap& map, const RowTiles& tiles,
                                                          bool keeps_sums) noexcept {
  std::int64_t steps = kRowBufferBytes / (tiles.num_tiles * tiles.tile_bytes());
  if (keeps_sums) {
    steps = smaller_of(steps, kMaxSumBlocks * map.block_steps);
  }
  if (steps >= map.num_steps) {
    return map.num_steps;
  }
  const std::int64_t unit = map.block_steps <= steps ? map.block_steps : kPieceSteps;
  return steps / unit * unit;
}

}  // namespace
}  // namespace moe::kernels::amx
