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

Rounded rounded(const std::vector<float>& row, Rounding rounding) {
  const auto cols = std::ssize(row);
  std::vector<std::byte> codes(static_cast<std::size_t>(quantized_code_bytes(rounding, cols)));
  std::vector<std::byte> scales(static_cast<std::size_t>(quantized_scale_bytes(rounding, cols)));
  Rounded out;
  out.error = quantize_row(row, rounding, codes.data(), scales.data());
  MatrixView source;
  source.rows = 1;
  source.cols = cols;
  out.values.resize(row.size());
  read_matrix_row(quantized_view(source, rounding, codes.data(), scales.data()), 0,
                  out.values.data());
  return out;
}

constexpr Rounding kRoundings[] = {{.bits = 4}, {.bits = 8}, {.bits = 8, .is_per_row = true}};

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
  const Rounded found = rounded(row, {.bits = 8});
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

TEST(Quantize, OneScaleKeepsARowWithinHalfAStepOfIt) {
  std::vector<float> row = normal_row(300, 4);
  row[299] = -0.5F;  // far above the others
  const Rounded found = rounded(row, {.bits = 8, .is_per_row = true});
  EXPECT_EQ(found.values[299], -0.5F);
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(found.values[i], row[i], 0.5F * 0.5F / 127.0F * 1.0001F);
  }
  EXPECT_GT(found.error.squared_error, 4 * rounded(row, {.bits = 8}).error.squared_error);
}

TEST(Quantize, FourBitsLoseLessThanTheRuleOfQ4_0) {
  const std::vector<float> row = normal_row(4096, 2);
  EXPECT_LT(rounded(row, {.bits = 4}).error.squared_error, squared_error_of_q4_0(row));
}

TEST(Quantize, ReportsTheErrorThatItMade) {
  const std::vector<float> row = normal_row(96, 3);
  for (const Rounding rounding : kRoundings) {
    const Rounded found = rounded(row, rounding);
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
  for (const Rounding rounding : kRoundings) {
    const Rounded found = rounded(row, rounding);
    for (std::size_t i = 0; i < 33; ++i) EXPECT_EQ(found.values[i], 0.0F);
    EXPECT_NEAR(found.values[33], 1.0F, 0.01F);
    EXPECT_NEAR(found.values[36], -0.5F, 0.01F);
  }
}

TEST(Quantize, WeightsNextToNothingBecomeZero) {
  std::vector<float> row(64, 0.0F);
  row[1] = 0x1p-140F;
  row[40] = -0x1p-149F;
  for (const Rounding rounding : kRoundings) {
    const Rounded found = rounded(row, rounding);
    for (const float value : found.values) EXPECT_NEAR(value, 0.0F, 0x1p-130F);
  }
}

}  // namespace
}  // namespace moe::model
