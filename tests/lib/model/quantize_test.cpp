// Rounding to integers: the error stays below half a step of the scale, four bits lose no more than
// llama.cpp's rule for the same size would, and what cannot be better is exact.

#include "lib/model/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/model/dtype.hpp"

namespace moe::model {
namespace {

struct Rounded {
  std::vector<float> values;
  QuantizeError error;
};

Rounded rounded(const std::vector<float>& row, std::int32_t bits) {
  const auto cols = std::ssize(row);
  std::vector<std::byte> codes(static_cast<std::size_t>(quantized_code_bytes(bits, cols)));
  std::vector<std::byte> scales(static_cast<std::size_t>(quantized_scale_bytes(cols)));
  Rounded out;
  out.error = quantize_row(row, bits, codes.data(), scales.data());
  MatrixView source;
  source.rows = 1;
  source.cols = cols;
  out.values.resize(row.size());
  read_matrix_row(quantized_view(source, bits, codes.data(), scales.data()), 0, out.values.data());
  return out;
}

std::vector<float> normal_row(std::size_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> row(count);
  for (float& value : row) value = static_cast<float>(0.02 * rng.next_normal());
  return row;
}

// scale = value of largest magnitude / -8, in f16: the rule of the format of the same size.
double squared_error_of_q4_0(const std::vector<float>& row) {
  double sum = 0.0;
  for (std::size_t begin = 0; begin < row.size(); begin += 32) {
    float largest = 0.0F;
    for (std::size_t i = begin; i < begin + 32; ++i) {
      if (std::fabs(row[i]) > std::fabs(largest)) largest = row[i];
    }
    const float scale = f16_to_f32(f32_to_f16(largest / -8.0F));
    for (std::size_t i = begin; i < begin + 32; ++i) {
      const float code = std::min(15.0F, std::floor(row[i] / (largest / -8.0F) + 8.5F));
      const auto delta = static_cast<double>(row[i] - (code - 8.0F) * scale);
      sum += delta * delta;
    }
  }
  return sum;
}

TEST(Quantize, EightBitsStayWithinHalfAStep) {
  const std::vector<float> row = normal_row(256, 1);
  const Rounded found = rounded(row, 8);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto begin = static_cast<std::ptrdiff_t>(i / 32 * 32);
    float largest = 0.0F;
    for (auto at = row.begin() + begin; at != row.begin() + begin + 32; ++at) {
      largest = std::max(largest, std::fabs(*at));
    }
    // Half a step, and what rounding the scale to bf16 moves the largest code by.
    EXPECT_NEAR(static_cast<double>(found.values[i]), static_cast<double>(row[i]),
                static_cast<double>(largest) * (0.5 / 127.0 + 0x1p-8));
  }
}

TEST(Quantize, FourBitsLoseLessThanTheRuleOfQ4_0) {
  const std::vector<float> row = normal_row(4096, 2);
  EXPECT_LT(rounded(row, 4).error.squared_error, squared_error_of_q4_0(row));
}

TEST(Quantize, ReportsTheErrorThatItMade) {
  const std::vector<float> row = normal_row(96, 3);
  for (const std::int32_t bits : {4, 8}) {
    const Rounded found = rounded(row, bits);
    double squares = 0.0;
    double weights = 0.0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      squares += std::pow(static_cast<double>(found.values[i]) - static_cast<double>(row[i]), 2);
      weights += std::pow(static_cast<double>(row[i]), 2);
    }
    EXPECT_NEAR(found.error.squared_error, squares, 1e-6 * weights);
    EXPECT_NEAR(found.error.squared_weight, weights, 1e-12);
  }
}

TEST(Quantize, KeepsZerosAndShortGroups) {
  std::vector<float> row(37, 0.0F);
  row[33] = 1.0F;
  row[36] = -0.5F;
  for (const std::int32_t bits : {4, 8}) {
    const Rounded found = rounded(row, bits);
    for (std::size_t i = 0; i < 33; ++i) EXPECT_EQ(found.values[i], 0.0F);
    EXPECT_NEAR(found.values[33], 1.0F, 0.01F);
    EXPECT_NEAR(found.values[36], -0.5F, 0.01F);
  }
}

}  // namespace
}  // namespace moe::model
