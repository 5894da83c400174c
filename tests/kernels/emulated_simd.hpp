#pragma once

// The vector type of a level as sixteen floats in plain C++, for the templates of kernels/cpu/simd.
// kernels/cpu/avx2/simd.hpp says what the functions mean.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx512/shape.hpp"
#include "kernels/cpu/numeric.hpp"

namespace moe::kernels {
namespace {

inline constexpr std::size_t kLanes = 16;

// Never inlined: a tile holds hundreds of these, and the templates are instantiated for every tile.
struct Emulated : Avx512Shape {
  struct V {
    std::array<float, kLanes> lanes;
  };
  struct Pairs {
    std::array<std::uint32_t, kLanes> lanes;
  };

  template <class Function>
  static V each(Function function) noexcept {
    V out;
    for (std::size_t i = 0; i < kLanes; ++i) {
      out.lanes[i] = function(i);
    }
    return out;
  }
  template <class T>
  static T element(const void* at, std::size_t i) noexcept {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(at) + i * sizeof(T), sizeof(T));
    return value;
  }
  // The code of column `col` of eight.
  static int nibble(const std::byte* at, std::size_t output, std::size_t col) noexcept {
    const auto pair = element<std::uint8_t>(at, 4 * output + col % 4);
    return col < 4 ? pair & 0xf : pair >> 4;
  }

