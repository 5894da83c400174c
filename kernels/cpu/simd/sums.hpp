#pragma once

// The sums of a block of rows with a group of packed panels, for every weight format, written once
// over the vector type S of a level. Sums are left in a buffer in the L1 cache for the caller to
// add bias or apply the activation function.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
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

// Calls visit(first_row, num_rows) for tiles of at most kMaxTileRows rows of nearly equal size.
template <class S, class Visit>
[[gnu::always_inline]] inline void for_each_tile(int num_rows, Visit visit) noexcept {
  const int tiles = num_tiles<S>(num_rows);
  const int tile_rows = num_rows / tiles;
  const int num_larger = num_rows % tiles;
  int first = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    const int rows = tile_rows + (tile < num_larger ? 1 : 0);
    visit(first, rows);
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

// f32, f16 and bf16 weights: the sums are the products themselves.
template <class S, class Product>
struct PlainSums {
  using Activation = typename Product::Activation;

  static void compute(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                      const RowBlock<Activation>& block) noexcept {
    add_columns(weight, panel, num_panels, block, {0, weight.cols}, {0, weight.cols});
  }

  // Adds the columns `cols` of the matrix, whose activations are columns `x_cols` of the rows.
  static void add_columns(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                          const RowBlock<Activation>& block, ColumnRange cols,
                          ColumnRange x_cols) noexcept {
    const std::byte* data =
        weight.data + panel * weight.panel_stride_bytes + step_bytes<Product>(cols.first);
    const bool is_staged = Product::kIsStaged && block.num_rows >= S::kStageRows;
    const std::int64_t chunk = is_staged                           ? S::kStagedCols
                               : block.num_rows <= S::kMaxTileRows ? weight.cols
                                                                   : kChunkCols;
    std::int64_t done = 0;
    do {  // at least once: a matrix without columns has sums too, zero
      const std::int64_t count = smaller(chunk, cols.count - done);
      const ColumnRange piece{x_cols.first + done, count};
      const bool is_first = cols.first + done == 0;
      // The next columns of these panels, or the first ones of the panels after them.
      const std::int64_t delta =
          done + chunk < cols.count
              ? step_bytes<Product>(chunk)
              : num_panels * weight.panel_stride_bytes - step_bytes<Product>(done);
      if constexpr (Product::kIsStaged) {
        if (is_staged) {
          add_staged(data, weight.panel_stride_bytes, num_panels, block, piece, is_first);
        } else {
          add_direct(data, weight.panel_stride_bytes, num_panels, block, piece, is_first, delta);
        }
      } else {
        add_direct(data, weight.panel_stride_bytes, num_panels, block, piece, is_first, delta);
      }
      data += step_bytes<Product>(chunk);
      done += chunk;
    } while (done < cols.count);
  }

 private:
  static void add_direct(const std::byte* data, std::int64_t panel_stride, int num_panels,
                         const RowBlock<Activation>& block, ColumnRange cols, bool is_first,
                         std::int64_t next_delta) noexcept {
    const NextPiece next{next_delta, num_tiles<S>(block.num_rows)};
    int tile = 0;
    for_each_tile<S>(block.num_rows, [&](int first, int rows) {
      cover_tile<S, Product, kMaxGroupPanels>(rows, num_panels, [&]<int R, int P>(int p) {
        constexpr Fetch kFetch = S::fetches_next(R, P) ? Fetch::kNext : Fetch::kAhead;
        float* at = block.sums + sums_offset<S>(first, p);
        const std::byte* const panel = data + p * panel_stride;
        Matrix<typename S::V, R, P> sums;
        load_sums<S, R, P>(at, is_first, sums);
        accumulate_tile<S, Product, R, P, kFetch>(
            {panel, panel_stride, block.rows + first, cols.first, cols.count}, sums,
            next.lines_of(tile, panel, panel_stride));
        store_sums<S, R, P>(sums, at);
      });
      ++tile;
    });
  }

  // Many rows share each panel: its columns are first made f32 in the L1 cache, which takes the
  // decoding out of the tiles. One panel at a time, so that it also stays there.
  static void add_staged(const std::byte* data, std::int64_t panel_stride, int num_panels,
                         const RowBlock<Activation>& block, ColumnRange cols,
                         bool is_first) noexcept {
    alignas(64) std::byte staged[S::kStagedCols * 64];
    for (int p = 0; p < num_panels; ++p) {
      const std::byte* panel = data + p * panel_stride;
      if constexpr (Product::kIsCoded) {
        stage_weights<S, Product>(panel, cols.count, staged);
        panel = staged;
      }
      for_each_tile<S>(block.num_rows, [&](int first, int rows) {
        cover_tile<S, F32Product<S>, 1>(rows, 1, [&]<int R, int P>(int) {
          float* at = block.sums + sums_offset<S>(first, p);
          Matrix<typename S::V, R, 1> sums;
          load_sums<S, R, 1>(at, is_first, sums);
          accumulate_tile<S, F32Product<S>, R, 1, Fetch::kNothing>(
              {panel, 0, block.rows + first, cols.first, cols.count}, sums);
          store_sums<S, R, 1>(sums, at);
        });
      });
    }
  }
};

// bf16 weights and activations on a level without a bf16 dot product: activations are made f32, as
// many columns at a time as the buffer holds, and shared by the panels of the group.
template <class S>
struct WidenedSums {
  using Activation = std::uint16_t;
  using Sums = PlainSums<S, Bf16Product<S>>;
  static constexpr int kBufferFloats = S::kBlockRows * 256;

  static void compute(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                      const RowBlock<std::uint16_t>& block) noexcept {
    alignas(64) Array<float, kBufferFloats> buffer;
    const std::int64_t stride = std::int64_t{kBufferFloats} / block.num_rows / 16 * 16;
    RowBlock<float> wide;
    wide.num_rows = block.num_rows;
    wide.sums = block.sums;
    std::int64_t col = 0;
    do {
      const std::int64_t count = smaller(stride, weight.cols - col);
      for (int r = 0; r < block.num_rows; ++r) {
        wide.rows[r] = buffer + r * stride;
        widen(block.rows[r] + col, count, buffer + r * stride);
      }
      Sums::add_columns(weight, panel, num_panels, wide, {col, count}, {0, count});
      col += stride;
    } while (col < weight.cols);
  }

 private:
  [[gnu::always_inline]] static void widen(const std::uint16_t* x, std::int64_t count,
                                           float* out) noexcept {
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      S::store(out + i, S::load_bf16(x + i));
    }
    if (i < count) {
      std::uint16_t rest[16] = {};
      for (std::int64_t k = 0; i + k < count; ++k) {
        rest[k] = x[i + k];
      }
      S::store(out + i, S::load_bf16(rest));
    }
  }
};

