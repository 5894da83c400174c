#pragma once

// Matrix products over packed panels, written once over the vector type S of a level: blocks of
// rows, groups of panels, and what is done to their sums.

#include <cstddef>
#include <cstdint>

#include "kernels/api.hpp"
#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/simd/math.hpp"
#include "kernels/cpu/simd/sums.hpp"

namespace moe::kernels::simd {

// Args is GemmArgs or GateUpArgs. Calls finish(first_row, num_rows, panel, num_panels, sums)
// for every block of rows and group of panels. A group holds an even number of panels
// unless panel_end cuts it short.
template <class S, class Sums, class Args, class Finish>
[[gnu::always_inline]] inline void for_each_block(const Args& args, std::int64_t panel_begin,
                                                  std::int64_t panel_end, Finish finish) noexcept {
  using Activation = typename Sums::Activation;
  static_assert(S::kBlockRows <= kMaxBlockRows);
  alignas(64) Array<float, sums_offset<S>(0, kMaxGroupPanels)> sums;
  const auto* x = static_cast<const Activation*>(args.x);
  const std::int64_t num_blocks = ceil_div(args.num_rows, S::kBlockRows);
  for (std::int64_t idx = 0; idx < num_blocks; ++idx) {
    const std::int64_t begin = idx * args.num_rows / num_blocks;
    const std::int64_t end = (idx + 1) * args.num_rows / num_blocks;
    RowBlock<Activation> block;
    block.num_rows = static_cast<int>(end - begin);
    for (int r = 0; r < block.num_rows; ++r) {
      const std::int64_t row = args.x_rows != nullptr ? args.x_rows[begin + r] : begin + r;
      block.rows[r] = x + row * args.x_stride;
      if constexpr (requires { block.block_scales; }) {
        block.block_scales[r] = args.x_scales + row * args.x_block_stride;
        block.block_sums[r] = args.x_sums + row * args.x_block_stride;
      }
    }
    const int group = block.num_rows <= kFewRows ? kMaxGroupPanels : kGroupPanels;
    block.sums = sums;
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += group) {
      const int num_panels =
          panel_end - panel < group ? static_cast<int>(panel_end - panel) : group;
      Sums::compute(args.weight, panel, num_panels, block);
      finish(begin, block.num_rows, panel, num_panels, sums);
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

template <class S, class Sums>
[[gnu::always_inline]] inline void gemm_of(const GemmArgs& args) noexcept {
  for_each_block<S, Sums>(args, args.panel_begin, args.panel_end,
                          [&](std::int64_t first_row, int num_rows, std::int64_t panel,
                              int num_panels, const float* sums) {
                            for (int p = 0; p < num_panels; ++p) {
                              const std::int64_t out = (panel + p) * kPanelRows;
                              const std::int64_t count = args.weight.rows - out;
                              const auto bias = load_bias<S>(args.bias, out, count);
                              for (int r = 0; r < num_rows; ++r) {
                                const auto y = S::add(S::load(sums + sums_offset<S>(r, p)), bias);
                                float* at = args.y + (first_row + r) * args.y_stride + out;
                                if (count >= kPanelRows) {
                                  S::store(at, y);
                                } else {
                                  S::store_partial(at, y, count);
                                }
                              }
                            }
                          });
}

template <class S>
void gemm(const GemmArgs& args) noexcept {
  with_sums<S>(args.weight.format, args.activation_format,
               [&]<class Sums>() { gemm_of<S, Sums>(args); });
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
  if (args.activation_format != ActivationFormat::kBf16) {
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

template <class S, class Sums>
[[gnu::always_inline]] inline void gemm_gate_up_of(const GateUpArgs& args) noexcept {
  for_each_block<S, Sums>(
      args, 2 * args.pair_begin, 2 * args.pair_end,
      [&](std::int64_t first_row, int num_rows, std::int64_t panel, int num_panels,
          const float* sums) {
        for (int p = 0; p < num_panels; p += 2) {
          const std::int64_t out = (panel + p) / 2 * kPanelRows;
          const std::int64_t count = args.intermediate - out;
          const auto gate_bias = load_bias<S>(args.gate_bias, out, count);
          const auto up_bias = load_bias<S>(args.up_bias, out, count);
          for (int r = 0; r < num_rows; ++r) {
            const auto gate = S::add(S::load(sums + sums_offset<S>(r, p)), gate_bias);
            const auto up = S::add(S::load(sums + sums_offset<S>(r, p + 1)), up_bias);
            store_hidden<S>(args, first_row + r, out, glu<S>(args, gate, up));
          }
        }
      });
}

template <class S>
void gemm_gate_up(const GateUpArgs& args) noexcept {
  with_sums<S>(args.weight.format, args.activation_format,
               [&]<class Sums>() { gemm_gate_up_of<S, Sums>(args); });
}

}  // namespace moe::kernels::simd
