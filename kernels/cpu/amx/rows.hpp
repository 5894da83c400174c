#pragma once

// Activations in tile order: for every tile of rows, the steps one after another, the rows of the
// tile inside. Written once over the vector type S of a level.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx/blocking.hpp"

namespace moe::kernels::amx {
namespace {

// A block of rows of bf16 activations: row r at x + (x_rows[first + r] or first + r) * stride.
struct SourceRows {
  const std::uint16_t* x;
  std::int64_t stride;
  const std::int32_t* x_rows;
  std::int64_t first;

  template <class Args>
  SourceRows(const Args& args, std::int64_t first_row) noexcept
      : x(static_cast<const std::uint16_t*>(args.x)),
        stride(args.x_stride),
        x_rows(args.x_rows),
        first(first_row) {}

  [[nodiscard]] const std::uint16_t* row(std::int64_t idx) const noexcept {
    return x + (x_rows != nullptr ? x_rows[first + idx] : first + idx) * stride;
  }
};

// The same of int8 codes, with the scales and sums of their blocks.
struct Int8SourceRows {
  const std::int8_t* x;
  std::int64_t stride;
  const float* x_scales;
  const std::int32_t* x_sums;
  std::int64_t x_block_stride;
  const std::int32_t* x_rows;
  std::int64_t first;

  template <class Args>
  Int8SourceRows(const Args& args, std::int64_t first_row) noexcept
      : x(static_cast<const std::int8_t*>(args.x)),
        stride(args.x_stride),
        x_scales(args.x_scales),
        x_sums(args.x_sums),
        x_block_stride(args.x_block_stride),
        x_rows(args.x_rows),
        first(first_row) {}

  [[nodiscard]] std::int64_t source(std::int64_t idx) const noexcept {
    return x_rows != nullptr ? x_rows[first + idx] : first + idx;
  }
  [[nodiscard]] const std::int8_t* row(std::int64_t idx) const noexcept {
    return x + source(idx) * stride;
  }
  [[nodiscard]] float scale(std::int64_t idx, std::int64_t block) const noexcept {
    return x_scales[source(idx) * x_block_stride + block];
  }
  [[nodiscard]] std::int32_t sum(std::int64_t idx, std::int64_t block) const noexcept {
    return x_sums[source(idx) * x_block_stride + block];
  }
};

// `count` elements of a row from column `first` of the matrix on, zeros up to 32.
[[gnu::always_inline]] inline void pack_step_row(const std::uint16_t* row,
                                                 const std::int32_t* column_order,
                                                 std::int64_t first, std::int64_t count,
                                                 std::uint16_t* out) noexcept {
  if (column_order != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = row[column_order[first + i]];
    }
  } else if (count == kStepCols) {
    __builtin_memcpy(out, row + first, kRowBytes);
    return;
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = row[first + i];
    }
  }
  for (std::int64_t i = count; i < kStepCols; ++i) {
    out[i] = 0;
  }
}

// Steps [begin, end) of all tiles: tile t and step s at out + (t * (end - begin) + s - begin) *
// tile_bytes.
inline void pack_rows(const SourceRows& rows, const RowTiles& tiles, const StepMap& map,
                      const std::int32_t* column_order, std::int64_t begin, std::int64_t end,
                      std::byte* out) noexcept {
  const std::uint16_t* in[kTileRows];
  auto* at = static_cast<std::uint16_t*>(static_cast<void*>(out));
  for (std::int64_t tile = 0; tile < tiles.num_tiles; ++tile) {
    const std::int64_t first = tile * tiles.tile_rows;
    const std::int64_t count = smaller_of(tiles.tile_rows, tiles.num_rows - first);
    for (std::int64_t r = 0; r < count; ++r) {
      in[r] = rows.row(first + r);
    }
    for (std::int64_t step = begin; step < end; ++step) {
      const std::int64_t first_col = map.first_col(step);
      const std::int64_t num_cols = map.num_cols(step);
      for (std::int64_t r = 0; r < count; ++r) {
        pack_step_row(in[r], column_order, first_col, num_cols, at);
        at += kStepCols;
      }
      for (std::int64_t r = count; r < tiles.tile_rows; ++r) {
        pack_step_row(nullptr, nullptr, 0, 0, at);
        at += kStepCols;
      }
    }
  }
}

// The same for codes; a short step is filled up with zeros.
inline void pack_rows(const Int8SourceRows& rows, const RowTiles& tiles, const StepMap& map,
                      const std::int32_t* /*column_order*/, std::int64_t begin, std::int64_t end,
                      std::byte* out) noexcept {
  const std::int64_t block_stride = padded_codes(map.block_cols);
  for (std::int64_t tile = 0; tile < tiles.num_tiles; ++tile) {
    const std::int64_t first = tile * tiles.tile_rows;
    const std::int64_t count = smaller_of(tiles.tile_rows, tiles.num_rows - first);
    const std::int8_t* in[kTileRows];
    for (std::int64_t r = 0; r < count; ++r) {
      in[r] = rows.row(first + r);
    }
    for (std::int64_t step = begin; step < end; ++step) {
      const std::int64_t at = map.block(step) * block_stride + map.col_in_block(step);
      const auto num_cols = static_cast<std::size_t>(map.num_cols(step));
      for (std::int64_t r = 0; r < tiles.tile_rows; ++r) {
        if (r >= count) {
          __builtin_memset(out, 0, kRowBytes);
        } else if (num_cols == kRowBytes) {
          __builtin_memcpy(out, in[r] + at, kRowBytes);
        } else {
          __builtin_memset(out, 0, kRowBytes);
          __builtin_memcpy(out, in[r] + at, num_cols);
        }
        out += kRowBytes;
      }
    }
  }
}

// The sum of `count` elements of a row from column `first` of the matrix on: sixteen sums, element
// i in sum i % 16, added in order.
template <class S>
[[gnu::always_inline]] inline float sum_of_block(const std::uint16_t* row,
                                                 const std::int32_t* column_order,
                                                 std::int64_t first, std::int64_t count) noexcept {
  alignas(64) float lanes[16];
  auto sums = S::broadcast(0.0F);
  for (std::int64_t i = 0; i < count; i += 16) {
    std::uint16_t piece[16] = {};
    const std::int64_t rest = smaller_of(16, count - i);
    for (std::int64_t k = 0; k < rest; ++k) {
      const std::int64_t col = first + i + k;
      piece[k] = row[column_order != nullptr ? column_order[col] : col];
    }
    sums = S::add(sums, S::load_bf16(piece));
  }
  S::store(lanes, sums);
  float sum = 0.0F;
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

// Sums over every scale block that ends in steps [begin, end): row r of the n-th of these blocks at
// out + n * kMaxBlockRows + r.
template <class S>
void sum_rows(const SourceRows& rows, const RowTiles& tiles, const StepMap& map,
              const std::int32_t* column_order, std::int64_t begin, std::int64_t end,
              float* out) noexcept {
  for (std::int64_t step = begin; step < end; ++step) {
    if (map.block_end_step(step) != step + 1) {
      continue;
    }
    const std::int64_t first = map.block(step) * map.block_cols;
    const std::int64_t count = smaller_of(map.block_cols, map.cols - first);
    for (std::int64_t r = 0; r < tiles.num_rows; ++r) {
      out[r] = sum_of_block<S>(rows.row(r), column_order, first, count);
    }
    for (std::int64_t r = tiles.num_rows; r < tiles.num_tiles * tiles.tile_rows; ++r) {
      out[r] = 0.0F;
    }
    out += kMaxBlockRows;
  }
}

}  // namespace
}  // namespace moe::kernels::amx
