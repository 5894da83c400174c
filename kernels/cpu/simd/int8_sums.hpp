#pragma once

// Sums of int8 activations with int8 and int4 panels, written once over a level's vector type S,
// which adds to its floats
//   I                            sixteen 32-bit integers
//   Dot, DotElement, kDotCols    sixteen groups of kDotCols columns, a register wide: 2 of 16 bits
//                                or 4 of 8 bits, and what activations become for it
//   load_i8_dot<s>(at)           dot s of a group of codes, whose columns are those of dot s of the
//   load_u4_dot<s>(at)           activations: in fours, or the even and the odd ones of a four
//   kCodeBase                    what load_i8_dot adds to signed codes to make them unsigned
//   dot(sum, w, x)               sum + the products of each group, exact or modulo 2^32
//   kNarrowDots, widen(sum)      only where dot adds in fewer bits: how many of them fit, and what
//                                makes such a sum one of I
// The integers are exact, so nothing here decides about a bit of the result: tiles and pieces are
// for speed alone. Codes are unpacked in every tile, which takes fewer instructions than one tile
// writing what the others read.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/block_codes.hpp"
#include "kernels/cpu/simd/row_block.hpp"
#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

// Rows of codes with the scale and the sum of each of their blocks.
template <>
struct RowBlock<std::int8_t> {
  const std::int8_t* rows[kMaxBlockRows];
  const float* block_scales[kMaxBlockRows];
  const std::int32_t* block_sums[kMaxBlockRows];
  int num_rows;
  float* sums;
};

template <class S>
struct Int8DotCodes : Int8Codes<S> {
  static constexpr std::int64_t kGroupCols = code_group_cols(WeightFormat::kInt8);
  static constexpr int kGroupDots = static_cast<int>(kGroupCols / S::kDotCols);
  static constexpr std::int32_t kCodeBase = S::kCodeBase;
  [[gnu::always_inline]] static typename S::Dot load(const std::byte* at, int s) noexcept {
    return with_constant<kGroupDots>(s,
                                     [&]<int dot>() { return S::template load_i8_dot<dot>(at); });
  }
};

template <class S>
struct Int4DotCodes : Int4Codes<S> {
  static constexpr std::int64_t kGroupCols = code_group_cols(WeightFormat::kInt4);
  static constexpr int kGroupDots = static_cast<int>(kGroupCols / S::kDotCols);
  static constexpr std::int32_t kCodeBase = 0;
  [[gnu::always_inline]] static typename S::Dot load(const std::byte* at, int s) noexcept {
    return with_constant<kGroupDots>(s,
                                     [&]<int dot>() { return S::template load_u4_dot<dot>(at); });
  }
};

template <class S, class Codes>
struct Int8Sums {
  using V = typename S::V;
  using I = typename S::I;
  using Dot = typename S::Dot;
  using DotElement = typename S::DotElement;
  using Activation = std::int8_t;
  using Rows = RowBlock<std::int8_t>;

  static void compute(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                      const Rows& block) noexcept {
    for (int p = 0; p < num_panels; ++p) {
      for (int r = 0; r < block.num_rows; ++r) {
        S::store(block.sums + sums_offset<S>(r, p), S::broadcast(0.0F));
      }
    }
    if (weight.cols == 0) return;
    alignas(64) Array<DotElement, kBufferElements> buffer;
    alignas(64) Array<std::int32_t, S::kBlockRows * kMaxGroupPanels * 16> chains;
    const std::int64_t piece_cols =
        kIsCopied ? kBufferElements / block.num_rows / kPieceUnit * kPieceUnit : kChunkCols;
    const std::byte* const data = weight.data + panel * weight.panel_stride_bytes;
    for_each_piece(weight, piece_cols, [&](Piece& piece) {
      prepare_rows(block, buffer, piece_cols, piece);
      multiply_piece(weight, data, num_panels, piece, block, chains);
    });
  }

 private:
  // Activations of another element type are copied, a piece at a time.
  static constexpr bool kIsCopied = sizeof(DotElement) > 1;
  static constexpr int kBufferElements = kIsCopied ? S::kBlockRows * 256 : 1;
  // Pieces end where groups of codes do, and activations on whole cache lines.
  static constexpr std::int64_t kPieceUnit = 64;
  static constexpr bool kIsNarrow = requires { S::kNarrowDots; };
  // A step of one dot walks over its rows by one index for all blocks; with more of them, whose
  // distances are constants, each block has pointers of its own (AVX-512: 7 % faster with one dot,
  // 5 % slower with two).
  static constexpr bool kIsIndexed = Codes::kGroupDots == 1;

