#pragma once

// The AMX instructions. Own wrappers instead of the compiler's, which do not tell it what an
// instruction reads: GCC 12 removes a configuration built on the stack, and may keep data back that
// was written just before a tile load. Here the configuration is an operand as a whole, and loads
// and stores name memory.

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/amx/tile_config.hpp"

namespace moe::kernels::amx {
namespace {

// The configuration is state of the thread that other code changes: a kernel configures at its
// begin and releases at its end.
struct Tiles {
  [[gnu::always_inline]] static void configure(const TileConfig& config) noexcept {
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  [[gnu::always_inline]] static void release() noexcept {
    __asm__ volatile("tilerelease" : : : "memory");
  }
  template <int tile>
  [[gnu::always_inline]] static void zero() noexcept {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  // Rows of a tile follow one another in memory, 64 bytes each.
  template <int tile>
  [[gnu::always_inline]] static void load(const void* at) noexcept {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(at), "r"(kRowBytes), "i"(tile)
                     : "memory");
  }
  // The same for data that should not push other data out of the L1 cache.
  template <int tile>
  [[gnu::always_inline]] static void stream(const void* at) noexcept {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(at), "r"(kRowBytes), "i"(tile)
                     : "memory");
  }
  template <int tile>
  [[gnu::always_inline]] static void store(void* at) noexcept {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(at), "r"(kRowBytes), "i"(tile)
                     : "memory");
  }
  // sum += rows * weights, in pairs of bf16.
  template <int sum, int rows, int weights>
  [[gnu::always_inline]] static void dot_bf16() noexcept {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                     :
                     : "i"(sum), "i"(rows), "i"(weights));
  }
  // The same in fours of signed bytes; sums are integers modulo 2^32.
  template <int sum, int rows, int weights>
  [[gnu::always_inline]] static void dot_int8() noexcept {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(rows), "i"(weights));
  }
};

}  // namespace
}  // namespace moe::kernels::amx
