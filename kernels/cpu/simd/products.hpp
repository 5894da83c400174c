#pragma once

// Matrix products over packed panels, written once over the vector type S of a level. Work goes in
// blocks of rows small enough that their activations stay in the L2 cache while the panels stream
// by; a block's sums live in a buffer in the L1 cache until bias or activation function are
// applied.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/math.hpp"
#include "kernels/cpu/simd/tile.hpp"

namespace moe::kernels::simd {

inline constexpr int kMaxBlockRows = 48;
// Panels whose sums are kept at a time: many for few rows, so that wide tiles find enough panels.
inline constexpr int kFewRows = 6;
inline constexpr int kGroupPanelsFewRows = 8;
inline constexpr int kGroupPanels = 4;
inline constexpr int kSumsFloats = kMaxBlockRows * kGroupPanels * 16;
static_assert(kFewRows * kGroupPanelsFewRows <= kMaxBlockRows * kGroupPanels);

// The rows of one block and the buffer of their sums: sums of row r and panel p of the group begin
// at sums + r * sums_stride + p * 16.
template <class Activation>
struct RowBlock {
  const Activation* rows[kMaxBlockRows];
  int num_rows;
  int sums_stride;
  float* sums;
};

// Calls visit(first_row, num_rows) for tiles of at most kMaxTileRows rows of nearly equal size.
template <class S, class Visit>
[[gnu::always_inline]] inline void for_each_tile(int num_rows, Visit visit) noexcept {
  const int num_tiles = (num_rows + S::kMaxTileRows - 1) / S::kMaxTileRows;
  const int tile_rows = num_rows / num_tiles;
  const int num_larger = num_rows % num_tiles;
  int first = 0;
  for (int tile = 0; tile < num_tiles; ++tile) {
    const int rows = tile_rows + (tile < num_larger ? 1 : 0);
    visit(first, rows);
    first += rows;
  }
}

// f32, f16 and bf16: sums are the products themselves.
template <class S, class Product>
struct PlainSums {
  using Activation = typename Product::Activation;

  static void compute(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                      const RowBlock<Activation>& block) noexcept {
    const std::byte* data = weight.data + panel * weight.panel_stride_bytes;
    for_each_tile<S>(block.num_rows, [&](int first, int rows) {
      cover_tile<S>(rows, num_panels, [&]<int R, int P>(int p) {
        Matrix<typename S::V, R, P> sums;
#pragma GCC unroll 64
        for (int i = 0; i < R * P; ++i) {
          sums[i / P][i % P] = S::broadcast(0.0F);
        }
        accumulate_tile<S, Product, R, P>(
            {data + p * weight.panel_stride_bytes, weight.panel_stride_bytes, block.rows + first, 0,
             weight.cols},
            sums);
        float* out = block.sums + first * block.sums_stride + p * 16;
#pragma GCC unroll 64
        for (int i = 0; i < R * P; ++i) {
          S::store(out + i / P * block.sums_stride + i % P * 16, sums[i / P][i % P]);
        }
      });
    });
  }
};

// fp8 blocks: see layout.hpp.
template <class S>
struct Fp8Codes {
  using Product = E4m3Product<S>;
  static constexpr std::int64_t kScaleBytes = kFp8ScaleBytes;

  static std::int64_t block_cols(const PackedMatrix& weight) noexcept { return weight.block_cols; }
  static std::int64_t block_bytes(const PackedMatrix& weight) noexcept {
    return fp8_block_offset(1, weight.block_cols);
  }
  // Makes up for the codes being loaded divided by 256.
  [[gnu::always_inline]] static typename S::V scale(const std::byte* at) noexcept {
    return S::mul(S::load(static_cast<const float*>(static_cast<const void*>(at))),
                  S::broadcast(256.0F));
  }
};

template <class S>
struct Mxfp4Codes {
  using Product = E2m1Product<S>;
  static constexpr std::int64_t kScaleBytes = kPanelRows;

