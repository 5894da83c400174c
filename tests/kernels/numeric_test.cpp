// Goal: the storage formats mean what their standards say, for every code, in the scalar functions
// and in the unpacking of every level. Method: values from the definition (sign, mantissa times a
// power of two), and products with one-hot activations, which deliver single weights exactly.

#include "kernels/cpu/numeric.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/aligned_buffer.hpp"
#include "tests/kernels/levels.hpp"

namespace moe::kernels {
namespace {

// A binary format with `exponent_bits` and `mantissa_bits`; the top exponent is ordinary.
double defined_value(std::uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const auto mantissa = static_cast<double>(code & ((1U << mantissa_bits) - 1U));
  const auto exponent = static_cast<int>((code >> mantissa_bits) & ((1U << exponent_bits) - 1U));
  const double one = std::ldexp(1.0, mantissa_bits);
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                               : std::ldexp(one + mantissa, exponent - bias - mantissa_bits);
  return (code >> (exponent_bits + mantissa_bits)) != 0 ? -magnitude : magnitude;
}

bool same(float actual, double expected) {
  return std::isnan(expected) ? std::isnan(actual) : static_cast<double>(actual) == expected;
}

double f16_definition(std::uint32_t code) {
  if ((code & 0x7c00U) == 0x7c00U) {
    const double infinity = std::numeric_limits<double>::infinity();
    return (code & 0x3ffU) != 0 ? std::nan("") : (code & 0x8000U) != 0 ? -infinity : infinity;
  }
  return defined_value(code, 5, 10, 15);
}

double e4m3_definition(std::uint32_t code) {
  return (code & 0x7fU) == 0x7fU ? std::nan("") : defined_value(code, 4, 3, 7);
}

TEST(Numeric, F16IsDecodedByDefinition) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    EXPECT_TRUE(same(f16_value(static_cast<std::uint16_t>(code)), f16_definition(code))) << code;
  }
}

TEST(Numeric, Bf16IsTheUpperHalfOfF32AndRoundTrips) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto bits = static_cast<std::uint16_t>(code);
    const float value = bf16_value(bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), code << 16U);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_value(bf16_from_f32(value)))) << code;
    } else {
      EXPECT_EQ(bf16_from_f32(value), bits);
    }
  }
}

TEST(Numeric, Bf16RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f808000U)), 0x3f80U);  // tie, even below
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f818000U)), 0x3f82U);  // tie, even above
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f808001U)), 0x3f81U);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f807fffU)), 0x3f80U);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7f7fffffU)), 0x7f80U);  // to infinity
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x00008001U)), 0x0001U);  // subnormal
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7f800001U)), 0x7fc0U);  // NaN
}

TEST(Numeric, E4m3IsDecodedByDefinition) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_TRUE(same(e4m3_value(static_cast<std::uint8_t>(code)), e4m3_definition(code))) << code;
  }
  EXPECT_EQ(e4m3_value(0x7e), 448.0F);
}

TEST(Numeric, E2m1IsDecodedByDefinition) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    EXPECT_TRUE(same(e2m1_value(static_cast<std::uint8_t>(code)), defined_value(code, 2, 1, 1)))
        << code;
  }
}

TEST(Numeric, E8m0IsAPowerOfTwoAndTheLastCodeIsNan) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_TRUE(same(e8m0_value(static_cast<std::uint8_t>(code)), std::ldexp(1.0, code - 127)));
  }
  EXPECT_TRUE(std::isnan(e8m0_value(255)));
}

class Unpacking : public LevelTest {
 protected:
  // The weights in column `col` of the source, as products with a one-hot row; both with one row
  // and with many, which take different ways through the code.
  static void expect_column(const SourceMatrix& source, std::int64_t col,
                            const std::vector<double>& expected) {
    constexpr std::int64_t kManyRows = 30;
    const std::int64_t num_panels = (source.rows + 15) / 16;
    const std::int64_t stride = panel_bytes(source.format, source.cols, source.block_cols);
    AlignedBytes panels(num_panels * stride);
    for (std::int64_t panel = 0; panel < num_panels; ++panel) {
      pack_panel(source, panel, panels.data() + panel * stride);
    }
    AlignedBuffer<float> x(kManyRows * source.cols);
    AlignedBuffer<float> y(kManyRows * source.rows);
    for (std::int64_t row = 0; row < kManyRows; ++row) {
      x[row * source.cols + col] = 1.0F;
    }
    for (const std::int64_t num_rows : {std::int64_t{1}, kManyRows}) {
      table().gemm({.weight = {.data = panels.data(),
                               .format = source.format,
                               .rows = source.rows,
                               .cols = source.cols,
                               .block_cols = source.block_cols,
                               .panel_stride_bytes = stride},
                    .panel_begin = 0,
                    .panel_end = num_panels,
                    .x = x.data(),
                    .x_stride = source.cols,
                    .num_rows = num_rows,
                    .y = y.data(),
                    .y_stride = source.rows});
      for (std::int64_t i = 0; i < source.rows; ++i) {
        ASSERT_TRUE(
            same(y[(num_rows - 1) * source.rows + i], expected[static_cast<std::size_t>(i)]))
            << "output " << i << " is " << y[(num_rows - 1) * source.rows + i];
      }
    }
  }

