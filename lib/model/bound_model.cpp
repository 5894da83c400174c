#include "lib/model/bound_model.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "lib/base/check.hpp"
#include "lib/model/coded_matrix.hpp"

namespace moe::model {
namespace {

float load_plain(const std::byte* address, Dtype dtype) {
  if (dtype == Dtype::kF32) {
    float value = 0.0f;
    std::memcpy(&value, address, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, address, sizeof(bits));
  return dtype == Dtype::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void read_plain_row(const MatrixView& view, std::int64_t row, float* out) {
  const std::int64_t element_bytes = dtype_bits(view.dtype) / 8;
  const std::byte* address = view.data + row * view.row_stride * element_bytes;
  for (std::int64_t col = 0; col < view.cols; ++col) {
    out[col] = load_plain(address + col * view.col_stride * element_bytes, view.dtype);
  }
}

void read_fp8_row(const MatrixView& view, std::int64_t row, float* out) {
  const auto* scales =
      reinterpret_cast<const std::byte*>(view.fp8_scales) +
      row / view.block_rows * view.scale_row_stride * static_cast<std::int64_t>(sizeof(float));
  const std::byte* address = view.data + row * view.row_stride;
  for (std::int64_t col = 0; col < view.cols; ++col) {
    float scale = 0.0f;
    std::memcpy(&scale, scales + col / view.block_cols * static_cast<std::int64_t>(sizeof(float)),
                sizeof(scale));
    out[col] =
        f8_e4m3_to_f32(std::to_integer<std::uint8_t>(address[col * view.col_stride])) * scale;
  }
}

void read_mxfp4_row(const MatrixView& view, std::int64_t row, float* out) {
  constexpr std::array<float, 16> kValues = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                             4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                             -2.0f, -3.0f, -4.0f, -6.0f};
  const std::byte* address = view.data + row * view.row_stride;
  const std::byte* scales = view.mxfp4_scales + row * view.scale_row_stride;
  for (std::int64_t col = 0; col < view.cols; ++col) {
    const auto packed = std::to_integer<unsigned>(address[col / 2]);
    const int exponent = std::to_integer<int>(scales[col / 32]) - 127;
    out[col] = std::ldexp(kValues[col % 2 == 0 ? packed & 0xfu : packed >> 4], exponent);
  }
}

}  // namespace

std::vector<float> read_vector(const VectorView& view) {
  std::vector<float> out(static_cast<std::size_t>(view.size));
  const std::int64_t element_bytes = dtype_bits(view.dtype) / 8;
  for (std::int64_t index = 0; index < view.size; ++index) {
    out[static_cast<std::size_t>(index)] =
        load_plain(view.data + index * view.stride * element_bytes, view.dtype);
  }
  return out;
}

void read_matrix_row(const MatrixView& view, std::int64_t row, float* out) {
  MOE_CHECK(row >= 0 && row < view.rows);
  switch (view.encoding) {
    case MatrixEncoding::kPlain:
      read_plain_row(view, row, out);
      return;
    case MatrixEncoding::kFp8Block:
      read_fp8_row(view, row, out);
      return;
    case MatrixEncoding::kMxfp4:
      read_mxfp4_row(view, row, out);
      return;
    case MatrixEncoding::kIntRows:
    case MatrixEncoding::kGptq:
    case MatrixEncoding::kAwq:
    case MatrixEncoding::kGgufQ8_0:
    case MatrixEncoding::kGgufQ4_0:
    case MatrixEncoding::kGgufQ4K:
    case MatrixEncoding::kGgufQ6K:
    case MatrixEncoding::kGgufMxfp4:
      read_coded_row(view, row, out);
      return;
  }
}

}  // namespace moe::model