  [[gnu::noinline]] static V broadcast(float value) noexcept {
    return each([=](std::size_t) { return value; });
  }
  [[gnu::noinline]] static V load(const float* at) noexcept {
    return each([=](std::size_t i) { return at[i]; });
  }
  [[gnu::noinline]] static void store(float* at, const V& a) noexcept {
    std::copy_n(a.lanes.begin(), kLanes, at);
  }
  [[gnu::noinline]] static V load_partial(const float* at, std::int64_t count) noexcept {
    return each([=](std::size_t i) { return static_cast<std::int64_t>(i) < count ? at[i] : 0.0F; });
  }
  [[gnu::noinline]] static void store_partial(float* at, const V& a, std::int64_t count) noexcept {
    std::copy_n(a.lanes.begin(), std::clamp<std::int64_t>(count, 0, kLanes), at);
  }
  [[gnu::noinline]] static V add(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return a.lanes[i] + b.lanes[i]; });
  }
  [[gnu::noinline]] static V sub(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return a.lanes[i] - b.lanes[i]; });
  }
  [[gnu::noinline]] static V mul(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return a.lanes[i] * b.lanes[i]; });
  }
  [[gnu::noinline]] static V div(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return a.lanes[i] / b.lanes[i]; });
  }
  [[gnu::noinline]] static V fma(const V& a, const V& b, const V& c) noexcept {
    return each([&](std::size_t i) { return std::fma(a.lanes[i], b.lanes[i], c.lanes[i]); });
  }
  [[gnu::noinline]] static V min(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return a.lanes[i] < b.lanes[i] ? a.lanes[i] : b.lanes[i]; });
  }
  [[gnu::noinline]] static V max(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return a.lanes[i] > b.lanes[i] ? a.lanes[i] : b.lanes[i]; });
  }
  [[gnu::noinline]] static V round(const V& a) noexcept {
    return each([&](std::size_t i) { return std::nearbyint(a.lanes[i]); });
  }
  [[gnu::noinline]] static V scale_by_power(const V& a, const V& n) noexcept {
    return each([&](std::size_t i) {
      return std::isnan(n.lanes[i]) ? n.lanes[i]
                                    : std::ldexp(a.lanes[i], static_cast<int>(n.lanes[i]));
    });
  }
  [[gnu::noinline]] static V zero_below(const V& x, const V& threshold, const V& value) noexcept {
    return each(
        [&](std::size_t i) { return x.lanes[i] < threshold.lanes[i] ? 0.0F : value.lanes[i]; });
  }
  [[gnu::noinline]] static V select_lanes(const V& a, std::int64_t begin, std::int64_t end,
                                          const V& fill) noexcept {
    return each([&](std::size_t i) {
      const auto lane = static_cast<std::int64_t>(i);
      return lane >= begin && lane < end ? a.lanes[i] : fill.lanes[i];
    });
  }
  [[gnu::noinline]] static float first(const V& a) noexcept { return a.lanes[0]; }
  [[gnu::noinline]] static float reduce_add(const V& a) noexcept {
    float sum = 0.0F;
    for (const float lane : a.lanes) {
      sum += lane;
    }
    return sum;
  }
  [[gnu::noinline]] static float reduce_max(const V& a) noexcept {
    return *std::max_element(a.lanes.begin(), a.lanes.end());
  }
  // Within each group of four lanes: a0 b0 a1 b1, a2 b2 a3 b3, a0 a1 b0 b1, a2 a3 b2 b3.
  [[gnu::noinline]] static V unpack_low(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return (i % 2 == 0 ? a : b).lanes[i / 4 * 4 + i % 4 / 2]; });
  }
  [[gnu::noinline]] static V unpack_high(const V& a, const V& b) noexcept {
    return each(
        [&](std::size_t i) { return (i % 2 == 0 ? a : b).lanes[i / 4 * 4 + 2 + i % 4 / 2]; });
  }
  [[gnu::noinline]] static V unpack_low_pairs(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return (i % 4 < 2 ? a : b).lanes[i / 4 * 4 + i % 2]; });
  }
  [[gnu::noinline]] static V unpack_high_pairs(const V& a, const V& b) noexcept {
    return each([&](std::size_t i) { return (i % 4 < 2 ? a : b).lanes[i / 4 * 4 + 2 + i % 2]; });
  }
  template <int quarter>
  [[gnu::noinline]] static void store_quarter(float* at, const V& a) noexcept {
    std::copy_n(a.lanes.begin() + std::ptrdiff_t{4} * quarter, 4, at);
  }

  [[gnu::noinline]] static V load_f16(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return f16_value(element<std::uint16_t>(at, i)); });
  }
  [[gnu::noinline]] static V load_bf16_even(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return bf16_value(element<std::uint16_t>(at, 2 * i)); });
  }
  [[gnu::noinline]] static V load_bf16_odd(const std::byte* at, int) noexcept {
    return each([=](std::size_t i) { return bf16_value(element<std::uint16_t>(at, 2 * i + 1)); });
  }
  [[gnu::noinline]] static V load_bf16(const std::uint16_t* at) noexcept {
    return each([=](std::size_t i) { return bf16_value(at[i]); });
  }
  [[gnu::noinline]] static V load_e4m3_div256(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return e4m3_value(element<std::uint8_t>(at, i)) / 256.0F; });
  }
  [[gnu::noinline]] static V load_e2m1_low(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return e2m1_value(element<std::uint8_t>(at, i) & 0xfU); });
  }
  [[gnu::noinline]] static V load_e2m1_high(const std::byte* at) noexcept {
    return each([=](std::size_t i) {
      return e2m1_value(static_cast<std::uint8_t>(element<std::uint8_t>(at, i) >> 4U));
    });
  }
  [[gnu::noinline]] static V load_i8(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return static_cast<float>(element<std::int8_t>(at, i)); });
  }
  template <int col>
  [[gnu::noinline]] static V load_i8_col(const std::byte* at, int = 0) noexcept {
    return each(
        [=](std::size_t i) { return static_cast<float>(element<std::int8_t>(at, 4 * i + col)); });
  }
  template <int col>
  [[gnu::noinline]] static V load_u4_col(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return static_cast<float>(nibble(at, i, col)); });
  }
  [[gnu::noinline]] static V load_e8m0(const std::byte* at) noexcept {
    return each([=](std::size_t i) { return e8m0_value(element<std::uint8_t>(at, i)); });
  }
  [[gnu::noinline]] static void store_bf16(std::uint16_t* at, const V& a) noexcept {
    std::transform(a.lanes.begin(), a.lanes.end(), at, bf16_from_f32);
  }

  [[gnu::noinline]] static Pairs load_pairs(const std::byte* at) noexcept {
    Pairs out;
    std::memcpy(out.lanes.data(), at, sizeof(out.lanes));
    return out;
  }
  [[gnu::noinline]] static Pairs broadcast_pair(const std::uint16_t* at) noexcept {
    Pairs out;
    out.lanes.fill(element<std::uint32_t>(at, 0));
    return out;
  }
  [[gnu::noinline]] static Pairs broadcast_pair_with_zero(std::uint16_t even) noexcept {
    Pairs out;
    out.lanes.fill(even);
    return out;
  }
  // The odd elements first, as the instruction does (Intel SDM, VDPBF16PS).
  [[gnu::noinline]] static V dot_bf16(const Pairs& a, const Pairs& b, const V& sum) noexcept {
    return each([&](std::size_t i) {
      const auto even = [](std::uint32_t pair) {
        return bf16_value(static_cast<std::uint16_t>(pair & 0xffffU));
      };
      const auto odd = [](std::uint32_t pair) {
        return bf16_value(static_cast<std::uint16_t>(pair >> 16U));
      };
      const float partial = std::fma(odd(a.lanes[i]), odd(b.lanes[i]), sum.lanes[i]);
      return std::fma(even(a.lanes[i]), even(b.lanes[i]), partial);
    });
  }
  [[gnu::noinline]] static void store(float* at, const Pairs& a) noexcept {
    std::memcpy(at, a.lanes.data(), sizeof(a.lanes));
  }
  // The high halves: what bf16 holds exactly.
  [[gnu::noinline]] static Pairs to_pairs(const V& even, const V& odd) noexcept {
    Pairs out;
    for (std::size_t i = 0; i < kLanes; ++i) {
      out.lanes[i] = (std::bit_cast<std::uint32_t>(even.lanes[i]) >> 16U) |
                     (std::bit_cast<std::uint32_t>(odd.lanes[i]) & 0xffff0000U);
    }
    return out;
  }
  template <int pair>
  [[gnu::noinline]] static Pairs load_i8_pairs(const std::byte* at) noexcept {
    return to_pairs(load_i8_col<2 * pair>(at), load_i8_col<2 * pair + 1>(at));
  }
  template <int pair>
  [[gnu::noinline]] static Pairs load_u4_pairs(const std::byte* at) noexcept {
    return to_pairs(load_u4_col<2 * pair>(at), load_u4_col<2 * pair + 1>(at));
  }
  [[gnu::noinline]] static Pairs load_e2m1_pairs(const std::byte* at) noexcept {
    return to_pairs(load_e2m1_low(at), load_e2m1_high(at));
  }
};

}  // namespace
}  // namespace moe::kernels
