#pragma once

// Sums of f32 and bf16 activations with panels whose format has scales.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/block_codes.hpp"
#include "kernels/cpu/simd/row_block.hpp"
#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

// The codes of Product's format as its vectors: f32, [num_cols][16], or pairs of bf16,
// [num_cols / 2][16][2].
template <class S, class Product>
[[gnu::always_inline]] inline void stage_weights(const std::byte* codes, std::int64_t num_cols,
                                                 std::byte* out) noexcept {
  const std::int64_t whole_cols = num_cols / Product::kColumns * Product::kColumns;
  for (std::int64_t col = 0; col < whole_cols; col += Product::kColumns) {
    if constexpr (S::fetches_in_stage(Product::kStepBytes)) {
      fetch_ahead(codes);
    }
#pragma GCC unroll 8
    for (int s = 0; s < Product::kSubSteps; ++s) {
      S::store(as_floats(out), Product::weight(codes, s, S::spare_registers(0, 0)));
      out += 64;
    }
    codes += Product::kStepBytes;
  }
  const std::int64_t rest = num_cols - whole_cols;
  for (int s = 0; s < rest / kSubColumns<Product>; ++s) {
    S::store(as_floats(out), Product::weight(codes, s, S::spare_registers(0, 0)));
    out += 64;
  }
  if (rest % kSubColumns<Product> != 0) {
    S::store(as_floats(out),
             last_weight<Product>(codes, static_cast<int>(rest / kSubColumns<Product>),
                                  S::spare_registers(0, 0)));
  }
}

// Formats with scales: a chain per scale block, then one multiply-add with the scale, and one of
// the offset with the sum of the block's activations where codes have one. Product multiplies codes
// as they are packed, StagedProduct what stage_weights makes of them.
template <class S, class Codes, class Product = typename Codes::Product,
          class StagedProduct = F32Product<S>>
struct ScaledSums {
  using V = typename S::V;
  using Activation = typename Product::Activation;

  static void compute(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                      const RowBlock<Activation>& block) noexcept {
    const std::byte* data = weight.data + panel * weight.panel_stride_bytes;
    if (weight.cols == 0) {
      for (int i = 0; i < block.num_rows * num_panels; ++i) {
        S::store(block.sums + sums_offset<S>(i / num_panels, i % num_panels), S::broadcast(0.0F));
      }
      return;
    }
    if constexpr (Codes::kMayHaveOffsets) {
      if (weight.column_order != nullptr) {
        return compute_ordered(weight, data, num_panels, block);
      }
      if (Codes::has_offsets(weight)) {
        return compute_with_offsets(weight, data, num_panels, block);
      }
    }
    compute_range(weight, {data, 0, weight.cols, nullptr}, num_panels, block);
  }

 private:
  static constexpr int kStagedPanels =
      S::tile_panels(S::kMaxTileRows, false, StagedProduct::kStepBytes);
  static constexpr std::int64_t kMaxStagedBlocks = 8;
  [[nodiscard]] static constexpr std::int64_t staged_bytes(std::int64_t num_cols) noexcept {
    return (num_cols + StagedProduct::kColumns - 1) / StagedProduct::kColumns * 64;
  }
  // A staged step of 64 bytes is 2^kStageShift times as long as its codes.
  static constexpr int kStageShift = [] {
    constexpr std::int64_t kCodeBytes = Product::kStepBytes * StagedProduct::kColumns;
    int shift = 0;
    while (kCodeBytes << shift < StagedProduct::kStepBytes * Product::kColumns) {
      ++shift;
    }
    return shift;
  }();
  // Pairs of a block with an odd number of columns take one column more.
  static constexpr std::int64_t kStagedPanelBytes =
      staged_bytes(S::kStagedCols) + (StagedProduct::kColumns - 1) * kMaxStagedBlocks * 64;
  // Scale blocks whose sums of activations are kept.
  static constexpr std::int64_t kMaxSumBlocks = 64;

  // Whole scale blocks of panels; the rows of activations begin with their columns. Row r and block
  // first_block + b have the sum x_sums[r * kMaxSumBlocks + b]; null: no offsets.
  struct Range {
    const std::byte* panels;
    std::int64_t first_block;  // 0: sums begin at zero
    std::int64_t num_cols;
    const float* x_sums;
  };

