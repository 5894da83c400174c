#include "tests/kernels/matrices.hpp"

#include <cmath>
#include <cstring>

#include "kernels/cpu/numeric.hpp"
#include "kernels/format_names.hpp"

namespace moe::kernels {
namespace {

std::int64_t element_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 4;
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return 2;
    case WeightFormat::kFp8:
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return 1;
  }
  return 0;
}

template <class T>
void put(std::vector<std::byte>& bytes, std::int64_t idx, T value) {
  std::memcpy(bytes.data() + idx * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// Writes one random element at `idx` and returns its value.
double put_random(WeightFormat format, std::vector<std::byte>& bytes, std::int64_t idx, Rng& rng) {
  const auto bits = rng.next_bits();
  switch (format) {
    case WeightFormat::kF32: {
      const auto value = static_cast<float>(rng.next_normal());
      put(bytes, idx, value);
      return static_cast<double>(value);
    }
    case WeightFormat::kF16: {  // exponents 2^-10 to 2^1
      const auto code =
          static_cast<std::uint16_t>((bits & 0x83ffU) | ((5U + (bits >> 20U) % 12U) << 10U));
      put(bytes, idx, code);
      return static_cast<double>(f16_value(code));
    }
    case WeightFormat::kBf16: {
      const std::uint16_t code = bf16_from_f32(static_cast<float>(rng.next_normal()));
      put(bytes, idx, code);
      return static_cast<double>(bf16_value(code));
    }
    case WeightFormat::kFp8: {
      auto code = static_cast<std::uint8_t>(bits);
      code = (code & 0x7fU) == 0x7fU ? std::uint8_t{0} : code;
      put(bytes, idx, code);
      return static_cast<double>(e4m3_value(code));
    }
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      break;
  }
  return 0.0;
}

bool is_int(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4;
}

// Of a small f16.
std::uint16_t f16_code(Rng& rng) {
  return static_cast<std::uint16_t>((8U << 10U) | (rng.next_bits() & 0x3ffU));
}

// Writes a random scale and returns its value.
double put_scale(ScaleFormat format, std::vector<std::byte>& bytes, std::int64_t idx, Rng& rng) {
  const auto value = static_cast<float>(0.01 * (0.5 + rng.next_uniform()));
  if (format == ScaleFormat::kF32) {
    put(bytes, idx, value);
    return static_cast<double>(value);
  }
  if (format == ScaleFormat::kBf16) {
    put(bytes, idx, bf16_from_f32(value));
    return static_cast<double>(bf16_value(bf16_from_f32(value)));
  }
  const std::uint16_t code = f16_code(rng);
  put(bytes, idx, code);
  return static_cast<double>(f16_value(code));
}

}  // namespace

std::string format_name(WeightFormat format) {
  return weight_format_name(format);
}

std::vector<float> random_floats(Rng& rng, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& value : out) {
    value = static_cast<float>(rng.next_normal());
  }
  return out;
}

TestMatrix::TestMatrix(WeightFormat format, const MatrixShape& shape, Rng& rng)
    : values_(static_cast<std::size_t>(shape.rows * shape.cols)) {
  source_ = {.format = format, .rows = shape.rows, .cols = shape.cols};
  if (is_int(format)) {
    fill_blocks(shape, rng);
  } else {
    fill(shape, rng);
  }
  const std::int64_t stride = panel_bytes(format, shape.cols, source_.block_cols, source_.block);
  panels_ = AlignedBytes(num_panels() * stride);
  packed_ = {.data = panels_.data(),
             .format = format,
             .rows = shape.rows,
             .cols = shape.cols,
             .block_cols = source_.block_cols,
             .panel_stride_bytes = stride,
             .block = source_.block,
             .column_order = column_order_.empty() ? nullptr : column_order_.data()};
  for (std::int64_t panel = 0; panel < num_panels(); ++panel) {
    pack_panel(source_, panel, panels_.data() + panel * stride);
  }
}

