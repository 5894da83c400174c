#pragma once

// Products of bf16 and of int8 activations over packed panels, written once over the tile layer T
// and the vector type S: the hardware's (tiles.hpp, simd.hpp) and, in the tests, an emulation of
// both that computes the same bits.
//
// A block of rows is packed into tiles (rows.hpp) once per call where it fits the buffer. Pairs of
// panels then go by: their sums with all rows of the block, then bias or activation function. Up to
// 16 rows each weight is used once, so the panels are prefetched ahead of their only use. With more
// rows, tiles of rows are taken in twos, 2 x 2 products from 4 loads, while each prefetches its
// share of the next pair of panels; with many rows in pieces of columns that keep the panels in the
// L1 cache. Coded weights are unpacked a piece at a time, in the L1 cache too. Tiles of int8 hold
// integer sums, which become floats at the end of a scale block.
//
// Figures behind the choices were measured with a prototype on a Xeon of the Emerald Rapids kind:
// products come every 16 cycles, tile loads every 8 to 9 from the L1 and 23 from the L2 cache, so
// one operand must come from the L1 cache; a configuration costs 75 ns.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/amx/blocking.hpp"
#include "kernels/cpu/amx/rows.hpp"
#include "kernels/cpu/amx/tile_config.hpp"
#include "kernels/cpu/amx/weights.hpp"
#include "kernels/cpu/simd/products.hpp"

