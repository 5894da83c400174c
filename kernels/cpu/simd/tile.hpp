#pragma once

// The register tile: R rows of activations times P panels of weights, the sums held in registers.
// A product policy says how weights and activations of one step become vectors:
//   kColumns, kStepBytes        columns and bytes of a panel that one step takes
//   kSubSteps                   multiply-adds of one step, of one column each or of two
//   Activation                  element type of the activations
//   weight(at, s, spare), activation(at, s), accumulate(w, x, sum)     for sub-step s; spare:
//                               registers that no sum takes
//   kIsCoded                    weights are not f32 in memory
//   kIsStaged                   may be made f32 in the L1 cache first where a level asks for it
//   activation_last(at)         for the last column of an odd number, where sub-steps take two
//   weight_last(at)             the same, where reading a whole step would pass the end of the
//                               codes

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/lanes.hpp"

namespace moe::kernels::simd {

// Arrays whose sizes are the int parameters of a tile.
template <class T, int N>
using Array = T[static_cast<std::size_t>(N)];
template <class T, int R, int P>
using Matrix = Array<Array<T, P>, R>;

// visit.template operator()<N>() for N = value, below `count`. Once loops are unrolled nothing is
// left of the choice.
template <int count, class Visit>
[[gnu::always_inline]] inline auto with_constant(int value, Visit visit) noexcept {
  if constexpr (count > 1) {
    if (value < count - 1) {
      return with_constant<count - 1>(value, visit);
    }
  }
  return visit.template operator()<count - 1>();
}

template <class S>
struct F32Product {
  using V = typename S::V;
  using Activation = float;
  static constexpr std::int64_t kColumns = 1;
  static constexpr std::int64_t kStepBytes = 64;
  static constexpr int kSubSteps = 1;
  static constexpr bool kIsCoded = false;
  static constexpr bool kIsStaged = true;

  [[gnu::always_inline]] static V weight(const std::byte* at, int, int) noexcept {
    return S::load(static_cast<const float*>(static_cast<const void*>(at)));
  }
  [[gnu::always_inline]] static V activation(const float* at, int) noexcept {
    return S::broadcast(*at);
  }
  [[gnu::always_inline]] static V accumulate(V w, V x, V sum) noexcept { return S::fma(w, x, sum); }
};

template <class S>
struct F16Product : F32Product<S> {
  static constexpr std::int64_t kStepBytes = 32;
  static constexpr bool kIsCoded = true;

  [[gnu::always_inline]] static typename S::V weight(const std::byte* at, int, int) noexcept {
    return S::load_f16(at);
  }
};

// Two columns a step: panels of bf16 hold pairs.
template <class S>
struct Bf16Product : F32Product<S> {
  using V = typename S::V;
  static constexpr std::int64_t kColumns = 2;
  static constexpr int kSubSteps = 2;
  static constexpr bool kIsCoded = true;

