#pragma once

// The sums of a block of rows with a group of packed panels, for every weight format, written once
// over the vector type S of a level. Sums are left in a buffer in the L1 cache for the caller to
// add bias or apply the activation function.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/simd/row_block.hpp"
#include "kernels/cpu/simd/scaled_sums.hpp"
#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

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
    for_each_tile<S>(block.num_rows, [&](int first, int rows, int tile) {
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
      for_each_tile<S>(block.num_rows, [&](int first, int rows, int) {
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
