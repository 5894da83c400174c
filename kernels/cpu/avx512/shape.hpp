#pragma once

// Tile shapes of the levels with 32 registers of 16 lanes. Apart from the instructions, so that the
// emulated level of the tests has the same ones.

#include <cstdint>

namespace moe::kernels {
namespace {

struct Avx512Shape {
  // Up to 24 sums; the other registers hold a panel column each, and activations.
  static constexpr int kMaxTileRows = 6;
  // Processors with AVX-512 have an L2 cache of 1 MiB and more: 576 KiB of 2048 f32 activations.
  static constexpr int kBlockRows = 72;
  // One panel for few rows: a thread then reads one run of memory, which the processor's prefetcher
  // follows best (two rows on Zen 4: up to twice the bytes of eight panels side by side). Where
  // unpacking is long beside the bytes of weights that a multiply-add takes, eight chains hide its
  // latency.
  [[nodiscard]] static constexpr int tile_panels(int rows, bool is_coded,
                                                 std::int64_t bytes) noexcept {
    if (rows > 2) {
      return 4;
    }
    return is_coded && bytes >= 32 ? 1 : 8;
  }
  // Where each multiply-add takes a whole line, asking for it only stands in the way of the
  // prefetcher; where it takes few bytes, that has time enough.
  [[nodiscard]] static constexpr bool fetches_in_tile(int rows, std::int64_t bytes) noexcept {
    return rows > 1 && bytes == 32;
  }
  [[nodiscard]] static constexpr bool fetches_next(int rows, int panels) noexcept {
    return rows >= 4 && panels == 4;
  }
  [[nodiscard]] static constexpr bool fetches_in_stage(std::int64_t step_bytes) noexcept {
    return step_bytes <= 32;
  }
  [[nodiscard]] static constexpr bool forgets_between_steps(int rows, int panels) noexcept {
    return rows * panels >= 16;
  }
  [[nodiscard]] static constexpr bool forgets_between_panels(int, int) noexcept { return false; }
  [[nodiscard]] static constexpr int spare_registers(int rows, int panels) noexcept {
    return 32 - rows * panels;
  }
  // Four panels share a loaded activation, and decoding plain formats is one instruction per 24
  // multiply-adds: no staging. formats with scales are decoded once per block of rows.
  static constexpr int kStageRows = 1 << 30;
  static constexpr int kStageFp8Rows = 7;
  static constexpr int kStageMxfp4Rows = 7;
  static constexpr int kStageInt8Rows = 7;
  static constexpr int kStageInt4Rows = 7;
  static constexpr std::int64_t kStagedCols = 128;
};

}  // namespace
}  // namespace moe::kernels