  static std::int64_t block_cols(const PackedMatrix&) noexcept { return kMxfp4Group; }
  static std::int64_t block_bytes(const PackedMatrix&) noexcept { return kMxfp4GroupBytes; }
  [[gnu::always_inline]] static typename S::V scale(const std::byte* at) noexcept {
    return S::load_e8m0(at);
  }
};

// fp8 and mxfp4: a chain per scale block, then one multiply-add with the scale.
template <class S, class Codes>
struct ScaledSums {
  using V = typename S::V;
  using Product = typename Codes::Product;
  using Activation = float;
  // From this many rows on, codes are first turned into f32 in the L1 cache, which costs one store
  // and saves the decoding in all tiles but one.
  static constexpr int kUnpackRows = S::kMaxTileRows + 1;
  static constexpr std::int64_t kUnpackCols = 128;

  static void compute(const PackedMatrix& weight, std::int64_t panel, int num_panels,
                      const RowBlock<float>& block) noexcept {
    const std::byte* data = weight.data + panel * weight.panel_stride_bytes;
    if (block.num_rows < kUnpackRows) {
      for_each_tile<S>(block.num_rows, [&](int first, int rows) {
        cover_tile<S>(rows, num_panels, [&]<int R, int P>(int p) {
          compute_packed<R, P>(weight, data + p * weight.panel_stride_bytes, block.rows + first,
                               block.sums + first * block.sums_stride + p * 16, block.sums_stride);
        });
      });
      return;
    }
    for (int p = 0; p < num_panels; ++p) {
      compute_unpacked(weight, data + p * weight.panel_stride_bytes, p, block);
    }
  }

 private:
  template <int R, int P>
  static void compute_packed(const PackedMatrix& weight, const std::byte* panel,
                             const float* const* rows, float* out, int out_stride) noexcept {
    const std::int64_t block_cols = Codes::block_cols(weight);
    for (std::int64_t begin = 0; begin < weight.cols; begin += block_cols) {
      const std::int64_t cols = begin + block_cols < weight.cols ? block_cols : weight.cols - begin;
      Matrix<V, R, P> sums;
#pragma GCC unroll 64
      for (int i = 0; i < R * P; ++i) {
        sums[i / P][i % P] = S::broadcast(0.0F);
      }
      accumulate_tile<S, Product, R, P>(
          {panel + Codes::kScaleBytes, weight.panel_stride_bytes, rows, begin, cols}, sums);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const V scale = Codes::scale(panel + p * weight.panel_stride_bytes);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          add_scaled(out + r * out_stride + p * 16, scale, sums[r][p], begin == 0);
        }
      }
      panel += Codes::block_bytes(weight);
    }
    if (weight.cols == 0) {
      for (int r = 0; r < R; ++r) {
        for (int p = 0; p < P; ++p) {
          S::store(out + r * out_stride + p * 16, S::broadcast(0.0F));
        }
      }
    }
  }

  [[gnu::always_inline]] static void add_scaled(float* total, V scale, V sum,
                                                bool is_first) noexcept {
    S::store(total, S::fma(scale, sum, is_first ? S::broadcast(0.0F) : S::load(total)));
  }

  // A scale block wider than kUnpackCols is taken in pieces, whose chains continue in `chains`.
  static void compute_unpacked(const PackedMatrix& weight, const std::byte* panel, int p,
                               const RowBlock<float>& block) noexcept {
    alignas(64) float chains[kMaxBlockRows * 16];
    const std::int64_t block_cols = Codes::block_cols(weight);
    for (std::int64_t begin = 0; begin < weight.cols; begin += block_cols) {
      const std::int64_t end = begin + block_cols < weight.cols ? begin + block_cols : weight.cols;
      const V scale = Codes::scale(panel);
      const std::byte* codes = panel + Codes::kScaleBytes;
      for (std::int64_t col = begin; col < end; col += kUnpackCols) {
        const std::int64_t cols = end - col < kUnpackCols ? end - col : kUnpackCols;
        multiply_piece(block, codes, col, cols, chains, col == begin);
        codes += kUnpackCols / Product::kColumns * Product::kStepBytes;
      }
      for (int r = 0; r < block.num_rows; ++r) {
        add_scaled(block.sums + r * block.sums_stride + p * 16, scale, S::load(chains + r * 16),
                   begin == 0);
      }
      panel += Codes::block_bytes(weight);
    }
    if (weight.cols == 0) {
      for (int r = 0; r < block.num_rows; ++r) {
        S::store(block.sums + r * block.sums_stride + p * 16, S::broadcast(0.0F));
      }
    }
  }

  static void multiply_piece(const RowBlock<float>& block, const std::byte* codes, std::int64_t col,
                             std::int64_t cols, float* chains, bool is_first) noexcept {
    alignas(64) std::byte unpacked[kUnpackCols * 64];
    unpack(codes, cols, static_cast<float*>(static_cast<void*>(unpacked)));
    for_each_tile<S>(block.num_rows, [&](int first, int rows) {
      cover_tile<S>(rows, 1, [&]<int R, int P>(int) {
        static_assert(P >= 1);
        Matrix<V, R, 1> sums;
        float* chain = chains + first * 16;
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sums[r][0] = is_first ? S::broadcast(0.0F) : S::load(chain + r * 16);
        }
        accumulate_tile<S, F32Product<S>, R, 1>({unpacked, 0, block.rows + first, col, cols}, sums);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          S::store(chain + r * 16, sums[r][0]);
        }
      });
    });
  }

  static void unpack(const std::byte* codes, std::int64_t cols, float* out) noexcept {
    for (std::int64_t col = 0; col < cols; col += Product::kColumns) {
      S::store(out + col * 16, Product::template weight<0>(codes));
      if constexpr (Product::kColumns == 2) {
        S::store(out + (col + 1) * 16, Product::template weight<1>(codes));
      }
      codes += Product::kStepBytes;
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
        return visit.template operator()<PlainSums<S, typename S::template Bf16Activations<S>>>();
      }
      return visit.template operator()<PlainSums<S, Bf16Product<S>>>();
    case WeightFormat::kFp8:
      return visit.template operator()<ScaledSums<S, Fp8Codes<S>>>();
    case WeightFormat::kMxfp4:
      return visit.template operator()<ScaledSums<S, Mxfp4Codes<S>>>();
  }
}

