#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/layout.hpp"
#include "kernels/cpu/numeric.hpp"
#include "kernels/cpu/scalar/scalar.hpp"

namespace moe::kernels::scalar {
namespace {

template <class T>
T load(const std::byte* at, std::int64_t idx) {
  T value;
  std::memcpy(&value, at + idx * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// A row of activations, f32 or bf16.
struct ActivationRow {
  const std::byte* data;
  ActivationFormat format;

  [[nodiscard]] float at(std::int64_t col) const {
    return format == ActivationFormat::kF32 ? load<float>(data, col)
                                            : bf16_value(load<std::uint16_t>(data, col));
  }
};

ActivationRow activation_row(const void* x, ActivationFormat format, std::int64_t stride,
                             const std::int32_t* x_rows, std::int64_t row) {
  const std::int64_t source_row = x_rows != nullptr ? x_rows[row] : row;
  const std::int64_t element_bytes = format == ActivationFormat::kF32 ? 4 : 2;
  return {static_cast<const std::byte*>(x) + source_row * stride * element_bytes, format};
}

float plain_weight(WeightFormat format, const std::byte* panel, std::int64_t col,
                   std::int64_t lane) {
  switch (format) {
    case WeightFormat::kF32:
      return load<float>(panel, col * kPanelRows + lane);
    case WeightFormat::kF16:
      return f16_value(load<std::uint16_t>(panel, col * kPanelRows + lane));
    case WeightFormat::kBf16:
      return bf16_value(load<std::uint16_t>(panel, (col / 2 * kPanelRows + lane) * 2 + col % 2));
    case WeightFormat::kFp8:
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      break;
  }
  return 0.0F;
}

// One chain of fused multiply-adds over ascending columns.
float plain_product(const PackedMatrix& weight, const std::byte* panel, std::int64_t lane,
                    const ActivationRow& x) {
  float sum = 0.0F;
  for (std::int64_t col = 0; col < weight.cols; ++col) {
    sum = std::fma(plain_weight(weight.format, panel, col, lane), x.at(col), sum);
  }
  return sum;
}

// A chain per scale block, then one multiply-add with the scale.
float fp8_product(const PackedMatrix& weight, const std::byte* panel, std::int64_t lane,
                  const ActivationRow& x) {
  float total = 0.0F;
  for (std::int64_t begin = 0; begin < weight.cols; begin += weight.block_cols) {
    const std::byte* block = panel + fp8_block_offset(begin / weight.block_cols, weight.block_cols);
    const std::int64_t end = std::min(begin + weight.block_cols, weight.cols);
    float sum = 0.0F;
    for (std::int64_t col = begin; col < end; ++col) {
      const std::byte code = block[kFp8ScaleBytes + (col - begin) * kPanelRows + lane];
      sum = std::fma(e4m3_value(static_cast<std::uint8_t>(code)), x.at(col), sum);
    }
    total = std::fma(load<float>(block, lane), sum, total);
  }
  return total;
}

float mxfp4_product(const PackedMatrix& weight, const std::byte* panel, std::int64_t lane,
                    const ActivationRow& x) {
  float total = 0.0F;
  for (std::int64_t begin = 0; begin < weight.cols; begin += kMxfp4Group) {
    const std::byte* group = panel + begin / kMxfp4Group * kMxfp4GroupBytes;
    const std::int64_t end = std::min(begin + kMxfp4Group, weight.cols);
    float sum = 0.0F;
    for (std::int64_t col = begin; col < end; ++col) {
      const auto pair =
          static_cast<std::uint32_t>(group[kPanelRows + (col - begin) / 2 * kPanelRows + lane]);
      const std::uint32_t code = col % 2 == 0 ? pair & 0xfU : pair >> 4U;
      sum = std::fma(e2m1_value(static_cast<std::uint8_t>(code)), x.at(col), sum);
    }
    total = std::fma(e8m0_value(static_cast<std::uint8_t>(group[lane])), sum, total);
  }
  return total;
}

float block_scale(BlockFormat format, const BlockPlace& block, std::int64_t lane) {
  switch (format.scale) {
    case ScaleFormat::kF32:
      return load<float>(block.header, lane);
    case ScaleFormat::kF16:
      return f16_value(load<std::uint16_t>(block.header, lane));
    case ScaleFormat::kBf16:
      return bf16_value(load<std::uint16_t>(block.header, lane));
    case ScaleFormat::kTwoLevel:
      return f16_value(load<std::uint16_t>(block.supers, lane)) *
             static_cast<float>(load<std::int8_t>(block.header, lane));
  }
  return 0.0F;
}

float block_offset(const PackedMatrix& weight, const BlockPlace& block, std::int64_t lane,
                   float scale) {
  const std::byte* offsets = block.header + scales_bytes(weight.block);
  switch (weight.block.offset) {
    case OffsetKind::kCentred:
      return weight.format == WeightFormat::kInt4 ? -8.0F * scale : 0.0F;
    case OffsetKind::kZeroPoints:
      return -static_cast<float>(load<std::int8_t>(offsets, lane)) * scale;
    case OffsetKind::kTwoLevel:
      return -(f16_value(load<std::uint16_t>(block.supers, kPanelRows + lane)) *
               static_cast<float>(load<std::int8_t>(offsets, lane)));
  }
  return 0.0F;
}

float int_code(WeightFormat format, const std::byte* codes, std::int64_t col, std::int64_t lane) {
  if (format == WeightFormat::kInt8) {
    return static_cast<float>(
        load<std::int8_t>(codes, code_place(WeightFormat::kInt8, col, lane).byte));
  }
  const CodePlace place = code_place(WeightFormat::kInt4, col, lane);
  return static_cast<float>(std::to_integer<unsigned>(codes[place.byte]) >> place.shift & 0xfU);
}

// A chain per block, then a multiply-add with the scale and one of the offset with the sum of the
// activations.
float int_product(const PackedMatrix& weight, const std::byte* panel, std::int64_t lane,
                  const ActivationRow& x) {
  const BlockLayout layout = int_block_layout(weight.format, weight.block_cols, weight.block);
  float total = 0.0F;
  for (std::int64_t begin = 0; begin < weight.cols; begin += weight.block_cols) {
    const BlockPlace block = layout.place(panel, begin / weight.block_cols);
    const std::byte* codes = block.header + block_header_bytes(weight.block);
    const std::int64_t end = std::min(begin + weight.block_cols, weight.cols);
    float sum = 0.0F;
    float x_sum = 0.0F;
    for (std::int64_t col = begin; col < end; ++col) {
      const float value = x.at(weight.column_order != nullptr ? weight.column_order[col] : col);
      sum = std::fma(int_code(weight.format, codes, col - begin, lane), value, sum);
      x_sum += value;
    }
    const float scale = block_scale(weight.block, block, lane);
    total = std::fma(scale, sum, total);
    const float offset = block_offset(weight, block, lane, scale);
    if (offset != 0.0F) total = std::fma(offset, x_sum, total);
  }
  return total;
}

float product(const PackedMatrix& weight, std::int64_t panel_idx, std::int64_t lane,
              const ActivationRow& x) {
  const std::byte* panel = weight.data + panel_idx * weight.panel_stride_bytes;
  switch (weight.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return plain_product(weight, panel, lane, x);
    case WeightFormat::kFp8:
      return fp8_product(weight, panel, lane, x);
    case WeightFormat::kMxfp4:
      return mxfp4_product(weight, panel, lane, x);
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return int_product(weight, panel, lane, x);
  }
  return 0.0F;
}

// A row of int8 activations: the codes of each block, their scales and sums.
struct Int8Row {
  const std::int8_t* codes;
  const float* scales;
  const std::int32_t* sums;
};

template <class Args>
Int8Row int8_row(const Args& args, std::int64_t row) {
  const std::int64_t source_row = args.x_rows != nullptr ? args.x_rows[row] : row;
  return {static_cast<const std::int8_t*>(args.x) + source_row * args.x_stride,
          args.x_scales + source_row * args.x_block_stride,
          args.x_sums + source_row * args.x_block_stride};
}

std::int32_t int8_sum(const PackedMatrix& weight, const std::byte* block, std::int64_t lane,
                      const std::int8_t* x, std::int64_t count) {
  const std::byte* const codes = block + block_header_bytes(weight.block);
  const std::int32_t zero = weight.block.offset == OffsetKind::kZeroPoints
                                ? load<std::int8_t>(block + scales_bytes(weight.block), lane)
                                : common_zero(weight.format, weight.block);
  std::int32_t sum = 0;
  for (std::int64_t col = 0; col < count; ++col) {
    sum += (static_cast<std::int32_t>(int_code(weight.format, codes, col, lane)) - zero) * x[col];
  }
  return sum;
}

float int8_product(const PackedMatrix& weight, std::int64_t panel_idx, std::int64_t lane,
                   const Int8Row& x) {
  const std::byte* const panel = weight.data + panel_idx * weight.panel_stride_bytes;
  const std::int64_t block_cols = activation_block_cols(weight.cols, weight.block_cols);
  const BlockLayout layout = int_block_layout(weight.format, weight.block_cols, weight.block);
  float total = 0.0F;
  for (std::int64_t begin = 0, idx = 0; begin < weight.cols; begin += block_cols, ++idx) {
    const BlockPlace block = layout.place(panel, idx);
    const std::int32_t sum =
        int8_sum(weight, block.header, lane, x.codes + idx * padded_codes(block_cols),
                 std::min(block_cols, weight.cols - begin));
    const float scale = block_scale(weight.block, block, lane);
    total = std::fma(scale * x.scales[idx], static_cast<float>(sum), total);
    if (weight.block.offset == OffsetKind::kTwoLevel) {
      total = std::fma(block_offset(weight, block, lane, scale),
                       x.scales[idx] * static_cast<float>(x.sums[idx]), total);
    }
  }
  return total;
}

float sigmoid(float value) {
  return 1.0F / (1.0F + std::exp(-value));
}

// kSilu: SwiGLU of the Llama family. kGptOss: the clamped form of the gpt-oss reference model.
float glu(const GateUpArgs& args, float gate, float up) {
  switch (args.glu) {
    case GluKind::kSilu:
      return gate * sigmoid(gate) * up;
    case GluKind::kGptOss: {
      const float clamped_gate = std::min(gate, args.limit);
      const float clamped_up = std::clamp(up, -args.limit, args.limit);
      return clamped_gate * sigmoid(args.alpha * clamped_gate) * (clamped_up + 1.0F);
    }
  }
  return 0.0F;
}

// Product of an output and a row of activations, for all of them.
template <class ProductOf>
void gemm_of(const GemmArgs& args, ProductOf product_of) {
  const std::int64_t begin = args.panel_begin * kPanelRows;
  const std::int64_t end = std::min(args.panel_end * kPanelRows, args.weight.rows);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    for (std::int64_t out = begin; out < end; ++out) {
      const float bias = args.bias != nullptr ? args.bias[out] : 0.0F;
      args.y[row * args.y_stride + out] =
          product_of(row, out / kPanelRows, out % kPanelRows) + bias;
    }
  }
}

template <class ProductOf>
void gemm_gate_up_of(const GateUpArgs& args, ProductOf product_of) {
  const std::int64_t begin = args.pair_begin * kPanelRows;
  const std::int64_t end = std::min(args.pair_end * kPanelRows, args.intermediate);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    for (std::int64_t out = begin; out < end; ++out) {
      const std::int64_t pair = out / kPanelRows;
      const std::int64_t lane = out % kPanelRows;
      const float gate_bias = args.gate_bias != nullptr ? args.gate_bias[out] : 0.0F;
      const float up_bias = args.up_bias != nullptr ? args.up_bias[out] : 0.0F;
      const float gate = product_of(row, 2 * pair, lane) + gate_bias;
      const float up = product_of(row, 2 * pair + 1, lane) + up_bias;
      const float value = glu(args, gate, up);
      if (args.activation_format != ActivationFormat::kBf16) {
        static_cast<float*>(args.h)[row * args.h_stride + out] = value;
      } else {
        static_cast<std::uint16_t*>(args.h)[row * args.h_stride + out] = bf16_from_f32(value);
      }
    }
  }
}

}  // namespace

void gemm(const GemmArgs& args) noexcept {
  gemm_of(args, [&](std::int64_t row, std::int64_t panel, std::int64_t lane) {
    return product(args.weight, panel, lane,
                   activation_row(args.x, args.activation_format, args.x_stride, args.x_rows, row));
  });
}

void gemm_gate_up(const GateUpArgs& args) noexcept {
  gemm_gate_up_of(args, [&](std::int64_t row, std::int64_t panel, std::int64_t lane) {
    return product(args.weight, panel, lane,
                   activation_row(args.x, args.activation_format, args.x_stride, args.x_rows, row));
  });
}

void gemm_int8(const GemmArgs& args) noexcept {
  gemm_of(args, [&](std::int64_t row, std::int64_t panel, std::int64_t lane) {
    return int8_product(args.weight, panel, lane, int8_row(args, row));
  });
}

void gemm_gate_up_int8(const GateUpArgs& args) noexcept {
  gemm_gate_up_of(args, [&](std::int64_t row, std::int64_t panel, std::int64_t lane) {
    return int8_product(args.weight, panel, lane, int8_row(args, row));
  });
}

}  // namespace moe::kernels::scalar