  // Columns [first_col, first_col + num_cols) in the L1 cache, unpacked: whole scale blocks, or a
  // piece of one that is too wide.
  struct Stage {
    alignas(64) Array<std::byte, static_cast<int>(kStagedPanels* kStagedPanelBytes)> weights;
    alignas(64) Array<float, kStagedPanels* static_cast<int>(kMaxStagedBlocks) * 16> scales;
    alignas(64) Array<float, kStagedPanels* static_cast<int>(kMaxStagedBlocks) * 16> offsets;
    alignas(64) Array<float, S::kBlockRows * kStagedPanels * 16> chains;  // of a block in pieces
    const float* x_sums;  // of the first staged block
    std::int64_t first_col;
    std::int64_t num_cols;
    std::int64_t block_cols;
    bool continues_block;
    bool ends_block;
    bool is_first_block;  // the first staged scale block begins the row
  };

  // Always in the same order, whatever the batch.
  [[gnu::always_inline]] static float sum_of(const float* x, std::int64_t count) noexcept {
    V sum = S::broadcast(0.0F);
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      sum = S::add(sum, S::load(x + i));
    }
    if (i < count) {
      sum = S::add(sum, S::load_partial(x + i, count - i));
    }
    return S::reduce_add(sum);
  }
  [[gnu::always_inline]] static float sum_of(const std::uint16_t* x, std::int64_t count) noexcept {
    V sum = S::broadcast(0.0F);
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      sum = S::add(sum, S::load_bf16(x + i));
    }
    if (i < count) {
      std::uint16_t rest[16] = {};
      for (std::int64_t k = 0; i + k < count; ++k) {
        rest[k] = x[i + k];
      }
      sum = S::add(sum, S::load_bf16(rest));
    }
    return S::reduce_add(sum);
  }

  static void sum_activations(const PackedMatrix& weight, const RowBlock<Activation>& block,
                              std::int64_t num_cols, float* x_sums) noexcept {
    const std::int64_t block_cols = Codes::block_cols(weight);
    for (int r = 0; r < block.num_rows; ++r) {
      float* out = x_sums + r * kMaxSumBlocks;
      for (std::int64_t col = 0; col < num_cols; col += block_cols) {
        *out++ = sum_of(block.rows[r] + col, smaller(block_cols, num_cols - col));
      }
    }
  }

  static void compute_with_offsets(const PackedMatrix& weight, const std::byte* data,
                                   int num_panels, const RowBlock<Activation>& block) noexcept {
    Array<float, S::kBlockRows* static_cast<int>(kMaxSumBlocks)> x_sums;
    const std::int64_t range_cols = kMaxSumBlocks * Codes::block_cols(weight);
    RowBlock<Activation> part = block;
    for (std::int64_t begin = 0; begin < weight.cols; begin += range_cols) {
      const std::int64_t count = smaller(range_cols, weight.cols - begin);
      for (int r = 0; r < block.num_rows; ++r) {
        part.rows[r] = block.rows[r] + begin;
      }
      sum_activations(weight, part, count, x_sums);
      compute_range(weight, {data, begin / Codes::block_cols(weight), count, x_sums}, num_panels,
                    part);
    }
  }

  // Brings the activations into the order of the columns, as many at a time as the buffer holds.
  static void compute_ordered(const PackedMatrix& weight, const std::byte* data, int num_panels,
                              const RowBlock<Activation>& block) noexcept {
    Array<float, S::kBlockRows* static_cast<int>(kMaxSumBlocks)> x_sums;
    alignas(64) Array<Activation, S::kBlockRows* static_cast<int>(kMaxOrderedBlockCols)> ordered;
    const std::int64_t block_cols = Codes::block_cols(weight);
    const std::int64_t num_blocks = smaller(kMaxSumBlocks, kMaxOrderedBlockCols / block_cols);
    const std::int64_t range_cols = num_blocks * block_cols;
    RowBlock<Activation> part = block;
    for (std::int64_t begin = 0; begin < weight.cols; begin += range_cols) {
      const std::int64_t count = smaller(range_cols, weight.cols - begin);
      for (int r = 0; r < block.num_rows; ++r) {
        Activation* out = ordered + r * kMaxOrderedBlockCols;
        for (std::int64_t col = 0; col < count; ++col) {
          out[col] = block.rows[r][weight.column_order[begin + col]];
        }
        part.rows[r] = out;
      }
      const bool has_offsets = Codes::has_offsets(weight);
      if (has_offsets) {
        sum_activations(weight, part, count, x_sums);
      }
      compute_range(weight, {data, begin / block_cols, count, has_offsets ? x_sums : nullptr},
                    num_panels, part);
    }
  }

  static void compute_range(const PackedMatrix& weight, const Range& range, int num_panels,
                            const RowBlock<Activation>& block) noexcept {
    if (block.num_rows < Codes::kStageRows) {
      cover_tile<S, Product, kMaxGroupPanels, Codes::kStageRows - 1>(
          block.num_rows, num_panels, [&]<int R, int P>(int p) {
            compute_direct<R, P>(weight, range, p * weight.panel_stride_bytes, block.rows,
                                 block.sums + sums_offset<S>(0, p));
          });
      return;
    }
    for (int p = 0; p < num_panels; p += kStagedPanels) {
      const int rest = num_panels - p;
      compute_staged(weight, range, rest < kStagedPanels ? rest : kStagedPanels, p, block);
    }
  }

  [[gnu::always_inline]] static void add_scaled(float* total, V scale, V sum,
                                                bool is_first) noexcept {
    S::store(total, S::fma(scale, sum, is_first ? S::broadcast(0.0F) : S::load(total)));
  }
  [[gnu::always_inline]] static void add_offset(float* total, V offset, float x_sum) noexcept {
    S::store(total, S::fma(offset, S::broadcast(x_sum), S::load(total)));
  }

  template <int R, int P>
  static void compute_direct(const PackedMatrix& weight, const Range& range,
                             std::int64_t panel_offset, const Activation* const* rows,
                             float* out) noexcept {
    const std::int64_t block_cols = Codes::block_cols(weight);
    const std::int64_t header_bytes = Codes::header_bytes(weight);
    BlockCursor cursor(Codes::layout(weight), range.panels + panel_offset, range.first_block);
    [[maybe_unused]] const float* x_sums = range.x_sums;
    for (std::int64_t begin = 0; begin < range.num_cols; begin += block_cols) {
      Matrix<V, R, P> sums;
      load_sums<S, R, P>(out, true, sums);
      accumulate_tile<S, Product, R, P, Fetch::kAhead>(
          {cursor.place().header + header_bytes, weight.panel_stride_bytes, rows, begin,
           smaller(block_cols, range.num_cols - begin)},
          sums);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const BlockPlace place = cursor.place().moved(p * weight.panel_stride_bytes);
        const V scale = Codes::scale(weight, place);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          add_scaled(out + sums_offset<S>(r, p), scale, sums[r][p],
                     range.first_block == 0 && begin == 0);
        }
        if constexpr (Codes::kMayHaveOffsets) {
          if (x_sums != nullptr) {
            const V offset = Codes::offset(weight, place, scale);
            for (int r = 0; r < R; ++r) {
              add_offset(out + sums_offset<S>(r, p), offset, x_sums[r * kMaxSumBlocks]);
            }
          }
        }
      }
      if constexpr (Codes::kMayHaveOffsets) {
        x_sums = x_sums != nullptr ? x_sums + 1 : nullptr;
      }
      cursor.advance();
    }
  }

  static void compute_staged(const PackedMatrix& weight, const Range& range, int num_panels,
                             int first_panel, const RowBlock<Activation>& block) noexcept {
    Stage stage;
    const std::byte* const panels = range.panels + first_panel * weight.panel_stride_bytes;
    const BlockLayout layout = Codes::layout(weight);
    const std::int64_t block_cols = Codes::block_cols(weight);
    const bool in_pieces = block_cols > S::kStagedCols;
    const std::int64_t blocks_at_once =
        in_pieces ? 1 : smaller(kMaxStagedBlocks, S::kStagedCols / block_cols);
    stage.x_sums = range.x_sums;
    for (std::int64_t begin = 0; begin < range.num_cols; begin += blocks_at_once * block_cols) {
      const std::int64_t end = smaller(range.num_cols, begin + blocks_at_once * block_cols);
      const std::int64_t piece_cols = in_pieces ? S::kStagedCols : end - begin;
      const std::int64_t first_block = range.first_block + begin / block_cols;
      for (std::int64_t col = begin; col < end; col += piece_cols) {
        stage.first_col = col;
        stage.num_cols = smaller(piece_cols, end - col);
        stage.block_cols = in_pieces ? stage.num_cols : block_cols;
        stage.continues_block = col != begin;
        stage.ends_block = col + stage.num_cols == end;
        stage.is_first_block = first_block == 0;
        fill_stage(weight, panels, first_block, num_panels, begin, stage);
        const std::int64_t skipped = step_bytes<Product>(col - begin);
        const NextPiece next{stage.ends_block ? layout.offset_of(first_block + blocks_at_once) -
                                                    layout.offset_of(first_block) - skipped
                                              : step_bytes<Product>(stage.num_cols),
                             num_tiles<S>(block.num_rows)};
        const std::byte* const codes =
            layout.place(panels, first_block).header + Codes::header_bytes(weight) + skipped;
        for_each_tile<S>(block.num_rows, [&](int first, int rows, int tile) {
          NextLines lines = next.lines_of(tile, codes, weight.panel_stride_bytes);
          lines.shift = kStageShift;
          cover_tile<S, StagedProduct, kStagedPanels>(rows, num_panels, [&]<int R, int P>(int p) {
            multiply_stage<R, P>(weight, stage, p, first, block, lines,
                                 block.sums + sums_offset<S>(first, first_panel + p));
          });
        });
      }
      if (stage.x_sums != nullptr) {
        stage.x_sums += blocks_at_once;
      }
    }
  }

  // `first_block` begins at column `begin` of the range.
  static void fill_stage(const PackedMatrix& weight, const std::byte* panels,
                         std::int64_t first_block, int num_panels, std::int64_t begin,
                         Stage& stage) noexcept {
    const std::int64_t header_bytes = Codes::header_bytes(weight);
    const BlockLayout layout = Codes::layout(weight);
    for (int p = 0; p < num_panels; ++p) {
      BlockCursor cursor(layout, panels + p * weight.panel_stride_bytes, first_block);
      std::int64_t scale_at = p * kMaxStagedBlocks * 16;
      std::byte* out = stage.weights + p * kStagedPanelBytes;
      for (std::int64_t done = 0; done < stage.num_cols; done += stage.block_cols) {
        const V scale = Codes::scale(weight, cursor.place());
        S::store(stage.scales + scale_at, scale);
        if constexpr (Codes::kMayHaveOffsets) {
          if (stage.x_sums != nullptr) {
            S::store(stage.offsets + scale_at, Codes::offset(weight, cursor.place(), scale));
          }
        }
        const std::int64_t skipped = step_bytes<Product>(stage.first_col - begin);
        const std::int64_t cols = smaller(stage.block_cols, stage.num_cols - done);
        stage_weights<S, Product>(cursor.place().header + header_bytes + (done == 0 ? skipped : 0),
                                  cols, out);
        out += staged_bytes(stage.block_cols);
        scale_at += 16;
        cursor.advance();
      }
    }
  }

  template <int R, int P>
  static void multiply_stage(const PackedMatrix& weight, Stage& stage, int first_panel,
                             int first_row, const RowBlock<Activation>& block, NextLines next,
                             float* out) noexcept {
    constexpr Fetch kFetch = S::fetches_next(R, P) ? Fetch::kNext : Fetch::kNothing;
    const std::byte* weights = stage.weights + first_panel * kStagedPanelBytes;
    std::int64_t scale_at = first_panel * kMaxStagedBlocks * 16;
    float* chains = stage.chains + sums_offset<S>(first_row, first_panel);
    [[maybe_unused]] const float* x_sums =
        stage.x_sums != nullptr ? stage.x_sums + first_row * kMaxSumBlocks : nullptr;
    for (std::int64_t done = 0; done < stage.num_cols; done += stage.block_cols) {
      Matrix<V, R, P> sums;
      load_sums<S, R, P>(chains, !stage.continues_block, sums);
      accumulate_tile<S, StagedProduct, R, P, kFetch>(
          {weights, kStagedPanelBytes, block.rows + first_row, stage.first_col + done,
           smaller(stage.block_cols, stage.num_cols - done)},
          sums, next);
      if (!stage.ends_block) {
        store_sums<S, R, P>(sums, chains);
        return;
      }
      const bool is_first = stage.is_first_block && done == 0;
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const V scale = S::load(stage.scales + scale_at + p * kMaxStagedBlocks * 16);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          add_scaled(out + sums_offset<S>(r, p), scale, sums[r][p], is_first);
        }
        if constexpr (Codes::kMayHaveOffsets) {
          if (x_sums != nullptr) {
            const V offset = S::load(stage.offsets + scale_at + p * kMaxStagedBlocks * 16);
            for (int r = 0; r < R; ++r) {
              add_offset(out + sums_offset<S>(r, p), offset, x_sums[r * kMaxSumBlocks]);
            }
          }
        }
      }
      if constexpr (Codes::kMayHaveOffsets) {
        x_sums = x_sums != nullptr ? x_sums + 1 : nullptr;
      }
      weights += staged_bytes(stage.block_cols);
      scale_at += 16;
      next.advance(Codes::layout(weight).block_bytes);
    }
  }
};

// bf16 activations: codes become pairs of bf16.
template <class S, class Codes>
using DotSums =
    ScaledSums<S, Codes, CodedDotProduct<S, typename Codes::Product>, Bf16DotProduct<S>>;

}  // namespace moe::kernels::simd