namespace moe::kernels::amx {

// How a run of steps reads its operands.
enum class Reading {
  kFewRows,   // weights from memory, once: prefetch 4 KiB ahead
  kSomeRows,  // all columns of two panels; prefetch the next two
  kManyRows,  // a piece of the panels in the L1 cache, activations pass by
  kUnpacked,  // weights from a buffer in the L1 cache
};

// Products of consecutive steps with R tiles of rows and P panels.
struct Run {
  const std::byte* rows;          // first step of the first tile of rows
  std::int64_t rows_tile_stride;  // to the next tile of rows
  std::int64_t rows_step_stride;
  const std::byte* weights;  // first step of the first panel
  std::int64_t weights_panel_stride;
  std::int64_t num_steps;
  const float* sums_in;  // null: from zero; of int8 as many integers
  float* sums_out;
  std::int64_t sums_tile_stride;  // floats
  std::int64_t sums_panel_stride;
  // kSomeRows, kManyRows: each step prefetches lines [first_line, end_line) of its tile in the next
  // pair of panels; kFewRows: bytes from a panel to its successor.
  const std::byte* next;
  std::int64_t first_line;
  std::int64_t end_line;
};

template <class T, int R, int P>
[[gnu::always_inline]] inline void load_sums(const Run& run) noexcept {
  if (run.sums_in == nullptr) {
    T::template zero<kSumTile>();
    if constexpr (P > 1) T::template zero<kSumTile + 1>();
    if constexpr (R > 1) T::template zero<kSumTile + 2>();
    if constexpr (R > 1 && P > 1) T::template zero<kSumTile + 3>();
    return;
  }
  const float* at = run.sums_in;
  T::template load<kSumTile>(at);
  if constexpr (P > 1) T::template load<kSumTile + 1>(at + run.sums_panel_stride);
  at += run.sums_tile_stride;
  if constexpr (R > 1) T::template load<kSumTile + 2>(at);
  if constexpr (R > 1 && P > 1) T::template load<kSumTile + 3>(at + run.sums_panel_stride);
}

template <class T, int R, int P>
[[gnu::always_inline]] inline void store_sums(const Run& run) noexcept {
  float* at = run.sums_out;
  T::template store<kSumTile>(at);
  if constexpr (P > 1) T::template store<kSumTile + 1>(at + run.sums_panel_stride);
  at += run.sums_tile_stride;
  if constexpr (R > 1) T::template store<kSumTile + 2>(at);
  if constexpr (R > 1 && P > 1) T::template store<kSumTile + 3>(at + run.sums_panel_stride);
}

template <int locality>
[[gnu::always_inline]] inline void prefetch_lines(const std::byte* tile, std::int64_t first,
                                                  std::int64_t end) noexcept {
  for (std::int64_t line = first; line < end; ++line) {
    __builtin_prefetch(tile + line * kRowBytes, 0, locality);
  }
}

template <class T, Reading reading, int tile>
[[gnu::always_inline]] inline void load_rows(const std::byte* at) noexcept {
  if constexpr (reading == Reading::kManyRows) {
    T::template stream<tile>(at);
  } else {
    T::template load<tile>(at);
  }
}

template <class T, bool is_int8, int sum, int rows, int weights>
[[gnu::always_inline]] inline void dot() noexcept {
  if constexpr (is_int8) {
    T::template dot_int8<sum, rows, weights>();
  } else {
    T::template dot_bf16<sum, rows, weights>();
  }
}

// The loop that everything is about. Locals only: what lies behind a pointer would be read again
// after each tile instruction. A function of its own, so that the loop has all registers.
template <class T, bool is_int8, Reading reading, int R, int P>
[[gnu::noinline]] void multiply(const Run& run) noexcept {
  constexpr std::int64_t kAheadSteps = 4;
  const std::byte* rows = run.rows;
  const std::byte* const rows_end = rows + run.num_steps * run.rows_step_stride;
  const std::int64_t rows_tile_stride = run.rows_tile_stride;
  const std::int64_t rows_step_stride = run.rows_step_stride;
  const std::byte* weights = run.weights;
  const std::int64_t panel_stride = run.weights_panel_stride;
  const std::byte* next = run.next;
  const std::int64_t first_line = run.first_line;
  const std::int64_t end_line = run.end_line;
  std::int64_t steps_until_jump = run.num_steps - kAheadSteps;
  load_sums<T, R, P>(run);
  while (rows != rows_end) {
    if constexpr (reading == Reading::kFewRows) {
      // Where the panel ends, its successor in the same stream begins.
      const std::byte* ahead = steps_until_jump > 0 ? weights : next;
      prefetch_lines<3>(ahead + kAheadSteps * kTileBytes, 0, end_line);
      if constexpr (P > 1) {
        prefetch_lines<3>(ahead + panel_stride + kAheadSteps * kTileBytes, 0, end_line);
      }
      --steps_until_jump;
      next += kTileBytes;
    } else if constexpr (reading != Reading::kUnpacked) {
      prefetch_lines<2>(next, first_line, end_line);
      if constexpr (P > 1) prefetch_lines<2>(next + panel_stride, first_line, end_line);
      next += kTileBytes;
    }
    load_rows<T, reading, kRowTile>(rows);
    T::template load<kWeightTile>(weights);
    dot<T, is_int8, kSumTile, kRowTile, kWeightTile>();
    if constexpr (P > 1) {
      T::template load<kWeightTile + 1>(weights + panel_stride);
      dot<T, is_int8, kSumTile + 1, kRowTile, kWeightTile + 1>();
    }
    if constexpr (R > 1) {
      load_rows<T, reading, kRowTile + 1>(rows + rows_tile_stride);
      dot<T, is_int8, kSumTile + 2, kRowTile + 1, kWeightTile>();
    }
    if constexpr (R > 1 && P > 1) {
      dot<T, is_int8, kSumTile + 3, kRowTile + 1, kWeightTile + 1>();
    }
    rows += rows_step_stride;
    weights += kTileBytes;
  }
  store_sums<T, R, P>(run);
}

template <class T, bool is_int8, Reading reading>
void multiply_any(const Run& run, bool two_tiles, bool two_panels) noexcept {
  if (two_tiles) {
    return two_panels ? multiply<T, is_int8, reading, 2, 2>(run)
                      : multiply<T, is_int8, reading, 2, 1>(run);
  }
  return two_panels ? multiply<T, is_int8, reading, 1, 2>(run)
                    : multiply<T, is_int8, reading, 1, 1>(run);
}

// A pair of panels at work (the last of an odd number: one), and the piece of columns.
struct PanelPair {
  std::int64_t panel;
  int num_panels;
  bool has_next;  // another pair follows in this call
  float* sums;    // see Block
};

// One block of rows of a call. The sums of a pair: those of panel p and tile t from
// sums + (p * num_tiles + t) * tile_floats on, [tile_rows][16]; with scales the totals in the same
// order behind them.
template <class T, class S, class Weights>
class Block {
 public:
  using Rows = typename Weights::Rows;

