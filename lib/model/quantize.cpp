#include "lib/model/quantize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/dtype.hpp"

namespace moe::model {
namespace {

// Codes reach from -8 to 7 or from -127 to 127. Four bits waste nothing when the largest magnitude
// becomes -8, so its sign decides the scale's.
struct CodeRange {
  float low;
  float high;
};

CodeRange code_range(std::int32_t bits) {
  MOE_CHECK(bits == 4 || bits == 8);
  return bits == 4 ? CodeRange{-8.0F, 7.0F} : CodeRange{-127.0F, 127.0F};
}

float rounded_scale(float scale) {
  return bf16_to_f32(f32_to_bf16(scale));
}

float code_of(float weight, float inverse, CodeRange range) {
  return std::clamp(std::nearbyint(weight * inverse), range.low, range.high);
}

double squared_error(std::span<const float> group, float scale, CodeRange range) {
  const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
  double sum = 0.0;
  for (const float weight : group) {
    const float delta = weight - scale * code_of(weight, inverse, range);
    sum += static_cast<double>(delta * delta);
  }
  return sum;
}

// Clipping the largest weights a little may round all the others better.
float best_scale(std::span<const float> group, std::int32_t bits) {
  constexpr std::array<float, 6> kSteps4 = {8.0F, 7.6F, 7.2F, 7.0F, 8.4F, 8.8F};
  constexpr std::array<float, 1> kSteps8 = {127.0F};
  const float largest = *std::ranges::max_element(
      group, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const CodeRange range = code_range(bits);
  const std::span<const float> steps =
      bits == 4 ? std::span<const float>(kSteps4) : std::span<const float>(kSteps8);
  float best = 0.0F;
  double least = -1.0;
  for (const float step : steps) {
    const float scale = rounded_scale(bits == 4 ? -largest / step : std::fabs(largest) / step);
    const double error = squared_error(group, scale, range);
    if (least < 0.0 || error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

}  // namespace

std::int64_t quantized_code_bytes(std::int32_t bits, std::int64_t cols) {
  return div_ceil(cols * bits, 8);
}

std::int64_t quantized_scale_bytes(std::int64_t cols) {
  return div_ceil(cols, kQuantizeGroup) * 2;
}

QuantizeError quantize_row(std::span<const float> row, std::int32_t bits, std::byte* codes,
                           std::byte* scales) {
  const CodeRange range = code_range(bits);
  QuantizeError error;
  std::fill_n(codes, quantized_code_bytes(bits, std::ssize(row)), std::byte{0});
  for (std::size_t begin = 0; begin < row.size(); begin += kQuantizeGroup) {
    const auto group =
        row.subspan(begin, std::min<std::size_t>(kQuantizeGroup, row.size() - begin));
    const float scale = best_scale(group, bits);
    const std::uint16_t stored = f32_to_bf16(scale);
    std::memcpy(scales + begin / kQuantizeGroup * 2, &stored, sizeof(stored));
    const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const auto code = static_cast<int>(code_of(group[i], inverse, range));
      const std::size_t col = begin + i;
      if (bits == 8) {
        codes[col] = static_cast<std::byte>(code);
      } else {
        codes[col / 2] |= static_cast<std::byte>((code + 8) << (col % 2 == 0 ? 0 : 4));
      }
      const double delta = static_cast<double>(group[i]) - static_cast<double>(scale) * code;
      error.squared_error += delta * delta;
      error.squared_weight += static_cast<double>(group[i]) * static_cast<double>(group[i]);
    }
  }
  return error;
}

MatrixView quantized_view(const MatrixView& source, std::int32_t bits, const std::byte* codes,
                          const std::byte* scales) {
  MatrixView view;
  view.name = source.name;
  view.encoding = MatrixEncoding::kIntRows;
  view.dtype = Dtype::kI8;
  view.rows = source.rows;
  view.cols = source.cols;
  view.data = codes;
  view.row_stride = quantized_code_bytes(bits, source.cols);
  view.code_bits = bits;
  view.block_rows = 1;
  view.block_cols = kQuantizeGroup;
  view.scales = scales;
  view.scale_dtype = Dtype::kBf16;
  view.scale_row_stride = div_ceil(source.cols, kQuantizeGroup);
  return view;
}

}  // namespace moe::model