// Args is GemmArgs or GateUpArgs. Calls finish(first_row, num_rows, panel, num_panels, sums,
// sums_stride) for every block of rows and group of panels. A group holds an even number of panels
// unless panel_end cuts it short.
template <class S, class Sums, class Args, class Finish>
[[gnu::always_inline]] inline void for_each_block(const Args& args, std::int64_t panel_begin,
                                                  std::int64_t panel_end, Finish finish) noexcept {
  using Activation = typename Sums::Activation;
  alignas(64) float sums[kSumsFloats];
  const auto* x = static_cast<const Activation*>(args.x);
  const std::int64_t num_blocks = ceil_div(args.num_rows, kMaxBlockRows);
  for (std::int64_t idx = 0; idx < num_blocks; ++idx) {
    const std::int64_t begin = idx * args.num_rows / num_blocks;
    const std::int64_t end = (idx + 1) * args.num_rows / num_blocks;
    RowBlock<Activation> block;
    block.num_rows = static_cast<int>(end - begin);
    for (int r = 0; r < block.num_rows; ++r) {
      const std::int64_t row = args.x_rows != nullptr ? args.x_rows[begin + r] : begin + r;
      block.rows[r] = x + row * args.x_stride;
    }
    const int group = block.num_rows <= kFewRows ? kGroupPanelsFewRows : kGroupPanels;
    block.sums_stride = group * 16;
    block.sums = sums;
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += group) {
      const int num_panels =
          panel_end - panel < group ? static_cast<int>(panel_end - panel) : group;
      Sums::compute(args.weight, panel, num_panels, block);
      finish(begin, block.num_rows, panel, num_panels, sums, block.sums_stride);
    }
  }
}