  Block(const PackedMatrix& weight, const Rows& rows, std::int64_t num_rows) noexcept
      : weight_(weight),
        rows_(rows),
        tiles_(RowTiles::make(num_rows)),
        map_(StepMap::make(weight.cols, Weights::step_block_cols(weight), Weights::kCols)),
        sums_floats_(2 * tiles_.num_tiles * tiles_.tile_floats()) {}

  // Calls finish(panel, num_panels, sums) for all panels of the range.
  template <class Finish>
  void run(std::int64_t panel_begin, std::int64_t panel_end, const Finish& finish) noexcept {
    T::configure(tile_config(tiles_.tile_rows));
    const std::int64_t steps = steps_at_once(map_, tiles_, has_offsets());
    const bool is_whole = steps == map_.num_steps;
    const std::int64_t pair_floats = (Weights::kHasScales ? 2 : 1) * sums_floats_;
    const std::int64_t group = is_whole ? 2 : kSumBufferFloats / pair_floats * 2;
    if (is_whole) pack(0, steps);
    for (std::int64_t first = panel_begin; first < panel_end; first += group) {
      const std::int64_t last = smaller_of(panel_end, first + group);
      std::int64_t begin = 0;
      do {
        const std::int64_t end = smaller_of(map_.num_steps, begin + steps);
        if (!is_whole) pack(begin, end);
        for (std::int64_t panel = first; panel < last; panel += 2) {
          PanelPair pair{panel, panel + 1 < panel_end ? 2 : 1, panel + 2 < panel_end,
                         sums_ + (panel - first) / 2 * pair_floats};
          add_steps(pair);
          if (end == map_.num_steps) {
            finish(panel, pair.num_panels, pair.sums + (Weights::kHasScales ? sums_floats_ : 0));
          }
        }
        begin = end;
      } while (begin < map_.num_steps);
    }
    T::release();
  }

  [[nodiscard]] const RowTiles& tiles() const noexcept { return tiles_; }

 private:
  [[nodiscard]] bool has_offsets() const noexcept {
    if constexpr (Weights::kHasScales) {
      if constexpr (Weights::kMayHaveOffsets) return weight_.block.offset == OffsetKind::kTwoLevel;
    }
    return false;
  }

  void pack(std::int64_t begin, std::int64_t end) noexcept {
    packed_begin_ = begin;
    packed_end_ = end;
    pack_rows(rows_, tiles_, map_, weight_.column_order, begin, end, row_buffer_);
    if constexpr (!Weights::kIsInt8) {
      if (has_offsets()) {
        sum_rows<S>(rows_, tiles_, map_, weight_.column_order, begin, end, row_sums_);
      }
    }
  }

  [[nodiscard]] const std::byte* panel_data(std::int64_t panel) const noexcept {
    return weight_.data + panel * weight_.panel_stride_bytes;
  }

  // Adds the steps that are packed.
  void add_steps(const PanelPair& pair) noexcept {
    if (map_.num_steps == 0) {
      for (std::int64_t i = 0; i < (Weights::kHasScales ? 2 : 1) * sums_floats_; i += 16) {
        S::store(pair.sums + i, S::broadcast(0.0F));
      }
    } else if constexpr (Weights::kIsDirect) {
      add_direct(pair);
    } else {
      add_unpacked(pair);
    }
  }

  // A run of steps [begin, end) from sums to sums; weights and prefetching are the caller's.
  [[nodiscard]] Run make_run(const PanelPair& pair, std::int64_t tile, std::int64_t begin,
                             std::int64_t end, bool is_first) const noexcept {
    Run run{};
    const std::int64_t tile_bytes = tiles_.tile_bytes();
    run.rows_step_stride = tile_bytes;
    run.rows_tile_stride = (packed_end_ - packed_begin_) * tile_bytes;
    run.rows = row_buffer_ + tile * run.rows_tile_stride + (begin - packed_begin_) * tile_bytes;
    run.num_steps = end - begin;
    run.sums_out = pair.sums + tile * tiles_.tile_floats();
    run.sums_in = is_first ? nullptr : run.sums_out;
    run.sums_tile_stride = tiles_.tile_floats();
    run.sums_panel_stride = tiles_.num_tiles * tiles_.tile_floats();
    return run;
  }

