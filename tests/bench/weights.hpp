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

// int8 as GGUF Q8_0 and per channel; int4 as GGUF Q4_0, compressed-tensors, GPTQ and AWQ (zero
// points) and GGUF Q4_K (offsets).
inline constexpr Format kFormats[] = {
    {"f32", WeightFormat::kF32},
    {"f16", WeightFormat::kF16},
    {"bf16", WeightFormat::kBf16},
    {"fp8", WeightFormat::kFp8, 128},
    {"mxfp4", WeightFormat::kMxfp4},
    {"int8_g32", WeightFormat::kInt8, 32, {ScaleFormat::kF16, OffsetKind::kCentred}},
    {"int8_channel", WeightFormat::kInt8, 0, {ScaleFormat::kF32, OffsetKind::kCentred}},
    {"int4_g32", WeightFormat::kInt4, 32, {ScaleFormat::kF16, OffsetKind::kCentred}},
    {"int4_g64_zero", WeightFormat::kInt4, 64, {ScaleFormat::kF16, OffsetKind::kZeroPoints}},
    {"int4_g128", WeightFormat::kInt4, 128, {ScaleFormat::kBf16, OffsetKind::kCentred}},
    {"int4_g128_zero", WeightFormat::kInt4, 128, {ScaleFormat::kF16, OffsetKind::kZeroPoints}},
    {"int4_g32_offset", WeightFormat::kInt4, 32, {ScaleFormat::kF32, OffsetKind::kF32}},
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

}  // namespace moe::kernels::bench