  template <class Code>
  static SourceMatrix one_column(WeightFormat format, const std::vector<Code>& codes) {
    return {.format = format,
            .rows = static_cast<std::int64_t>(codes.size()),
            .cols = 1,
            .data = reinterpret_cast<const std::byte*>(codes.data()),
            .row_stride = 1};
  }
};

TEST_P(Unpacking, GivesEveryF16Code) {
  std::vector<std::uint16_t> codes;
  std::vector<double> expected;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    codes.push_back(static_cast<std::uint16_t>(code));
    expected.push_back(f16_definition(code));
  }
  expect_column(one_column(WeightFormat::kF16, codes), 0, expected);
}

TEST_P(Unpacking, GivesEveryBf16CodeInBothColumnsOfAPair) {
  std::vector<std::uint16_t> codes;
  std::vector<double> expected;
  for (std::uint32_t code = 0; code < 65536; ++code) {
    codes.push_back(static_cast<std::uint16_t>(code));
    expected.push_back(static_cast<double>(std::bit_cast<float>(code << 16U)));
  }
  expect_column(one_column(WeightFormat::kBf16, codes), 0, expected);
  std::vector<std::uint16_t> pairs(2 * codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    pairs[2 * i] = 0x3f81U;  // bits that would show if they leaked into the odd column
    pairs[2 * i + 1] = codes[i];
  }
  SourceMatrix source = one_column(WeightFormat::kBf16, pairs);
  source.rows /= 2;
  source.cols = 2;
  source.row_stride = 2;
  expect_column(source, 1, expected);
}

TEST_P(Unpacking, GivesEveryFp8Code) {
  std::vector<std::uint8_t> codes;
  std::vector<double> expected;
  std::vector<float> scales;
  for (std::uint32_t code = 0; code < 256; ++code) {
    codes.push_back(static_cast<std::uint8_t>(code));
    expected.push_back(3.0 * e4m3_definition(code));
    scales.push_back(3.0F);
  }
  SourceMatrix source = one_column(WeightFormat::kFp8, codes);
  source.scales = reinterpret_cast<const std::byte*>(scales.data());
  source.scale_row_stride = 1;
  source.block_rows = 1;
  source.block_cols = 1;
  expect_column(source, 0, expected);
}

TEST_P(Unpacking, GivesEveryMxfp4CodeWithEveryScale) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    std::vector<std::uint8_t> pairs(256 * 16);
    std::vector<std::uint8_t> scales;
    std::vector<double> expected;
    for (int scale = 0; scale < 256; ++scale) {
      const std::uint32_t other = 15U - code;
      pairs[static_cast<std::size_t>(scale) * 16 + 3] =
          static_cast<std::uint8_t>(code | (other << 4U));
      scales.push_back(static_cast<std::uint8_t>(scale));
      // Rounded to f32: the largest scale times 6 overflows.
      const double product = defined_value(code, 2, 1, 1) * std::ldexp(1.0, scale - 127);
      expected.push_back(scale == 255 ? std::nan("")
                                      : static_cast<double>(static_cast<float>(product)));
    }
    SourceMatrix source{.format = WeightFormat::kMxfp4,
                        .rows = 256,
                        .cols = 32,
                        .data = reinterpret_cast<const std::byte*>(pairs.data()),
                        .row_stride = 16,
                        .scales = reinterpret_cast<const std::byte*>(scales.data()),
                        .scale_row_stride = 1};
    expect_column(source, 6, expected);
    for (int scale = 0; scale < 255; ++scale) {
      const double product = defined_value(15U - code, 2, 1, 1) * std::ldexp(1.0, scale - 127);
      expected[static_cast<std::size_t>(scale)] = static_cast<double>(static_cast<float>(product));
    }
    expect_column(source, 7, expected);
  }
}

TEST_P(Unpacking, RoundsEveryKindOfF32ToBf16AsTheDefinitionDoes) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 65536; high += 7) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>((high << 16U) | low));
    }
  }
  std::vector<std::uint16_t> out(values.size());
  table().f32_to_bf16(values.data(), static_cast<std::int64_t>(values.size()), out.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(out[i], bf16_from_f32(values[i])) << std::bit_cast<std::uint32_t>(values[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Unpacking, testing::ValuesIn(levels_under_test()),
                         level_test_name);

}  // namespace
}  // namespace moe::kernels