  // bf16 panels.
  void add_direct(const PanelPair& pair) noexcept {
    const std::byte* data = panel_data(pair.panel);
    // A last step of fewer than 32 columns ends with the panel.
    const bool is_short = packed_end_ == map_.num_steps && map_.cols % kStepCols != 0;
    const std::int64_t end = packed_end_ - (is_short ? 1 : 0);
    const std::int64_t piece =
        tiles_.num_tiles <= kWholeTiles ? packed_end_ - packed_begin_ : kPieceSteps;
    for (std::int64_t step = packed_begin_; step < end; step += piece) {
      add_direct_piece(pair, data, step, smaller_of(end, step + piece));
    }
    if (is_short) {
      const std::int64_t bytes = ceil_div(map_.cols % kStepCols, 2) * kRowBytes;
      for (int p = 0; p < pair.num_panels; ++p) {
        std::byte* out = weight_buffer_ + p * kTileBytes;
        copy_short(data + p * weight_.panel_stride_bytes + end * kTileBytes, bytes, out);
      }
      for (std::int64_t tile = 0; tile < tiles_.num_tiles; tile += 2) {
        Run run = make_run(pair, tile, end, end + 1, end == 0);
        run.weights = weight_buffer_;
        run.weights_panel_stride = kTileBytes;
        multiply_any<T, Weights::kIsInt8, Reading::kUnpacked>(run, has_second(tile),
                                                              pair.num_panels > 1);
      }
    }
  }

  void add_direct_piece(const PanelPair& pair, const std::byte* data, std::int64_t begin,
                        std::int64_t end) noexcept {
    const std::int64_t lines = kTileBytes / kRowBytes;
    const std::int64_t share = ceil_div(lines, ceil_div(tiles_.num_tiles, 2));
    for (std::int64_t tile = 0; tile < tiles_.num_tiles; tile += 2) {
      Run run = make_run(pair, tile, begin, end, begin == 0);
      run.weights = data + begin * kTileBytes;
      run.weights_panel_stride = weight_.panel_stride_bytes;
      if (tiles_.num_tiles == 1) {
        // Where the first step would be if the panel after next followed the last step.
        const std::int64_t successor = pair.has_next ? 2 * weight_.panel_stride_bytes : 0;
        run.next = data + successor + (begin - run.num_steps) * kTileBytes;
        run.end_line = lines;
        multiply_any<T, Weights::kIsInt8, Reading::kFewRows>(run, false, pair.num_panels > 1);
        continue;
      }
      run.next = run.weights + 2 * weight_.panel_stride_bytes;
      run.first_line = smaller_of(lines, tile / 2 * share);
      run.end_line = pair.has_next ? smaller_of(lines, run.first_line + share) : run.first_line;
      if (tiles_.num_tiles <= kWholeTiles) {
        multiply_any<T, Weights::kIsInt8, Reading::kSomeRows>(run, has_second(tile),
                                                              pair.num_panels > 1);
      } else {
        multiply_any<T, Weights::kIsInt8, Reading::kManyRows>(run, has_second(tile),
                                                              pair.num_panels > 1);
      }
    }
  }

  static void copy_short(const std::byte* in, std::int64_t bytes, std::byte* out) noexcept {
    for (std::int64_t i = 0; i < bytes; ++i) {
      out[i] = in[i];
    }
    for (std::int64_t i = bytes; i < kTileBytes; ++i) {
      out[i] = std::byte{0};
    }
  }

  [[nodiscard]] bool has_second(std::int64_t tile) const noexcept {
    return tile + 1 < tiles_.num_tiles;
  }