  // Whole blocks, or columns of one that is too wide.
  struct Piece {
    std::int64_t block;  // the first
    std::int64_t num_blocks;
    std::int64_t first_col;  // within the block
    std::int64_t num_cols;   // of each block; the last of the matrix may have fewer
    bool begins_block;
    bool ends_block;
    std::int64_t x_block_stride;
    const DotElement* x[kMaxBlockRows];

    [[nodiscard]] std::int64_t cols_of(const PackedMatrix& weight, std::int64_t idx) const {
      return smaller(num_cols, weight.cols - (block + idx) * weight.block_cols - first_col);
    }
  };

  // Calls visit(piece) for pieces whose codes take at most piece_cols elements of a row.
  template <class Visit>
  [[gnu::always_inline]] static void for_each_piece(const PackedMatrix& weight,
                                                    std::int64_t piece_cols, Visit visit) noexcept {
    const std::int64_t block_cols = activation_block_cols(weight.cols, weight.block_cols);
    const std::int64_t num_blocks = ceil_div(weight.cols, weight.block_cols);
    Piece piece;
    piece.x_block_stride = padded_codes(block_cols);
    if (piece.x_block_stride <= piece_cols) {
      const std::int64_t at_once = piece_cols / piece.x_block_stride;
      piece.first_col = 0;
      piece.num_cols = block_cols;
      piece.begins_block = true;
      piece.ends_block = true;
      for (piece.block = 0; piece.block < num_blocks; piece.block += at_once) {
        piece.num_blocks = smaller(at_once, num_blocks - piece.block);
        visit(piece);
      }
      return;
    }
    piece.num_blocks = 1;
    for (piece.block = 0; piece.block < num_blocks; ++piece.block) {
      const std::int64_t cols = smaller(block_cols, weight.cols - piece.block * block_cols);
      for (piece.first_col = 0; piece.first_col < cols; piece.first_col += piece_cols) {
        piece.num_cols = smaller(piece_cols, cols - piece.first_col);
        piece.begins_block = piece.first_col == 0;
        piece.ends_block = piece.first_col + piece.num_cols == cols;
        visit(piece);
      }
    }
  }

  // The activations of the piece as the dot product wants them.
  static void prepare_rows(const Rows& block, DotElement* buffer, std::int64_t stride,
                           Piece& piece) noexcept {
    const std::int64_t begin = piece.block * piece.x_block_stride + piece.first_col;
    const std::int64_t count =
        (piece.num_blocks - 1) * piece.x_block_stride + padded_codes(piece.num_cols);
    for (int r = 0; r < block.num_rows; ++r) {
      if constexpr (!kIsCopied) {
        piece.x[r] = block.rows[r] + begin;
      } else {
        DotElement* const out = buffer + r * stride;
        const std::int8_t* const codes = block.rows[r] + begin;
        std::int64_t i = 0;
        for (; i + 16 <= count; i += 16) {
          S::widen_codes(codes + i, out + i);
        }
        if (i < count) {
          std::int8_t rest[16] = {};
          __builtin_memcpy(rest, codes + i, static_cast<std::size_t>(count - i));
          S::widen_codes(rest, out + i);
        }
        piece.x[r] = out;
      }
    }
  }

  // From the columns of a piece to those of the next one: of the panel, or after the last the first
  // of the panel after these.
  [[nodiscard]] static std::int64_t bytes_to_next(const PackedMatrix& weight, const Piece& piece,
                                                  int num_panels) noexcept {
    if (!piece.ends_block) return step_bytes<typename Codes::Product>(piece.num_cols);
    const BlockLayout layout = Codes::layout(weight);
    const std::int64_t end = piece.block + piece.num_blocks;
    const bool ends_panel = end * weight.block_cols >= weight.cols;
    return (ends_panel ? num_panels * weight.panel_stride_bytes + layout.offset_of(0)
                       : layout.offset_of(end)) -
           layout.offset_of(piece.block) - step_bytes<typename Codes::Product>(piece.first_col);
  }

