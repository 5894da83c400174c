// Goal: the operations on single vectors are right for every length and write nothing beyond it.
// Method: sums in double, with the tolerance of tolerance.hpp.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/numeric.hpp"
#include "tests/kernels/levels.hpp"
#include "tests/kernels/matrices.hpp"
#include "tests/kernels/tolerance.hpp"

namespace moe::kernels {
namespace {

constexpr std::int64_t kLengths[] = {0, 1, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 200, 2048, 2880};

class VectorOps : public LevelTest {};

TEST_P(VectorOps, DotIsTheSumOfProducts) {
  Rng rng(41);
  for (const std::int64_t n : kLengths) {
    const std::vector<float> x = random_floats(rng, n + 1);
    const std::vector<float> y = random_floats(rng, n + 1);
    double expected = 0.0;
    double magnitude = 0.0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const double term = static_cast<double>(x[i]) * static_cast<double>(y[i]);
      expected += term;
      magnitude += std::fabs(term);
    }
    EXPECT_NEAR(static_cast<double>(table().dot(x.data(), y.data(), n)), expected,
                sum_tolerance(n, magnitude))
        << n;
  }
}

TEST_P(VectorOps, RmsNormDividesByTheRootMeanSquare) {
  Rng rng(42);
  for (const std::int64_t n : kLengths) {
    if (n == 0) {
      continue;  // the mean of nothing
    }
    std::vector<float> x = random_floats(rng, n + 1);
    const std::vector<float> weight = random_floats(rng, n);
    double square = 0.0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const double inverse_rms = 1.0 / std::sqrt(square / static_cast<double>(n) + 0.25);
    std::vector<float> y(static_cast<std::size_t>(n + 1), -3.0F);
    table().rms_norm(x.data(), weight.data(), n, 0.25F, y.data());
    const float beyond = x.back();
    std::vector<float> in_place = x;
    table().rms_norm(in_place.data(), weight.data(), n, 0.25F, in_place.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const double expected =
          static_cast<double>(x[i]) * inverse_rms * static_cast<double>(weight[i]);
      // All terms of the sum of squares are positive: its error is relative.
      EXPECT_NEAR(static_cast<double>(y[i]), expected,
                  sum_tolerance(n, std::fabs(expected)) + 8.0 * kF32Roundoff * std::fabs(expected))
          << n;
      EXPECT_EQ(in_place[i], y[i]);
    }
    EXPECT_EQ(y.back(), -3.0F);
    EXPECT_EQ(in_place.back(), beyond);
  }
}

TEST_P(VectorOps, AxpyIsOneFusedMultiplyAddPerElement) {
  Rng rng(43);
  for (const std::int64_t n : kLengths) {
    const std::vector<float> x = random_floats(rng, n + 1);
    const std::vector<float> before = random_floats(rng, n + 1);
    std::vector<float> out = before;
    table().axpy(-1.7F, x.data(), n, out.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      EXPECT_EQ(out[i], std::fma(-1.7F, x[i], before[i])) << n;
    }
    EXPECT_EQ(out.back(), before.back());
  }
}

TEST_P(VectorOps, F32ToBf16WritesExactlyItsElements) {
  Rng rng(44);
  for (const std::int64_t n : kLengths) {
    const std::vector<float> x = random_floats(rng, n + 1);
    std::vector<std::uint16_t> out(static_cast<std::size_t>(n + 1), 0xabcd);
    table().f32_to_bf16(x.data(), n, out.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      EXPECT_EQ(out[i], bf16_from_f32(x[i])) << n;
    }
    EXPECT_EQ(out.back(), 0xabcd);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, VectorOps, testing::ValuesIn(levels_under_test()),
                         level_test_name);

}  // namespace
}  // namespace moe::kernels