  // Coded panels.
  void add_unpacked(const PanelPair& pair) noexcept {
    const std::byte* data = panel_data(pair.panel);
    for (std::int64_t begin = packed_begin_; begin < packed_end_; begin += kPieceSteps) {
      const std::int64_t end = smaller_of(packed_end_, begin + kPieceSteps);
      for (int p = 0; p < pair.num_panels; ++p) {
        for (std::int64_t step = begin; step < end; ++step) {
          unpack_step(data + p * weight_.panel_stride_bytes, step,
                      weight_buffer_ + (p * kPieceSteps + step - begin) * kTileBytes);
        }
      }
      for (std::int64_t tile = 0; tile < tiles_.num_tiles; tile += 2) {
        add_unpacked_piece(pair, tile, begin, end);
      }
    }
  }

  void unpack_step(const std::byte* panel, std::int64_t step, std::byte* out) const noexcept {
    using Codes = typename Weights::Codes;
    const BlockPlace place = Codes::layout(weight_).place(panel, map_.block(step));
    const std::byte* codes = place.header + Codes::header_bytes(weight_) +
                             map_.col_in_block(step) / Weights::kCodesPerByte * kPanelRows;
    constexpr std::int64_t kAheadBytes = 4096;
    prefetch_lines<3>(codes + kAheadBytes, 0,
                      Weights::kCols * kPanelRows / Weights::kCodesPerByte / kRowBytes);
    Weights::unpack(weight_, {place, codes, map_.num_cols(step)}, out);
  }

  // Steps [begin, end), whose weights are unpacked, for one or two tiles of rows.
  void add_unpacked_piece(const PanelPair& pair, std::int64_t tile, std::int64_t begin,
                          std::int64_t end) noexcept {
    std::int64_t step = begin;
    while (step < end) {
      const std::int64_t block_end = Weights::kHasScales ? map_.block_end_step(step) : end;
      const std::int64_t run_end = smaller_of(end, block_end);
      const bool begins = Weights::kHasScales ? map_.col_in_block(step) == 0 : step == 0;
      Run run = make_run(pair, tile, step, run_end, begins);
      run.weights = weight_buffer_ + (step - begin) * kTileBytes;
      run.weights_panel_stride = kPieceSteps * kTileBytes;
      multiply_any<T, Weights::kIsInt8, Reading::kUnpacked>(run, has_second(tile),
                                                            pair.num_panels > 1);
      if constexpr (Weights::kHasScales) {
        if (run_end == block_end) {
          if constexpr (Weights::kIsInt8) {
            scale_integers(pair, tile, map_.block(step));
          } else {
            scale_sums(pair, tile, map_.block(step));
          }
        }
      }
      step = run_end;
    }
  }

  // totals = totals + scale * sums (+ offset * sum of activations) of one or two tiles of rows.
  void scale_sums(const PanelPair& pair, std::int64_t tile, std::int64_t block) noexcept {
    using Codes = typename Weights::Codes;
    const std::int64_t num_rows = (has_second(tile) ? 2 : 1) * tiles_.tile_rows;
    const std::int64_t first_row = tile * tiles_.tile_rows;
    const float* x_sums =
        row_sums_ + (block - map_.block(packed_begin_)) * kMaxBlockRows + first_row;
    for (int p = 0; p < pair.num_panels; ++p) {
      const BlockPlace place = Codes::layout(weight_).place(panel_data(pair.panel + p), block);
      const auto scale = Codes::scale(weight_, place);
      const float* sums = pair.sums + (p * tiles_.num_tiles + tile) * tiles_.tile_floats();
      float* totals = pair.sums + sums_floats_ + (sums - pair.sums);
      for (std::int64_t r = 0; r < num_rows; ++r) {
        const auto before = block == 0 ? S::broadcast(0.0F) : S::load(totals + r * 16);
        S::store(totals + r * 16, S::fma(scale, S::load(sums + r * 16), before));
      }
      if constexpr (Weights::kMayHaveOffsets) {
        if (!has_offsets()) continue;
        const auto offset = Codes::offset(weight_, place, scale);
        for (std::int64_t r = 0; r < num_rows; ++r) {
          S::store(totals + r * 16,
                   S::fma(offset, S::broadcast(x_sums[r]), S::load(totals + r * 16)));
        }
      }
    }
  }