  [[gnu::always_inline]] static V weight(const std::byte* at, int s, int spare) noexcept {
    return s == 0 ? S::load_bf16_even(at) : S::load_bf16_odd(at, spare);
  }
  [[gnu::always_inline]] static V activation(const float* at, int s) noexcept {
    return S::broadcast(at[s]);
  }
  [[gnu::always_inline]] static V activation_last(const float* at) noexcept {
    return S::broadcast(*at);
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
  static constexpr bool kIsCoded = true;
  static constexpr bool kIsStaged = false;

  [[gnu::always_inline]] static V weight(const std::byte* at, int, int) noexcept {
    return S::load_pairs(at);
  }
  [[gnu::always_inline]] static V activation(const std::uint16_t* at, int) noexcept {
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
  static constexpr bool kIsCoded = true;

  [[gnu::always_inline]] static typename S::V weight(const std::byte* at, int, int) noexcept {
    return S::load_e4m3_div256(at);
  }
};

template <class S>
struct E2m1Product : Bf16Product<S> {
  static constexpr std::int64_t kStepBytes = 16;
  static constexpr bool kIsCoded = true;

  [[gnu::always_inline]] static typename S::V weight(const std::byte* at, int s, int) noexcept {
    return s == 0 ? S::load_e2m1_low(at) : S::load_e2m1_high(at);
  }
};

// Four columns a step, of which a byte each in a word of every output.
template <class S>
struct Int8Product : F32Product<S> {
  static constexpr std::int64_t kColumns = 4;
  static constexpr int kSubSteps = 4;
  static constexpr bool kIsCoded = true;

  [[gnu::always_inline]] static typename S::V weight(const std::byte* at, int s,
                                                     int spare) noexcept {
    return with_constant<kSubSteps>(
        s, [&]<int col>() { return S::template load_i8_col<col>(at, spare); });
  }
  [[gnu::always_inline]] static typename S::V activation(const float* at, int s) noexcept {
    return S::broadcast(at[s]);
  }
};

// Eight columns, of which half a byte each.
template <class S>
struct Int4Product : Int8Product<S> {
  static constexpr std::int64_t kColumns = 8;
  static constexpr int kSubSteps = 8;

  [[gnu::always_inline]] static typename S::V weight(const std::byte* at, int s, int) noexcept {
    return with_constant<kSubSteps>(s, [&]<int col>() { return S::template load_u4_col<col>(at); });
  }
};

// Codes unpacked to pairs of bf16, which hold each of them exactly (e4m3 / 256 has 4 bits and is
// normal), for the bf16 dot product.
template <class S, class CodeProduct>
struct CodedDotProduct;

template <class S>
struct CodedDotProduct<S, E4m3Product<S>> : Bf16DotProduct<S> {
  static constexpr std::int64_t kStepBytes = 32;

  [[gnu::always_inline]] static typename S::Pairs weight(const std::byte* at, int, int) noexcept {
    return S::to_pairs(S::load_e4m3_div256(at), S::load_e4m3_div256(at + 16));
  }
  [[gnu::always_inline]] static typename S::Pairs weight_last(const std::byte* at) noexcept {
    return S::to_pairs(S::load_e4m3_div256(at), S::broadcast(0.0F));
  }
};

template <class S>
struct CodedDotProduct<S, E2m1Product<S>> : Bf16DotProduct<S> {
  static constexpr std::int64_t kStepBytes = 16;

  [[gnu::always_inline]] static typename S::Pairs weight(const std::byte* at, int, int) noexcept {
    return S::load_e2m1_pairs(at);
  }
};

template <class S>
struct CodedDotProduct<S, Int8Product<S>> : Bf16DotProduct<S> {
  static constexpr std::int64_t kColumns = 4;
  static constexpr int kSubSteps = 2;

  [[gnu::always_inline]] static typename S::Pairs weight(const std::byte* at, int s, int) noexcept {
    return with_constant<kSubSteps>(
        s, [&]<int pair>() { return S::template load_i8_pairs<pair>(at); });
  }
  [[gnu::always_inline]] static typename S::Pairs activation(const std::uint16_t* at,
                                                             int s) noexcept {
    return S::broadcast_pair(at + std::ptrdiff_t{2} * s);
  }
};

template <class S>
struct CodedDotProduct<S, Int4Product<S>> : CodedDotProduct<S, Int8Product<S>> {
  static constexpr std::int64_t kColumns = 8;
  static constexpr int kSubSteps = 4;

  [[gnu::always_inline]] static typename S::Pairs weight(const std::byte* at, int s, int) noexcept {
    return with_constant<kSubSteps>(
        s, [&]<int pair>() { return S::template load_u4_pairs<pair>(at); });
  }
};

// Columns of a sub-step: one, or a pair.
template <class Product>
inline constexpr std::int64_t kSubColumns = Product::kColumns / Product::kSubSteps;

// The weights of sub-step s, of which only the first column is in the panel.
template <class Product>
[[gnu::always_inline]] inline auto last_weight(const std::byte* at, int s, int spare) noexcept {
  if constexpr (requires { Product::weight_last(at); }) {
    return Product::weight_last(at);
  } else {
    return Product::weight(at, s, spare);
  }
}

// Bytes of a panel that whole steps of these columns take.
template <class Product>
[[nodiscard]] constexpr std::int64_t step_bytes(std::int64_t num_cols) noexcept {
  return num_cols / Product::kColumns * Product::kStepBytes;
}

// Where a tile reads: panel p at panel + p * panel_stride, row r at rows[r] + first_col.
template <class Activation>
struct TileInput {
  const std::byte* panel;
  std::int64_t panel_stride;
  const Activation* const* rows;
  std::int64_t first_col;
  std::int64_t num_cols;
};

// Makes the compiler read memory again instead of keeping what it has read. Where sums fill most
// registers, a kept weight or activation would push a sum out to the stack (GCC 12: up to 22
// reloads in a loop of 24 multiply-adds).
[[gnu::always_inline]] inline void forget_loads() noexcept {
  __asm__ volatile("" ::: "memory");
}
// Makes the compiler leave what it wrote at `at` in memory.
[[gnu::always_inline]] inline void forget(const void* at) noexcept {
  __asm__ volatile("" : : "r"(at) : "memory");
}

// Weights that come from memory are asked for this far ahead of their use, so that the next arrive
// while these are multiplied, where a level says that it pays. Past the end of a panel lies the
// next one, past the last nothing is read.
inline constexpr std::int64_t kAheadBytes = 4096;
[[gnu::always_inline]] inline void fetch_ahead(const std::byte* at) noexcept {
  __builtin_prefetch(at + kAheadBytes);
}

// Which memory a tile asks for while it multiplies: none, its own further on, or the next piece's.
enum class Fetch : std::uint8_t { kNothing, kAhead, kNext };

// Where a tile asks for the next piece, at both places a step. shift: of staged weights, whose
// steps are 2^shift times as long as those of the codes that they are made of.
struct NextLines {
  const std::byte* lines[2];
  int shift = 0;

  [[gnu::always_inline]] void advance(std::int64_t bytes) noexcept {
    lines[0] += bytes;
    lines[1] += bytes;
  }
};

// Tiles that share a piece of four panels, its panels `delta` bytes from those of the next piece:
// while they multiply they ask for that, so that memory is read at an even pace and not by the
// first tile alone. Of two tiles each takes two panels, of three the first does, of more four take
// one.
struct NextPiece {
  static constexpr int kPanels = 4;
  std::int64_t delta;
  int num_tiles;

  // What tile `tile` asks for; its own panel where nothing is left.
  [[nodiscard]] [[gnu::always_inline]] NextLines lines_of(int tile, const std::byte* panel,
                                                          std::int64_t stride) const noexcept {
    NextLines out{{panel, panel}};
    const bool takes_two = num_tiles == 2 || (num_tiles == 3 && tile == 0);
    const int first = num_tiles == 2 ? 2 * tile : num_tiles == 3 && tile > 0 ? tile + 1 : tile;
    if (num_tiles > 1 && first < kPanels) {
      out.lines[0] = panel + delta + first * stride;
      out.lines[1] = takes_two ? out.lines[0] + stride : panel;
    }
    return out;
  }
};

// Into the second-level cache: the first has no room beside the piece in use.
[[gnu::always_inline]] inline void fetch_next(const NextLines& next, std::int64_t offset) noexcept {
  __builtin_prefetch(next.lines[0] + (offset >> next.shift), 0, 2);
  __builtin_prefetch(next.lines[1] + (offset >> next.shift), 0, 2);
}

// sums[r][p] += the products of sub-step s of the step at `weights`, for all rows.
template <class S, class Product, int R, int P>
[[gnu::always_inline]] inline void add_sub_step(
    const std::byte* weights, int s, int p, const Array<const typename Product::Activation*, R>& x,
    std::int64_t col, Matrix<typename S::V, R, P>& sums) noexcept {
  const auto weight = Product::weight(weights, s, S::spare_registers(R, P));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sums[r][p] = Product::accumulate(weight, Product::activation(x[r] + col, s), sums[r][p]);
  }
}

// sums[r][p] += the products of `rest` columns from `col` on, fewer than a step has; w: at
// `offset`.
template <class S, class Product, int R, int P>
[[gnu::always_inline]] inline void accumulate_rest(
    const Array<const std::byte*, P>& w, std::int64_t offset,
    const Array<const typename Product::Activation*, R>& x, std::int64_t col, std::int64_t rest,
    Matrix<typename S::V, R, P>& sums) noexcept {
  const int num_whole = static_cast<int>(rest / kSubColumns<Product>);
  for (int s = 0; s < num_whole; ++s) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      add_sub_step<S, Product, R, P>(w[p] + offset, s, p, x, col, sums);
    }
  }
  if constexpr (kSubColumns<Product> == 2) {
    if (rest % 2 != 0) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const auto weight =
            last_weight<Product>(w[p] + offset, num_whole, S::spare_registers(R, P));
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          sums[r][p] = Product::accumulate(weight, Product::activation_last(x[r] + col + rest - 1),
                                           sums[r][p]);
        }
      }
    }
  }
}