template <class S>
[[gnu::always_inline]] inline typename S::V load_bias(const float* bias, std::int64_t at,
                                                      std::int64_t count) noexcept {
  if (bias == nullptr) {
    return S::broadcast(0.0F);
  }
  return count >= 16 ? S::load(bias + at) : S::load_partial(bias + at, count);
}

template <class S>
void gemm(const GemmArgs& args) noexcept {
  with_sums<S>(args.weight.format, args.activation_format, [&]<class Sums>() {
    for_each_block<S, Sums>(args, args.panel_begin, args.panel_end,
                            [&](std::int64_t first_row, int num_rows, std::int64_t panel,
                                int num_panels, const float* sums, int sums_stride) {
                              for (int p = 0; p < num_panels; ++p) {
                                const std::int64_t out = (panel + p) * kPanelRows;
                                const std::int64_t count = args.weight.rows - out;
                                const auto bias = load_bias<S>(args.bias, out, count);
                                for (int r = 0; r < num_rows; ++r) {
                                  const auto y =
                                      S::add(S::load(sums + r * sums_stride + p * 16), bias);
                                  float* at = args.y + (first_row + r) * args.y_stride + out;
                                  if (count >= kPanelRows) {
                                    S::store(at, y);
                                  } else {
                                    S::store_partial(at, y, count);
                                  }
                                }
                              }
                            });
  });
}

// Llama's SwiGLU, or the clamped form of the gpt-oss reference model.
template <class S>
[[gnu::always_inline]] inline typename S::V glu(const GateUpArgs& args, typename S::V gate,
                                                typename S::V up) noexcept {
  const auto one = S::broadcast(1.0F);
  if (args.glu == GluKind::kSilu) {
    return S::mul(swish<S>(gate, one), up);
  }
  const auto limit = S::broadcast(args.limit);
  const auto clamped_gate = S::min(limit, gate);
  const auto clamped_up = S::max(S::broadcast(-args.limit), S::min(limit, up));
  return S::mul(swish<S>(clamped_gate, S::broadcast(args.alpha)), S::add(clamped_up, one));
}

template <class S>
[[gnu::always_inline]] inline void store_hidden(const GateUpArgs& args, std::int64_t row,
                                                std::int64_t out, typename S::V value) noexcept {
  const std::int64_t count = args.intermediate - out;
  if (args.activation_format == ActivationFormat::kF32) {
    float* at = static_cast<float*>(args.h) + row * args.h_stride + out;
    if (count >= kPanelRows) {
      S::store(at, value);
    } else {
      S::store_partial(at, value, count);
    }
    return;
  }
  std::uint16_t* at = static_cast<std::uint16_t*>(args.h) + row * args.h_stride + out;
  if (count >= kPanelRows) {
    S::store_bf16(at, value);
    return;
  }
  std::uint16_t rounded[kPanelRows];
  S::store_bf16(rounded, value);
  for (std::int64_t i = 0; i < count; ++i) {
    at[i] = rounded[i];
  }
}

template <class S>
void gemm_gate_up(const GateUpArgs& args) noexcept {
  with_sums<S>(args.weight.format, args.activation_format, [&]<class Sums>() {
    for_each_block<S, Sums>(args, 2 * args.pair_begin, 2 * args.pair_end,
                            [&](std::int64_t first_row, int num_rows, std::int64_t panel,
                                int num_panels, const float* sums, int sums_stride) {
                              for (int p = 0; p < num_panels; p += 2) {
                                const std::int64_t out = (panel + p) / 2 * kPanelRows;
                                const std::int64_t count = args.intermediate - out;
                                const auto gate_bias = load_bias<S>(args.gate_bias, out, count);
                                const auto up_bias = load_bias<S>(args.up_bias, out, count);
                                for (int r = 0; r < num_rows; ++r) {
                                  const float* at = sums + r * sums_stride + p * 16;
                                  const auto gate = S::add(S::load(at), gate_bias);
                                  const auto up = S::add(S::load(at + 16), up_bias);
                                  store_hidden<S>(args, first_row + r, out, glu<S>(args, gate, up));
                                }
                              }
                            });
  });
}

}  // namespace moe::kernels::simd