  // totals = totals + scale * activation scale * sums, and the part of f32 offsets, of the rows
  // that exist in one or two tiles.
  void scale_integers(const PanelPair& pair, std::int64_t tile, std::int64_t block) noexcept {
    using Codes = typename Weights::Codes;
    const std::int64_t first_row = tile * tiles_.tile_rows;
    const std::int64_t num_rows =
        smaller_of((has_second(tile) ? 2 : 1) * tiles_.tile_rows, tiles_.num_rows - first_row);
    const bool has_zero_points = weight_.block.offset == OffsetKind::kZeroPoints;
    const std::int32_t common = common_zero(weight_.format, weight_.block);
    for (int p = 0; p < pair.num_panels; ++p) {
      const BlockPlace place = Codes::layout(weight_).place(panel_data(pair.panel + p), block);
      const auto scale = Codes::scale(weight_, place);
      const auto zero = has_zero_points ? S::load_i8_int(place.header + scales_bytes(weight_.block))
                                        : S::broadcast_int(common);
      const auto offset = weight_.block.offset == OffsetKind::kTwoLevel
                              ? Codes::offset(weight_, place, scale)
                              : S::broadcast(0.0F);
      const float* sums = pair.sums + (p * tiles_.num_tiles + tile) * tiles_.tile_floats();
      float* totals = pair.sums + sums_floats_ + (sums - pair.sums);
      for (std::int64_t r = 0; r < num_rows; ++r) {
        const std::int32_t x_sum = rows_.sum(first_row + r, block);
        const float x_scale = rows_.scale(first_row + r, block);
        auto sum =
            S::load_int(static_cast<const std::int32_t*>(static_cast<const void*>(sums + r * 16)));
        if (has_zero_points || common != 0) {
          sum = S::sub_product(sum, zero, S::broadcast_int(x_sum));
        }
        const auto before = block == 0 ? S::broadcast(0.0F) : S::load(totals + r * 16);
        auto total = S::fma(S::mul(scale, S::broadcast(x_scale)), S::to_float(sum), before);
        if (weight_.block.offset == OffsetKind::kTwoLevel) {
          total = S::fma(offset, S::broadcast(x_scale * static_cast<float>(x_sum)), total);
        }
        S::store(totals + r * 16, total);
      }
    }
  }