  static void multiply_piece(const PackedMatrix& weight, const std::byte* data, int num_panels,
                             const Piece& piece, const Rows& block, std::int32_t* chains) noexcept {
    const std::int64_t skipped =
        Codes::header_bytes(weight) + step_bytes<typename Codes::Product>(piece.first_col);
    const std::byte* const first = Codes::layout(weight).place(data, piece.block).header + skipped;
    const NextPiece next{bytes_to_next(weight, piece, num_panels), num_tiles<S>(block.num_rows)};
    for_each_tile<S>(block.num_rows, [&](int first_row, int rows, int tile) {
      cover_panels_of<kMaxGroupPanels>(rows, num_panels, [&]<int R, int P>(int p) {
        const std::int64_t offset = p * weight.panel_stride_bytes;
        multiply<R, P>(
            weight, piece,
            {data + offset, p, next.lines_of(tile, first + offset, weight.panel_stride_bytes)},
            first_row, block, chains);
      });
    });
  }

  struct Shape {
    static constexpr bool kIsCoded = true;
    static constexpr std::int64_t kStepBytes = kCodeGroupBytes;
    static constexpr int kSubSteps = Codes::kGroupDots;
  };
  template <int max_panels, class Visit>
  [[gnu::always_inline]] static void cover_panels_of(int rows, int panels, Visit visit) noexcept {
    cover_tile<S, Shape, max_panels>(rows, panels, visit);
  }