void TestMatrix::fill_blocks(const MatrixShape& shape, Rng& rng) {
  const bool is_int4 = source_.format == WeightFormat::kInt4;
  const std::int64_t blocks = (shape.cols + shape.fp8_block_cols - 1) / shape.fp8_block_cols;
  source_.block = shape.block;
  source_.block_cols = shape.fp8_block_cols;
  source_.scale_row_stride = blocks + 1;
  source_.row_stride = shape.cols + shape.row_padding;
  magnitudes_.resize(values_.size());
  data_.resize(static_cast<std::size_t>(shape.rows * source_.row_stride));
  const auto num_scales = static_cast<std::size_t>(shape.rows * source_.scale_row_stride);
  scales_.resize(num_scales * 4);
  offsets_.resize(num_scales * 4);
  if (shape.has_column_order) {
    Rng order_rng(99);  // gate and up of a pair share their order
    column_order_.resize(static_cast<std::size_t>(shape.cols));
    for (std::int64_t k = 0; k < shape.cols; ++k) {
      const auto other =
          static_cast<std::int64_t>(order_rng.next_below(static_cast<std::uint64_t>(k + 1)));
      column_order_[static_cast<std::size_t>(k)] = column_order_[static_cast<std::size_t>(other)];
      column_order_[static_cast<std::size_t>(other)] = static_cast<std::int32_t>(k);
    }
  }
  const std::int64_t num_supers = shape.rows * (shape.cols / kSuperBlockCols);
  super_scales_.resize(static_cast<std::size_t>(num_supers * 2));
  super_offsets_.resize(static_cast<std::size_t>(num_supers * 2));
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    BlockTerms terms{};
    for (std::int64_t k = 0; k < shape.cols; ++k) {
      if (k % shape.fp8_block_cols == 0) {
        terms = put_terms(row, k, rng);
      }
      const auto [scale, offset] = terms;
      const auto bits = static_cast<std::uint8_t>(rng.next_bits());
      const int code = is_int4 ? bits & 0xf : static_cast<std::int8_t>(bits);
      data_[static_cast<std::size_t>(row * source_.row_stride + k)] = static_cast<std::byte>(code);
      const std::int64_t col =
          column_order_.empty() ? k : column_order_[static_cast<std::size_t>(k)];
      const auto at = static_cast<std::size_t>(row * shape.cols + col);
      values_[at] = scale * code + offset;
      magnitudes_[at] = std::fabs(scale * code) + std::fabs(offset);
    }
  }
  source_.data = data_.data();
  source_.scales = scales_.data();
  source_.offsets = offsets_.data();
  source_.super_scales = super_scales_.data();
  source_.super_offsets = super_offsets_.data();
}

TestMatrix::BlockTerms TestMatrix::put_terms(std::int64_t row, std::int64_t col, Rng& rng) {
  const std::int64_t idx = row * source_.scale_row_stride + col / source_.block_cols;
  if (source_.block.scale == ScaleFormat::kTwoLevel) {
    return put_two_levels(row, col, idx, rng);
  }
  const bool is_int4 = source_.format == WeightFormat::kInt4;
  const double scale = put_scale(source_.block.scale, scales_, idx, rng);
  const auto zero = static_cast<std::int8_t>(is_int4 ? rng.next_below(17) : rng.next_bits());
  if (source_.block.offset == OffsetKind::kZeroPoints) {
    put(offsets_, idx, zero);
    return {scale, -scale * zero};
  }
  return {scale, is_int4 ? -8.0 * scale : 0.0};
}

TestMatrix::BlockTerms TestMatrix::put_two_levels(std::int64_t row, std::int64_t col,
                                                  std::int64_t idx, Rng& rng) {
  const std::int64_t super = row * (source_.cols / kSuperBlockCols) + col / kSuperBlockCols;
  if (col % kSuperBlockCols == 0) {
    put(super_scales_, super, f16_code(rng));
    put(super_offsets_, super, f16_code(rng));
  }
  const auto scale = static_cast<std::int8_t>(rng.next_bits());
  const auto offset = static_cast<std::int8_t>(rng.next_below(64));
  put(scales_, idx, scale);
  const auto value = [&](const std::vector<std::byte>& supers, std::int8_t factor) {
    std::uint16_t code = 0;
    std::memcpy(&code, supers.data() + super * 2, sizeof(code));
    return static_cast<double>(f16_value(code)) * factor;
  };
  const double scale_value = value(super_scales_, scale);
  if (source_.block.offset == OffsetKind::kTwoLevel) {
    put(offsets_, idx, offset);
    return {scale_value, -value(super_offsets_, offset)};
  }
  return {scale_value, source_.format == WeightFormat::kInt4 ? -8.0 * scale_value : 0.0};
}

