#pragma once

// The integers of the AVX-512 levels in plain C++, for the templates of
// kernels/cpu/simd/int8_sums.hpp: in pairs of 16 bits, and in fours of 8 bits as VNNI has them.
// kernels/cpu/avx2/int8_simd.hpp says what the functions mean.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/kernels/emulated_simd.hpp"

namespace moe::kernels {
namespace {

struct EmulatedIntegers : Emulated {
  struct I {
    std::array<std::int32_t, kLanes> lanes;
  };
  using Dot = I;

  template <class Function>
  static I each_int(Function function) noexcept {
    I out;
    for (std::size_t i = 0; i < kLanes; ++i) {
      out.lanes[i] = function(i);
    }
    return out;
  }
  // Modulo 2^32.
  static std::int32_t wrapped(std::int64_t value) noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
  }

  [[gnu::noinline]] static I broadcast_int(std::int32_t value) noexcept {
    return each_int([=](std::size_t) { return value; });
  }
  [[gnu::noinline]] static I load_int(const std::int32_t* at) noexcept {
    return each_int([=](std::size_t i) { return at[i]; });
  }
  [[gnu::noinline]] static void store_int(std::int32_t* at, const I& a) noexcept {
    std::copy_n(a.lanes.begin(), kLanes, at);
  }
  [[gnu::noinline]] static I add_int(const I& a, const I& b) noexcept {
    return each_int([&](std::size_t i) { return wrapped(std::int64_t{a.lanes[i]} + b.lanes[i]); });
  }
  [[gnu::noinline]] static I max_int(const I& a, const I& b) noexcept {
    return each_int([&](std::size_t i) { return std::max(a.lanes[i], b.lanes[i]); });
  }
  [[gnu::noinline]] static I sub_product(const I& a, const I& b, const I& c) noexcept {
    return each_int(
        [&](std::size_t i) { return wrapped(a.lanes[i] - std::int64_t{b.lanes[i]} * c.lanes[i]); });
  }
  [[gnu::noinline]] static std::int32_t reduce_add_int(const I& a) noexcept {
    std::int64_t sum = 0;
    for (const std::int32_t lane : a.lanes) {
      sum += lane;
    }
    return wrapped(sum);
  }
  [[gnu::noinline]] static std::int32_t reduce_max_int(const I& a) noexcept {
    return *std::max_element(a.lanes.begin(), a.lanes.end());
  }
  [[gnu::noinline]] static I magnitude_bits(const V& a) noexcept {
    return each_int([&](std::size_t i) {
      return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(a.lanes[i]) & 0x7fffffffU);
    });
  }
  [[gnu::noinline]] static I to_int(const V& a) noexcept {
    return each_int(
        [&](std::size_t i) { return static_cast<std::int32_t>(std::nearbyint(a.lanes[i])); });
  }
  [[gnu::noinline]] static V to_float(const I& a) noexcept {
    return each([&](std::size_t i) { return static_cast<float>(a.lanes[i]); });
  }
  [[gnu::noinline]] static void store_codes(std::int8_t* at, const I& a) noexcept {
    std::transform(a.lanes.begin(), a.lanes.end(), at,
                   [](std::int32_t lane) { return static_cast<std::int8_t>(lane); });
  }
  [[gnu::noinline]] static I load_i8_int(const std::byte* at) noexcept {
    return each_int([=](std::size_t i) { return std::int32_t{element<std::int8_t>(at, i)}; });
  }
  [[gnu::noinline]] static Dot load_dot(const std::byte* at) noexcept {
    return each_int([=](std::size_t i) { return element<std::int32_t>(at, i); });
  }
  [[gnu::noinline]] static void store_dot(std::byte* at, const Dot& a) noexcept {
    std::memcpy(at, a.lanes.data(), sizeof(a.lanes));
  }
  [[gnu::noinline]] static Dot broadcast_dot(const void* at) noexcept {
    const auto group = element<std::int32_t>(at, 0);
    return each_int([=](std::size_t) { return group; });
  }
  template <int half>
  [[gnu::noinline]] static Dot load_u4_fours(const std::byte* at) noexcept {
    return groups<std::int8_t, 4>(
        [=](std::size_t i, std::size_t col) { return nibble(at, i, std::size_t{4} * half + col); });
  }

 protected:
  // Lane i: the elements of output i, one of each column.
  template <class Element, std::size_t columns, class Function>
  static Dot groups(Function function) noexcept {
    return each_int([&](std::size_t i) {
      std::array<Element, columns> group;
      for (std::size_t col = 0; col < columns; ++col) {
        group[col] = static_cast<Element>(function(i, col));
      }
      return std::bit_cast<std::int32_t>(group);
    });
  }
  // sum + the products of a group.
  template <class A, class B, std::size_t columns>
  static I dot_of(const I& sum, const Dot& w, const Dot& x) noexcept {
    return each_int([&](std::size_t i) {
      const auto a = std::bit_cast<std::array<A, columns>>(w.lanes[i]);
      const auto b = std::bit_cast<std::array<B, columns>>(x.lanes[i]);
      std::int64_t total = sum.lanes[i];
      for (std::size_t col = 0; col < columns; ++col) {
        total += a[col] * b[col];
      }
      return wrapped(total);
    });
  }
};

struct EmulatedPairs : EmulatedIntegers {
  using DotElement = std::int16_t;
  static constexpr std::int64_t kDotCols = 2;
  static constexpr std::int32_t kCodeBase = 0;

  [[gnu::noinline]] static void widen_codes(const std::int8_t* codes, DotElement* out) noexcept {
    constexpr std::array<std::size_t, 4> kOrder{0, 2, 1, 3};
    for (std::size_t i = 0; i < kLanes; ++i) {
      std::copy_n(codes + i / 4 * 4 + kOrder[i % 4], 1, out + i);
    }
  }
  template <int dot>
  [[gnu::noinline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    return groups<std::int16_t, 2>([=](std::size_t i, std::size_t element_idx) -> int {
      return element<std::int8_t>(at, 4 * i + dot + 2 * element_idx);
    });
  }
  template <int dot>
  [[gnu::noinline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    return groups<std::int16_t, 2>([=](std::size_t i, std::size_t element_idx) {
      return nibble(at, i, dot / 2 * 4 + dot % 2 + 2 * element_idx);
    });
  }
  [[gnu::noinline]] static I dot(const I& sum, const Dot& w, const Dot& x) noexcept {
    return dot_of<std::int16_t, std::int16_t, 2>(sum, w, x);
  }
};

// Weights unsigned, activations signed (Intel SDM, VPDPBUSD).
struct EmulatedQuads : EmulatedIntegers {
  using DotElement = std::int8_t;
  static constexpr std::int64_t kDotCols = 4;
  static constexpr std::int32_t kCodeBase = 128;

  template <int>
  [[gnu::noinline]] static Dot load_i8_dot(const std::byte* at) noexcept {
    return groups<std::uint8_t, 4>([=](std::size_t i, std::size_t col) {
      return element<std::int8_t>(at, 4 * i + col) + 128;
    });
  }
  template <int dot>
  [[gnu::noinline]] static Dot load_u4_dot(const std::byte* at) noexcept {
    return groups<std::uint8_t, 4>(
        [=](std::size_t i, std::size_t col) { return nibble(at, i, std::size_t{4} * dot + col); });
  }
  [[gnu::noinline]] static I dot(const I& sum, const Dot& w, const Dot& x) noexcept {
    return dot_of<std::uint8_t, std::int8_t, 4>(sum, w, x);
  }
};

}  // namespace
}  // namespace moe::kernels