// How the formats with scales keep them; see layout.hpp.
template <class S>
struct Fp8Codes {
  using Product = E4m3Product<S>;
  static constexpr int kStageRows = S::kStageFp8Rows;
  static constexpr bool kMayHaveOffsets = false;

  static std::int64_t block_cols(const PackedMatrix& weight) noexcept { return weight.block_cols; }
  static BlockLayout layout(const PackedMatrix& weight) noexcept {
    return {.block_bytes = fp8_block_offset(1, weight.block_cols)};
  }
  static std::int64_t header_bytes(const PackedMatrix&) noexcept { return kFp8ScaleBytes; }
  // Makes up for the codes being loaded divided by 256.
  [[gnu::always_inline]] static typename S::V scale(const PackedMatrix&,
                                                    const BlockPlace& at) noexcept {
    return S::mul(S::load(static_cast<const float*>(static_cast<const void*>(at.header))),
                  S::broadcast(256.0F));
  }
};

template <class S>
struct Mxfp4Codes {
  using Product = E2m1Product<S>;
  static constexpr int kStageRows = S::kStageMxfp4Rows;
  static constexpr bool kMayHaveOffsets = false;

  static std::int64_t block_cols(const PackedMatrix&) noexcept { return kMxfp4Group; }
  static BlockLayout layout(const PackedMatrix&) noexcept {
    return {.block_bytes = kMxfp4GroupBytes};
  }
  static std::int64_t header_bytes(const PackedMatrix&) noexcept { return kPanelRows; }
  [[gnu::always_inline]] static typename S::V scale(const PackedMatrix&,
                                                    const BlockPlace& at) noexcept {
    return S::load_e8m0(at.header);
  }
};

template <class S, class CodeProduct, int stage_rows>
struct IntCodes {
  using V = typename S::V;
  using Product = CodeProduct;
  static constexpr int kStageRows = stage_rows;
  static constexpr bool kMayHaveOffsets = true;