// sums[r][p] += the products over the columns of the input, one chain each.
template <class S, class Product, int R, int P, Fetch fetch>
[[gnu::always_inline]] inline void accumulate_tile(
    const TileInput<typename Product::Activation>& in, Matrix<typename S::V, R, P>& sums,
    [[maybe_unused]] const NextLines& next = {}) noexcept {
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
  const std::int64_t whole_cols = in.num_cols / Product::kColumns * Product::kColumns;
  std::int64_t offset = 0;
  for (std::int64_t col = 0; col < whole_cols; col += Product::kColumns) {
#pragma GCC unroll 8
    for (int s = 0; s < Product::kSubSteps; ++s) {
      if constexpr (S::forgets_between_steps(R, P)) {
        forget_loads();
      }
      if constexpr (fetch == Fetch::kNext) {
        if (s == 0) {
          fetch_next(next, offset);
        }
      }
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        if constexpr (S::forgets_between_panels(R, P)) {
          forget_loads();
        }
        if constexpr (fetch == Fetch::kAhead &&
                      S::fetches_in_tile(R, Product::kStepBytes / Product::kSubSteps)) {
          if (s == 0) {
            fetch_ahead(w[p] + offset);
          }
        }
        add_sub_step<S, Product, R, P>(w[p] + offset, s, p, x, col, sums);
      }
    }
    offset += Product::kStepBytes;
  }
  if constexpr (Product::kColumns > 1) {
    if (whole_cols != in.num_cols) {
      accumulate_rest<S, Product, R, P>(w, offset, x, whole_cols, in.num_cols - whole_cols, sums);
    }
  }
}

