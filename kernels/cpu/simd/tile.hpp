#pragma once

// The register tile: R rows of activations times P panels of weights, the sums held in registers.
// A product policy says how weights and activations of one step become vectors:
//   kColumns, kStepBytes        columns and bytes of a panel that one step takes
//   kSubSteps                   multiply-adds of one step
//   Activation                  element type of the activations
//   weight<s>(at), activation<s>(at), accumulate(w, x, sum)
//   activation_last(at)         for the last column of an odd number (kColumns == 2)

#include <cstddef>
#include <cstdint>

namespace moe::kernels::simd {

// Arrays whose sizes are the int parameters of a tile.
template <class T, int N>
using Array = T[static_cast<std::size_t>(N)];
template <class T, int R, int P>
using Matrix = Array<Array<T, P>, R>;

template <class S>
struct F32Product {
  using V = typename S::V;
  using Activation = float;
  static constexpr std::int64_t kColumns = 1;
  static constexpr std::int64_t kStepBytes = 64;
  static constexpr int kSubSteps = 1;

  template <int s>
  [[gnu::always_inline]] static V weight(const std::byte* at) noexcept {
    return S::load(static_cast<const float*>(static_cast<const void*>(at)));
  }
  template <int s>
  [[gnu::always_inline]] static V activation(const float* at) noexcept {
    return S::broadcast(*at);
  }
  [[gnu::always_inline]] static V accumulate(V w, V x, V sum) noexcept { return S::fma(w, x, sum); }
};

template <class S>
struct F16Product : F32Product<S> {
  static constexpr std::int64_t kStepBytes = 32;

  template <int s>
  [[gnu::always_inline]] static typename S::V weight(const std::byte* at) noexcept {
    return S::load_f16(at);
  }
};

// Two columns a step: panels of bf16 hold pairs.
template <class S>
struct Bf16Product : F32Product<S> {
  using V = typename S::V;
  static constexpr std::int64_t kColumns = 2;
  static constexpr int kSubSteps = 2;

  template <int s>
  [[gnu::always_inline]] static V weight(const std::byte* at) noexcept {
    return s == 0 ? S::load_bf16_even(at) : S::load_bf16_odd(at);
  }
  template <int s>
  [[gnu::always_inline]] static V activation(const float* at) noexcept {
    return S::broadcast(at[s]);
  }
  [[gnu::always_inline]] static V activation_last(const float* at) noexcept {
    return S::broadcast(*at);
  }
};

// bf16 activations, widened to f32.
template <class S>
struct Bf16WideProduct : Bf16Product<S> {
  using V = typename S::V;
  using Activation = std::uint16_t;

  template <int s>
  [[gnu::always_inline]] static V activation(const std::uint16_t* at) noexcept {
    return s == 0 ? S::broadcast_bf16_even(at) : S::broadcast_bf16_odd(at);
  }
  [[gnu::always_inline]] static V activation_last(const std::uint16_t* at) noexcept {
    return S::broadcast_bf16(*at);
  }
};

// bf16 activations, multiplied in pairs by the bf16 dot product instruction.
template <class S>
struct Bf16DotProduct {
  using V = typename S::Pairs;
  using Activation = std::uint16_t;
  static constexpr std::int64_t kColumns = 2;
  static constexpr std::int64_t kStepBytes = 64;
  static constexpr int kSubSteps = 1;

  template <int s>
  [[gnu::always_inline]] static V weight(const std::byte* at) noexcept {
    return S::load_pairs(at);
  }
  template <int s>
  [[gnu::always_inline]] static V activation(const std::uint16_t* at) noexcept {
    return S::broadcast_pair(at);
  }
  [[gnu::always_inline]] static V activation_last(const std::uint16_t* at) noexcept {
    return S::broadcast_pair_with_zero(*at);
  }
  [[gnu::always_inline]] static typename S::V accumulate(V w, V x, typename S::V sum) noexcept {
    return S::dot_bf16(w, x, sum);
  }
};

template <class S>
struct E4m3Product : F32Product<S> {
  static constexpr std::int64_t kStepBytes = 16;

  template <int s>
  [[gnu::always_inline]] static typename S::V weight(const std::byte* at) noexcept {
    return S::load_e4m3_div256(at);
  }
};

template <class S>
struct E2m1Product : Bf16Product<S> {
  static constexpr std::int64_t kStepBytes = 16;

  template <int s>
  [[gnu::always_inline]] static typename S::V weight(const std::byte* at) noexcept {
    return s == 0 ? S::load_e2m1_low(at) : S::load_e2m1_high(at);
  }
};

// Where a tile reads: panel p at panel + p * panel_stride, row r at rows[r] + first_col.
template <class Activation>
struct TileInput {
  const std::byte* panel;
  std::int64_t panel_stride;
  const Activation* const* rows;
  std::int64_t first_col;
  std::int64_t num_cols;
};

// sums[r][p] += the products over the columns of the input, one chain each.
template <class S, class Product, int R, int P>
[[gnu::always_inline]] inline void accumulate_tile(
    const TileInput<typename Product::Activation>& in, Matrix<typename S::V, R, P>& sums) noexcept {
  Array<const typename Product::Activation*, R> x;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    x[r] = in.rows[r] + in.first_col;
  }
  Array<const std::byte*, P> w;
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    w[p] = in.panel + p * in.panel_stride;
  }
  const std::int64_t even_cols = in.num_cols / Product::kColumns * Product::kColumns;
  std::int64_t offset = 0;
  for (std::int64_t col = 0; col < even_cols; col += Product::kColumns) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const auto w0 = Product::template weight<0>(w[p] + offset);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][p] =
            Product::accumulate(w0, Product::template activation<0>(x[r] + col), sums[r][p]);
      }
    }
    if constexpr (Product::kSubSteps == 2) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const auto w1 = Product::template weight<1>(w[p] + offset);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sums[r][p] =
              Product::accumulate(w1, Product::template activation<1>(x[r] + col), sums[r][p]);
        }
      }
    }
    offset += Product::kStepBytes;
  }
  if constexpr (Product::kColumns == 2) {
    if (even_cols != in.num_cols) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const auto w0 = Product::template weight<0>(w[p] + offset);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sums[r][p] =
              Product::accumulate(w0, Product::activation_last(x[r] + even_cols), sums[r][p]);
        }
      }
    }
  }
}

// Calls visit.template operator()<R, P>(first_panel) so that the tiles cover `panels` panels, with
// the widest tile that the registers hold for R rows first and halves of it for what is left.
template <int R, int P, class Visit>
[[gnu::always_inline]] inline void cover_panels(int first, int panels, Visit& visit) noexcept {
  for (; panels - first >= P; first += P) {
    visit.template operator()<R, P>(first);
  }
  if constexpr (P > 1) {
    if (first < panels) {
      cover_panels<R, P / 2>(first, panels, visit);
    }
  }
}

template <class S, int R = S::kMaxTileRows, class Visit>
[[gnu::always_inline]] inline void cover_tile(int rows, int panels, Visit visit) noexcept {
  if (rows == R) {
    cover_panels<R, S::tile_panels(R)>(0, panels, visit);
  } else if constexpr (R > 1) {
    cover_tile<S, R - 1>(rows, panels, visit);
  }
}

}  // namespace moe::kernels::simd
