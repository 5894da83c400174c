#pragma once

// The tile registers as the AMX kernels use them. Internal linkage, as everything that files of an
// instruction-set level include.

#include <cstdint>

namespace moe::kernels::amx {
namespace {

// Registers: sums of two tiles of rows with two panels, activations of the two, the two panels.
inline constexpr int kSumTile = 0;     // + 2 * tile of rows + panel
inline constexpr int kRowTile = 4;     // + tile of rows
inline constexpr int kWeightTile = 6;  // + panel

inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kRowBytes = 64;
inline constexpr std::int64_t kTileBytes = kTileRows * kRowBytes;
// Columns of weights that one product takes: 32 bf16 of a row of activations; of the weights a
// panel's pairs of columns, [16 pairs][16 outputs][2], as packed. Of int8 64, the weights in fours
// of columns, [16 fours][16 outputs][4].
inline constexpr std::int64_t kStepCols = 32;
inline constexpr std::int64_t kInt8StepCols = 64;

// The operand of ldtilecfg (Intel SDM volume 2A).
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Activations and sums with `num_rows` rows, weights whole.
[[nodiscard]] constexpr inline TileConfig tile_config(std::int64_t num_rows) noexcept {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = kRowBytes;
    config.rows[tile] = static_cast<std::uint8_t>(tile < kWeightTile ? num_rows : kTileRows);
  }
  return config;
}

}  // namespace
}  // namespace moe::kernels::amx