// Calls visit.template operator()<R, P>(first_panel) so that the tiles cover `panels` panels, with
// the widest tile that the registers hold for R rows first and narrower ones for what is left. Few
// widths, because each is a function of its own for every format.
template <int R, int P, class Visit>
[[gnu::always_inline]] inline void cover_panels(int first, int panels, Visit& visit) noexcept {
  for (; panels - first >= P; first += P) {
    visit.template operator()<R, P>(first);
  }
  if constexpr (P > 1) {
    if (first < panels) {
      cover_panels<R, (P == 8 ? 4 : 1)>(first, panels, visit);
    }
  }
}

// The same for `rows` rows, at most kMaxRows. No tile is wider than kMaxPanels.
template <class S, class Product, int kMaxPanels, int kMaxRows = S::kMaxTileRows, class Visit>
[[gnu::always_inline]] inline void cover_tile(int rows, int panels, Visit visit) noexcept {
  if (rows == kMaxRows) {
    constexpr int kWidest =
        S::tile_panels(kMaxRows, Product::kIsCoded, Product::kStepBytes / Product::kSubSteps);
    cover_panels<kMaxRows, (kWidest < kMaxPanels ? kWidest : kMaxPanels)>(0, panels, visit);
  } else if constexpr (kMaxRows > 1) {
    cover_tile<S, Product, kMaxPanels, kMaxRows - 1>(rows, panels, visit);
  }
}

}  // namespace moe::kernels::simd