  const PackedMatrix& weight_;
  Rows rows_;
  RowTiles tiles_;
  StepMap map_;
  std::int64_t sums_floats_;       // of the sums of a pair
  std::int64_t packed_begin_ = 0;  // steps whose activations the buffer holds
  std::int64_t packed_end_ = 0;
  alignas(64) std::byte row_buffer_[kRowBufferBytes];
  alignas(64) float sums_[kSumBufferFloats];
  alignas(64) std::byte weight_buffer_[2 * kPieceSteps * kTileBytes];
  float row_sums_[Weights::kHasScales && !Weights::kIsInt8 ? kMaxSumBlocks * kMaxBlockRows : 1];
};

// Args is GemmArgs or GateUpArgs. Calls finish(first_row, tiles, panel, num_panels, sums) for every
// block of rows and pair of panels.
template <class T, class S, class Weights, class Args, class Finish>
void for_each_pair(const Args& args, std::int64_t panel_begin, std::int64_t panel_end,
                   const Finish& finish) noexcept {
  const std::int64_t num_blocks = ceil_div(args.num_rows, kMaxBlockRows);
  for (std::int64_t idx = 0; idx < num_blocks; ++idx) {
    const std::int64_t begin = idx * args.num_rows / num_blocks;
    const std::int64_t end = (idx + 1) * args.num_rows / num_blocks;
    Block<T, S, Weights> block(args.weight, typename Weights::Rows(args, begin), end - begin);
    block.run(panel_begin, panel_end,
              [&](std::int64_t panel, int num_panels, const float* sums) noexcept {
                finish(begin, block.tiles(), panel, num_panels, sums);
              });
  }
}

template <class T, class S, class Weights>
void gemm_of(const GemmArgs& args) noexcept {
  for_each_pair<T, S, Weights>(args, args.panel_begin, args.panel_end,
                               [&](std::int64_t first_row, const RowTiles& tiles,
                                   std::int64_t panel, int num_panels, const float* sums) noexcept {
                                 for (int p = 0; p < num_panels; ++p) {
                                   const std::int64_t out = (panel + p) * kPanelRows;
                                   const std::int64_t count = args.weight.rows - out;
                                   const auto bias = simd::load_bias<S>(args.bias, out, count);
                                   const float* at =
                                       sums + p * tiles.num_tiles * tiles.tile_floats();
                                   for (std::int64_t r = 0; r < tiles.num_rows; ++r) {
                                     const auto y = S::add(S::load(at + r * 16), bias);
                                     float* to = args.y + (first_row + r) * args.y_stride + out;
                                     if (count >= kPanelRows) {
                                       S::store(to, y);
                                     } else {
                                       S::store_partial(to, y, count);
                                     }
                                   }
                                 }
                               });
}

template <class T, class S, class Weights>
void gemm_gate_up_of(const GateUpArgs& args) noexcept {
  for_each_pair<T, S, Weights>(
      args, 2 * args.pair_begin, 2 * args.pair_end,
      [&](std::int64_t first_row, const RowTiles& tiles, std::int64_t panel, int,
          const float* sums) noexcept {
        const std::int64_t out = panel / 2 * kPanelRows;
        const std::int64_t count = args.intermediate - out;
        const auto gate_bias = simd::load_bias<S>(args.gate_bias, out, count);
        const auto up_bias = simd::load_bias<S>(args.up_bias, out, count);
        const float* up_sums = sums + tiles.num_tiles * tiles.tile_floats();
        for (std::int64_t r = 0; r < tiles.num_rows; ++r) {
          const auto gate = S::add(S::load(sums + r * 16), gate_bias);
          const auto up = S::add(S::load(up_sums + r * 16), up_bias);
          simd::store_hidden<S>(args, first_row + r, out, simd::glu<S>(args, gate, up));
        }
      });
}

// Calls visit.template operator()<Weights>() for a format that bf16 activations are multiplied
// with.
template <class S, class Visit>
[[gnu::always_inline]] inline void with_weights(WeightFormat format, const Visit& visit) noexcept {
  switch (format) {
    case WeightFormat::kBf16:
      return visit.template operator()<Bf16Weights<S>>();
    case WeightFormat::kFp8:
      return visit.template operator()<Fp8Weights<S>>();
    case WeightFormat::kMxfp4:
      return visit.template operator()<Mxfp4Weights<S>>();
    case WeightFormat::kInt8:
      return visit.template operator()<Int8Weights<S>>();
    case WeightFormat::kInt4:
      return visit.template operator()<Int4Weights<S>>();
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      return;
  }
}

template <class T, class S>
void gemm_bf16(const GemmArgs& args) noexcept {
  with_weights<S>(args.weight.format, [&]<class Weights>() { gemm_of<T, S, Weights>(args); });
}

template <class T, class S>
void gemm_gate_up_bf16(const GateUpArgs& args) noexcept {
  with_weights<S>(args.weight.format,
                  [&]<class Weights>() { gemm_gate_up_of<T, S, Weights>(args); });
}

// The same for int8 activations.
template <class S, class Visit>
[[gnu::always_inline]] inline void with_codes(WeightFormat format, const Visit& visit) noexcept {
  if (format == WeightFormat::kInt8) {
    visit.template operator()<Int8TileCodes<S>>();
  } else if (format == WeightFormat::kInt4) {
    visit.template operator()<Int4TileCodes<S>>();
  }
}

template <class T, class S>
void gemm_int8(const GemmArgs& args) noexcept {
  with_codes<S>(args.weight.format, [&]<class Weights>() { gemm_of<T, S, Weights>(args); });
}

template <class T, class S>
void gemm_gate_up_int8(const GateUpArgs& args) noexcept {
  with_codes<S>(args.weight.format, [&]<class Weights>() { gemm_gate_up_of<T, S, Weights>(args); });
}

}  // namespace moe::kernels::amx