  // sums += products of dots [0, count) of a group of codes; w: of the first panel, the others
  // panel_stride apart.
  template <int count, int R, int P>
  [[gnu::always_inline]] static void add_dots(const std::byte* w, std::int64_t panel_stride,
                                              const Array<const DotElement*, R>& x,
                                              std::int64_t first_col,
                                              Matrix<I, R, P>& sums) noexcept {
#pragma GCC unroll 8
    for (int s = 0; s < count; ++s) {
      if constexpr (S::forgets_between_steps(R, P)) {
        forget_loads();
      }
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        if constexpr (S::forgets_between_panels(R, P)) {
          forget_loads();
        }
        const std::byte* const at = w + p * panel_stride;
        if constexpr (S::fetches_in_tile(R, kCodeGroupBytes / Codes::kGroupDots)) {
          if (s == 0) {
            fetch_ahead(at);
          }
        }
        const Dot weight = Codes::load(at, s);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sums[r][p] =
              S::dot(sums[r][p], weight, S::broadcast_dot(x[r] + first_col + s * S::kDotCols));
        }
      }
    }
  }

  // sums += products of the columns whose activations are x[r][cols], where dot adds to I.
  template <int R, int P>
  [[gnu::always_inline]] static void add_columns(const std::byte* w, std::int64_t panel_stride,
                                                 const Array<const DotElement*, R>& x,
                                                 ColumnRange cols, const NextLines& next,
                                                 Matrix<I, R, P>& sums) noexcept {
    const std::int64_t end = cols.first + padded_codes(cols.count);
    std::int64_t offset = 0;
    std::int64_t col = cols.first;
    for (; col + Codes::kGroupCols <= end; col += Codes::kGroupCols) {
      if constexpr (S::fetches_next(R, P)) {
        fetch_next(next, offset);
        offset += kCodeGroupBytes;
      }
      add_dots<Codes::kGroupDots, R, P>(w, panel_stride, x, col, sums);
      w += kCodeGroupBytes;
    }
    if constexpr (Codes::kGroupCols > kCodeBytes) {
      if (col < end) {
        add_dots<Codes::kGroupDots / 2, R, P>(w, panel_stride, x, col, sums);
      }
    }
  }

  // sums = products of at most kNarrowDots * kDotCols columns, where dot adds in fewer bits.
  template <int R, int P>
  [[gnu::always_inline]] static void set_narrow(const std::byte* w, std::int64_t panel_stride,
                                                const Array<const DotElement*, R>& x,
                                                std::int64_t cols, Matrix<I, R, P>& sums) noexcept {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        sums[r][p] = S::broadcast_int(0);
      }
    }
    add_columns<R, P>(w, panel_stride, x, {0, cols}, {}, sums);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        sums[r][p] = S::widen(sums[r][p]);
      }
    }
  }

  // sums = products of `cols` columns, where dot adds in fewer bits.
  template <int R, int P>
  [[gnu::always_inline]] static void set_columns(const std::byte* w, std::int64_t panel_stride,
                                                 Array<const DotElement*, R>& x, std::int64_t cols,
                                                 Matrix<I, R, P>& sums) noexcept {
    constexpr std::int64_t kNarrowCols = S::kNarrowDots * S::kDotCols;
    constexpr std::int64_t kNarrowBytes = step_bytes<typename Codes::Product>(kNarrowCols);
    if (cols <= kNarrowCols) {
      set_narrow<R, P>(w, panel_stride, x, cols, sums);
      return;
    }
    // In memory: the registers hold the narrow sums.
    alignas(64) Array<std::int32_t, R* P* 16> wide = {};
    for (std::int64_t done = 0; done < cols; done += kNarrowCols) {
      set_narrow<R, P>(w, panel_stride, x, smaller(kNarrowCols, cols - done), sums);
      w += kNarrowBytes;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        x[r] += kNarrowCols;
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) {
          std::int32_t* const at = wide + (r * P + p) * kLanes;
          S::store_int(at, S::add_int(S::load_int(at), sums[r][p]));
        }
      }
      forget(wide);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        sums[r][p] = S::load_int(wide + (r * P + p) * kLanes);
      }
    }
  }

  // What a tile needs of its rows: activations of the piece, scales and sums of its blocks, totals
  // of its panels.
  template <int R>
  struct TileRows {
    Array<const DotElement*, R> x;
    Array<const float*, R> scales;
    Array<const std::int32_t*, R> sums;
    float* totals;
  };

  static constexpr std::int64_t kChainStride = kMaxGroupPanels * kPanelRows;

  // What the sums of block `idx` of a piece begin with: the part of the code that means zero, or
  // the sums of the columns before. Narrow sums are there already.
  template <int R, int P>
  [[gnu::always_inline]] static void begin_sums(bool begins_block, std::int32_t zero_code,
                                                const TileRows<R>& rows, std::int64_t idx,
                                                const std::int32_t* chains,
                                                Matrix<I, R, P>& sums) noexcept {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      I begin = S::broadcast_int(0);
      if (zero_code != 0) {  // modulo 2^32, as the sum may leave 32 bits on its way
        begin =
            S::sub_product(begin, S::broadcast_int(zero_code), S::broadcast_int(rows.sums[r][idx]));
      }
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        if (!begins_block) {
          begin = S::load_int(chains + r * kChainStride + p * kLanes);
        }
        sums[r][p] = kIsNarrow ? S::add_int(sums[r][p], begin) : begin;
      }
    }
  }

  struct TilePanels {
    const std::byte* data;  // of the first
    int first;              // its number in the group
    NextLines next;
  };

  // The blocks of a piece for R rows and P panels. Blocks are short: what is the same for all of
  // them is copied first, so that stores to the totals cannot change it.
  template <int R, int P>
  [[gnu::noinline]] static void multiply(const PackedMatrix& matrix, const Piece& piece,
                                         const TilePanels& panels, int first_row, const Rows& block,
                                         std::int32_t* all_chains) noexcept {
    const PackedMatrix weight = matrix;
    const std::int32_t zero_code = Codes::kCodeBase + common_zero(weight.format, weight.block);
    const std::int64_t skipped =
        Codes::header_bytes(weight) + step_bytes<typename Codes::Product>(piece.first_col);
    const BlockLayout layout = Codes::layout(weight);
    BlockCursor cursor(layout, panels.data, piece.block);
    NextLines next = panels.next;
    std::int32_t* const chains =
        all_chains + (first_row * kMaxGroupPanels + panels.first) * kPanelRows;
    Array<const DotElement*, R> x;
    TileRows<R> rows;
    rows.totals = block.sums + sums_offset<S>(first_row, panels.first);
    for (int r = 0; r < R; ++r) {
      x[r] = piece.x[first_row + r];
      rows.x[r] = x[r];
      rows.scales[r] = block.block_scales[first_row + r] + piece.block;
      rows.sums[r] = block.block_sums[first_row + r] + piece.block;
    }
    const bool begins_block = piece.begins_block;
    const bool ends_block = piece.ends_block;
    const std::int64_t num_blocks = piece.num_blocks;
    const std::int64_t x_block_stride = piece.x_block_stride;
    const std::int64_t num_cols = piece.num_cols;
    const std::int64_t last_cols = piece.cols_of(weight, num_blocks - 1);
    std::int64_t x_first = 0;
    for (std::int64_t idx = 0; idx < num_blocks; ++idx) {
      const std::int64_t cols = idx + 1 < num_blocks ? num_cols : last_cols;
      if constexpr (!kIsIndexed) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          x[r] = rows.x[r] + idx * x_block_stride;
        }
      }
      const std::byte* const w = cursor.place().header + skipped;
      Matrix<I, R, P> sums;
      if constexpr (kIsNarrow) {
        set_columns<R, P>(w, weight.panel_stride_bytes, x, cols, sums);
      }
      begin_sums<R, P>(begins_block, zero_code, rows, idx, chains, sums);
      if constexpr (!kIsNarrow) {
        add_columns<R, P>(w, weight.panel_stride_bytes, x, {x_first, cols}, next, sums);
        next.advance(layout.block_bytes);
      }
      if (!ends_block) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p) {
            S::store_int(chains + r * kChainStride + p * kLanes, sums[r][p]);
          }
        }
        return;
      }
      finish_block<R, P>(weight, cursor.place(), idx, rows, sums);
      cursor.advance();
      if constexpr (kIsIndexed) {
        x_first += x_block_stride;
      }
    }
  }

  // totals += scale * activation scale * sums, and the part of the offsets; idx: of the block in
  // the piece.
  template <int R, int P>
  [[gnu::always_inline]] static void finish_block(const PackedMatrix& weight,
                                                  const BlockPlace& first, std::int64_t idx,
                                                  const TileRows<R>& rows,
                                                  Matrix<I, R, P>& sums) noexcept {
    if (weight.block.offset == OffsetKind::kZeroPoints) {
      take_zero_points<R, P>(weight, first.header, idx, rows, sums);
    }
    Array<V, P> scales;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      scales[p] = Codes::scale(weight, first.moved(p * weight.panel_stride_bytes));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V x_scale = S::broadcast(rows.scales[r][idx]);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        float* const total = rows.totals + sums_offset<S>(r, p);
        const V factor = S::mul(scales[p], x_scale);
        S::store(total, S::fma(factor, S::to_float(sums[r][p]), S::load(total)));
      }
    }
    if (weight.block.offset == OffsetKind::kTwoLevel) {
      add_offsets<R, P>(weight, first, idx, rows);
    }
  }

  template <int R, int P>
  [[gnu::always_inline]] static void take_zero_points(const PackedMatrix& weight,
                                                      const std::byte* header, std::int64_t idx,
                                                      const TileRows<R>& rows,
                                                      Matrix<I, R, P>& sums) noexcept {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const I zero =
          S::load_i8_int(header + p * weight.panel_stride_bytes + scales_bytes(weight.block));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][p] = S::sub_product(sums[r][p], zero, S::broadcast_int(rows.sums[r][idx]));
      }
    }
  }

  template <int R, int P>
  [[gnu::always_inline]] static void add_offsets(const PackedMatrix& weight,
                                                 const BlockPlace& first, std::int64_t idx,
                                                 const TileRows<R>& rows) noexcept {
    for (int p = 0; p < P; ++p) {
      const V offset = Codes::offset(weight, first.moved(p * weight.panel_stride_bytes),
                                     S::broadcast(0.0F));  // these do without the scale
      for (int r = 0; r < R; ++r) {
        float* const total = rows.totals + sums_offset<S>(r, p);
        const float x_sum = rows.scales[r][idx] * static_cast<float>(rows.sums[r][idx]);
        S::store(total, S::fma(offset, S::broadcast(x_sum), S::load(total)));
      }
    }
  }
};

// Calls visit.template operator()<Sums>() for a format that int8 activations are multiplied with.
// S4 multiplies 4-bit codes.
template <class S, class S4 = S, class Visit>
[[gnu::always_inline]] inline void with_int8_sums(WeightFormat format, Visit visit) noexcept {
  if (format == WeightFormat::kInt8) {
    visit.template operator()<Int8Sums<S, Int8DotCodes<S>>>();
  } else if (format == WeightFormat::kInt4) {
    visit.template operator()<Int8Sums<S4, Int4DotCodes<S4>>>();
  }
}

}  // namespace moe::kernels::simd