  static std::int64_t block_cols(const PackedMatrix& weight) noexcept { return weight.block_cols; }
  static BlockLayout layout(const PackedMatrix& weight) noexcept {
    return int_block_layout(weight.format, weight.block_cols, weight.block);
  }
  static std::int64_t header_bytes(const PackedMatrix& weight) noexcept {
    return block_header_bytes(weight.block);
  }
  static bool has_offsets(const PackedMatrix& weight) noexcept {
    return weight.format == WeightFormat::kInt4 || weight.block.offset != OffsetKind::kCentred;
  }
  [[gnu::always_inline]] static V scale(const PackedMatrix& weight, const BlockPlace& at) noexcept {
    const void* const header = at.header;
    switch (weight.block.scale) {
      case ScaleFormat::kF16:
        return S::load_f16(at.header);
      case ScaleFormat::kBf16:
        return S::load_bf16(static_cast<const std::uint16_t*>(header));
      case ScaleFormat::kTwoLevel:
        return S::mul(S::load_f16(at.supers), S::load_i8(at.header));
      case ScaleFormat::kF32:
        break;
    }
    return S::load(static_cast<const float*>(header));
  }
  // What the sum of the activations is multiplied by; `at` as for scale().
  [[gnu::always_inline]] static V offset(const PackedMatrix& weight, const BlockPlace& at,
                                         V scale) noexcept {
    const std::byte* const offsets = at.header + scales_bytes(weight.block);
    switch (weight.block.offset) {
      case OffsetKind::kCentred:
        return S::mul(S::broadcast(-8.0F), scale);
      case OffsetKind::kZeroPoints:
        return S::mul(S::sub(S::broadcast(0.0F), S::load_i8(offsets)), scale);
      case OffsetKind::kTwoLevel:
        return S::mul(S::sub(S::broadcast(0.0F), S::load_i8(offsets)),
                      S::load_f16(at.supers + 2 * kPanelRows));
    }
    return S::broadcast(0.0F);
  }
};

template <class S>
using Int8Codes = IntCodes<S, Int8Product<S>, S::kStageInt8Rows>;
template <class S>
using Int4Codes = IntCodes<S, Int4Product<S>, S::kStageInt4Rows>;

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
        int tile = 0;
        for_each_tile<S>(block.num_rows, [&](int first, int rows) {
          NextLines lines = next.lines_of(tile++, codes, weight.panel_stride_bytes);
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

// Calls visit.template operator()<Sums>() with the way to compute sums of the two formats.
template <class S, class Visit>
[[gnu::always_inline]] inline void with_sums(WeightFormat format, ActivationFormat activation,
                                             Visit visit) noexcept {
  switch (format) {
    case WeightFormat::kF32:
      return visit.template operator()<PlainSums<S, F32Product<S>>>();
    case WeightFormat::kF16:
      return visit.template operator()<PlainSums<S, F16Product<S>>>();
    case WeightFormat::kBf16:
      if (activation == ActivationFormat::kBf16) {
        return visit.template operator()<WidenedSums<S>>();
      }
      return visit.template operator()<PlainSums<S, Bf16Product<S>>>();
    case WeightFormat::kFp8:
      return visit.template operator()<ScaledSums<S, Fp8Codes<S>>>();
    case WeightFormat::kMxfp4:
      return visit.template operator()<ScaledSums<S, Mxfp4Codes<S>>>();
    case WeightFormat::kInt8:
      return visit.template operator()<ScaledSums<S, Int8Codes<S>>>();
    case WeightFormat::kInt4:
      return visit.template operator()<ScaledSums<S, Int4Codes<S>>>();
  }
}

// The same for bf16 activations on a level with the bf16 dot product. f32 and f16 weights have
// none.
template <class S, class Visit>
[[gnu::always_inline]] inline void with_dot_sums(WeightFormat format, Visit visit) noexcept {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      return;
    case WeightFormat::kBf16:
      return visit.template operator()<PlainSums<S, Bf16DotProduct<S>>>();
    case WeightFormat::kFp8:
      return visit.template operator()<DotSums<S, Fp8Codes<S>>>();
    case WeightFormat::kMxfp4:
      return visit.template operator()<DotSums<S, Mxfp4Codes<S>>>();
    case WeightFormat::kInt8:
      return visit.template operator()<DotSums<S, Int8Codes<S>>>();
    case WeightFormat::kInt4:
      return visit.template operator()<DotSums<S, Int4Codes<S>>>();
  }
}

}  // namespace moe::kernels::simd
