#pragma once

// Packed weights for benchmarks of products: every format and block layout that checkpoints have.

#include <cstdint>
#include <cstring>

#include "kernels/api.hpp"
#include "lib/base/aligned_buffer.hpp"

namespace moe::kernels::bench {

struct Format {
  const char* name;
  WeightFormat format;
  std::int64_t block_cols = 0;  // 0: none, or all columns of an integer format
  BlockFormat block{};
};

// int8 as GGUF Q8_0, Q6_K and per channel; int4 as GGUF Q4_0, compressed-tensors, GPTQ and AWQ
// (zero points) and GGUF Q4_K (offsets).
inline constexpr Format kFormats[] = {
    {"f32", WeightFormat::kF32},
    {"f16", WeightFormat::kF16},
    {"bf16", WeightFormat::kBf16},
    {"fp8", WeightFormat::kFp8, 128},
    {"mxfp4", WeightFormat::kMxfp4},
    {"int8_g32", WeightFormat::kInt8, 32, {ScaleFormat::kF16, OffsetKind::kCentred}},
    {"int8_g16_super", WeightFormat::kInt8, 16, {ScaleFormat::kTwoLevel, OffsetKind::kCentred}},
    {"int8_channel", WeightFormat::kInt8, 0, {ScaleFormat::kF32, OffsetKind::kCentred}},
    {"int4_g32", WeightFormat::kInt4, 32, {ScaleFormat::kF16, OffsetKind::kCentred}},
    {"int4_g64_zero", WeightFormat::kInt4, 64, {ScaleFormat::kF16, OffsetKind::kZeroPoints}},
    {"int4_g128", WeightFormat::kInt4, 128, {ScaleFormat::kBf16, OffsetKind::kCentred}},
    {"int4_g128_zero", WeightFormat::kInt4, 128, {ScaleFormat::kF16, OffsetKind::kZeroPoints}},
    {"int4_g32_super", WeightFormat::kInt4, 32, {ScaleFormat::kTwoLevel, OffsetKind::kTwoLevel}},
};

// `num_copies` matrices [rows, cols] one after another. Small positive weights in any format:
// every byte 0x2f is a normal number of modest size. rows % 16 == 0.
struct Weights {
  Weights(const Format& format, std::int64_t rows, std::int64_t cols, std::int64_t num_copies)
      : block_cols(block_of(format, cols)),
        panels(rows / kPanelRows),
        stride(panel_bytes(format.format, cols, block_cols, format.block)),
        copies(num_copies),
        storage(panels * stride * copies) {
    std::memset(storage.data(), 0x2f, static_cast<std::size_t>(storage.size_bytes()));
    view.data = storage.data();
    view.format = format.format;
    view.rows = rows;
    view.cols = cols;
    view.block_cols = block_cols;
    view.panel_stride_bytes = stride;
    view.block = format.block;
  }

  [[nodiscard]] static std::int64_t block_of(const Format& format, std::int64_t cols) {
    const bool is_int =
        format.format == WeightFormat::kInt8 || format.format == WeightFormat::kInt4;
    return is_int && format.block_cols == 0 ? cols : format.block_cols;
  }
  [[nodiscard]] static std::int64_t bytes_of(const Format& format, std::int64_t rows,
                                             std::int64_t cols) {
    return panel_bytes(format.format, cols, block_of(format, cols), format.block) * rows /
           kPanelRows;
  }
  [[nodiscard]] PackedMatrix copy(std::int64_t idx) const {
    PackedMatrix out = view;
    out.data += idx % copies * panels * stride;
    return out;
  }
  [[nodiscard]] std::int64_t bytes() const { return panels * stride; }

  std::int64_t block_cols;
  std::int64_t panels;
  std::int64_t stride;
  std::int64_t copies;
  AlignedBytes storage;
  PackedMatrix view;
};

// Rows of int8 activations cut for these weights: every code is 60.
struct Int8Activations {
  Int8Activations(const PackedMatrix& weight, std::int64_t num_rows)
      : block_cols(int8_block_cols(weight)),
        stride(int8_row_elements(weight.cols, block_cols)),
        num_blocks((weight.cols + block_cols - 1) / block_cols),
        codes(num_rows * stride),
        scales(num_rows * num_blocks),
        sums(num_rows * num_blocks) {
    std::memset(codes.data(), 60, static_cast<std::size_t>(codes.size()));
    for (std::int64_t i = 0; i < scales.size(); ++i) {
      scales[i] = 0.01F;
      sums[i] = static_cast<std::int32_t>(60 * block_cols);
    }
  }

  template <class Args>
  void set(Args& args) const {
    args.activation_format = ActivationFormat::kInt8;
    args.x = codes.data();
    args.x_stride = stride;
    args.x_scales = scales.data();
    args.x_sums = sums.data();
    args.x_block_stride = num_blocks;
  }

  std::int64_t block_cols;
  std::int64_t stride;
  std::int64_t num_blocks;
  AlignedBuffer<std::int8_t> codes;
  AlignedBuffer<float> scales;
  AlignedBuffer<std::int32_t> sums;
};

}  // namespace moe::kernels::bench
