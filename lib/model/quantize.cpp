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

// A group, filled up with zeros: every loop over it has the same length, known to the compiler.
using Group = std::array<float, kQuantizeGroup>;
static_assert(kQuantizeGroup % 4 == 0);

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

// In four sums that do not wait for one another: the compiler may not reorder one.
template <typename Value>
Value sum_of(const std::array<Value, kQuantizeGroup>& values) {
  std::array<Value, 4> sums{};
  for (std::size_t i = 0; i < values.size(); i += sums.size()) {
    for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += values[i + k];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// 0 where 1 / scale is no finite number: weights that small become zero.
float inverse_of(float scale) {
  const float inverse = 1.0F / scale;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

// The nearest integer, ties to even: above 2^23 floats are integers, and the sum is rounded to one.
float code_of(float weight, float inverse, CodeRange range) {
  constexpr float kShift = 0x1.8p23F;
  return std::min(std::max(weight * inverse, range.low), range.high) + kShift - kShift;
}

float squared_error(const Group& group, float scale, CodeRange range) {
  const float inverse = inverse_of(scale);
  Group squares;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const float delta = group[i] - scale * code_of(group[i], inverse, range);
    squares[i] = delta * delta;
  }
  return sum_of<float>(squares);
}

// The value of largest magnitude, with its sign.
float largest_of(const Group& group) {
  std::array<float, 4> low{};
  std::array<float, 4> high{};
  for (std::size_t i = 0; i < group.size(); i += low.size()) {
    for (std::size_t k = 0; k < low.size(); ++k) {
      low[k] = std::min(low[k], group[i + k]);
      high[k] = std::max(high[k], group[i + k]);
    }
  }
  const float least = *std::ranges::min_element(low);
  const float most = *std::ranges::max_element(high);
  return -least >= most ? least : most;
}

// Clipping the largest weights a little may round all the others better.
float best_scale(const Group& group, std::int32_t bits) {
  constexpr std::array<float, 6> kSteps4 = {8.0F, 7.6F, 7.2F, 7.0F, 8.4F, 8.8F};
  const float largest = largest_of(group);
  if (bits == 8) return rounded_scale(std::fabs(largest) / 127.0F);
  const CodeRange range = code_range(bits);
  float best = 0.0F;
  float least = -1.0F;
  for (const float step : kSteps4) {
    const float scale = rounded_scale(-largest / step);
    const float error = squared_error(group, scale, range);
    if (least < 0.0F || error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

// What rounding the group changes, in f64.
void add_errors(const Group& group, const Group& codes, float scale, QuantizeError& error) {
  std::array<double, kQuantizeGroup> changed;
  std::array<double, kQuantizeGroup> weights;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const auto weight = static_cast<double>(group[i]);
    const double delta = weight - static_cast<double>(scale) * static_cast<double>(codes[i]);
    changed[i] = delta * delta;
    weights[i] = weight * weight;
  }
  error.squared_error += sum_of<double>(changed);
  error.squared_weight += sum_of<double>(weights);
}

// The scale of a whole row.
float row_scale(std::span<const float> row) {
  float largest = 0.0F;
  for (const float weight : row) largest = std::max(largest, std::fabs(weight));
  return largest / 127.0F;
}

}  // namespace

std::int64_t quantized_code_bytes(Rounding rounding, std::int64_t cols) {
  return div_ceil(cols * rounding.bits, 8);
}

std::int64_t quantized_scale_bytes(Rounding rounding, std::int64_t cols) {
  return rounding.is_per_row ? 4 : div_ceil(cols, kQuantizeGroup) * 2;
}

QuantizeError quantize_row(std::span<const float> row, Rounding rounding, std::byte* codes,
                           std::byte* scales) {
  const std::int32_t bits = rounding.bits;
  const CodeRange range = code_range(bits);
  MOE_CHECK(bits == 8 || !rounding.is_per_row);
  QuantizeError error;
  std::fill_n(codes, quantized_code_bytes(rounding, std::ssize(row)), std::byte{0});
  const float scale_of_row = rounding.is_per_row ? row_scale(row) : 0.0F;
  if (rounding.is_per_row) std::memcpy(scales, &scale_of_row, sizeof(scale_of_row));
  for (std::size_t begin = 0; begin < row.size(); begin += kQuantizeGroup) {
    const std::size_t count = std::min<std::size_t>(kQuantizeGroup, row.size() - begin);
    Group group{};
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(begin), count, group.begin());
    const float scale = rounding.is_per_row ? scale_of_row : best_scale(group, bits);
    if (!rounding.is_per_row) {
      const std::uint16_t stored = f32_to_bf16(scale);
      std::memcpy(scales + begin / kQuantizeGroup * 2, &stored, sizeof(stored));
    }
    const float inverse = inverse_of(scale);
    Group rounded;
    for (std::size_t i = 0; i < group.size(); ++i) rounded[i] = code_of(group[i], inverse, range);
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = static_cast<int>(rounded[i]);
      const std::size_t col = begin + i;
      if (bits == 8) {
        codes[col] = static_cast<std::byte>(code);
      } else {
        codes[col / 2] |= static_cast<std::byte>((code + 8) << (col % 2 == 0 ? 0 : 4));
      }
    }
    add_errors(group, rounded, scale, error);
  }
  return error;
}

MatrixView quantized_view(const MatrixView& source, Rounding rounding, const std::byte* codes,
                          const std::byte* scales) {
  MatrixView view;
  view.name = source.name;
  view.encoding = MatrixEncoding::kIntRows;
  view.dtype = Dtype::kI8;
  view.rows = source.rows;
  view.cols = source.cols;
  view.data = codes;
  view.row_stride = quantized_code_bytes(rounding, source.cols);
  view.code_bits = rounding.bits;
  view.block_rows = 1;
  view.block_cols = rounding.is_per_row ? static_cast<std::int32_t>(source.cols) : kQuantizeGroup;
  view.scales = scales;
  view.scale_dtype = rounding.is_per_row ? Dtype::kF32 : Dtype::kBf16;
  view.scale_row_stride = div_ceil(source.cols, view.block_cols);
  return view;
}

}  // namespace moe::model