std::vector<BlockFormat> with_two_levels(std::vector<BlockFormat> blocks,
                                         const MatrixShape& shape) {
  if (shape.cols % kSuperBlockCols == 0 && kSuperBlockCols % shape.fp8_block_cols == 0) {
    blocks.push_back({ScaleFormat::kTwoLevel, OffsetKind::kCentred});
    blocks.push_back({ScaleFormat::kTwoLevel, OffsetKind::kTwoLevel});
  }
  return blocks;
}

void TestMatrix::fill(const MatrixShape& shape, Rng& rng) {
  const WeightFormat format = source_.format;
  const bool is_mxfp4 = format == WeightFormat::kMxfp4;
  source_.col_stride = is_mxfp4 ? 1 : shape.col_stride;
  source_.row_stride =
      (is_mxfp4 ? (shape.cols + 1) / 2 : shape.cols * shape.col_stride) + shape.row_padding;
  data_.resize(static_cast<std::size_t>(shape.rows * source_.row_stride * element_bytes(format)));
  if (format == WeightFormat::kFp8) {
    source_.block_rows = shape.fp8_block_rows;
    source_.block_cols = shape.fp8_block_cols;
    source_.scale_row_stride = (shape.cols + source_.block_cols - 1) / source_.block_cols + 1;
    const std::int64_t count =
        (shape.rows + source_.block_rows - 1) / source_.block_rows * source_.scale_row_stride;
    scales_.resize(static_cast<std::size_t>(count * 4 + 1));  // at an odd address
    for (std::int64_t i = 0; i < count; ++i) {
      const auto scale = static_cast<float>(0.01 * (0.5 + rng.next_uniform()));
      std::memcpy(scales_.data() + 1 + i * 4, &scale, 4);
    }
    source_.scales = scales_.data() + 1;
  } else if (is_mxfp4) {
    source_.scale_row_stride = (shape.cols + kMxfp4Group - 1) / kMxfp4Group + 1;
    scales_.resize(static_cast<std::size_t>(shape.rows * source_.scale_row_stride));
    for (auto& scale : scales_) {
      scale = static_cast<std::byte>(120 + rng.next_below(10));
    }
    source_.scales = scales_.data();
  }
  source_.data = data_.data();
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      double& value = values_[static_cast<std::size_t>(row * shape.cols + col)];
      if (is_mxfp4) {
        const auto code = static_cast<std::uint8_t>(rng.next_below(16));
        auto& pair = data_[static_cast<std::size_t>(row * source_.row_stride + col / 2)];
        pair |= static_cast<std::byte>(col % 2 == 0 ? code : code << 4U);
        const auto scale =
            scales_[static_cast<std::size_t>(row * source_.scale_row_stride + col / kMxfp4Group)];
        value = static_cast<double>(e2m1_value(code)) *
                static_cast<double>(e8m0_value(static_cast<std::uint8_t>(scale)));
        continue;
      }
      value = put_random(format, data_, row * source_.row_stride + col * source_.col_stride, rng);
      if (format == WeightFormat::kFp8) {
        float scale = 0.0F;
        const std::int64_t idx =
            row / source_.block_rows * source_.scale_row_stride + col / source_.block_cols;
        std::memcpy(&scale, source_.scales + idx * 4, 4);
        value *= static_cast<double>(scale);
      }
    }
  }
}

PackedMatrix TestMatrix::interleave(const TestMatrix& gate, const TestMatrix& up,
                                    AlignedBytes* storage) {
  const std::int64_t stride = gate.packed_.panel_stride_bytes;
  *storage = AlignedBytes(2 * gate.num_panels() * stride);
  for (std::int64_t panel = 0; panel < gate.num_panels(); ++panel) {
    pack_panel(gate.source_, panel, storage->data() + 2 * panel * stride);
    pack_panel(up.source_, panel, storage->data() + (2 * panel + 1) * stride);
  }
  PackedMatrix out = gate.packed_;
  out.data = storage->data();
  out.rows = 2 * gate.num_panels() * kPanelRows;
  return out;
}

double TestMatrix::product(std::int64_t row, const float* x, double* magnitude) const {
  double sum = 0.0;
  *magnitude = 0.0;
  for (std::int64_t col = 0; col < source_.cols; ++col) {
    const double term = value(row, col) * static_cast<double>(x[col]);
    sum += term;
    const auto at = static_cast<std::size_t>(row * source_.cols + col);
    *magnitude += magnitudes_.empty() ? std::fabs(term)
                                      : magnitudes_[at] * std::fabs(static_cast<double>(x[col]));
  }
  return sum;
}

}  // namespace moe::kernels
