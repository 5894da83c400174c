#include "lib/model/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace moe::model {
namespace {

TEST(Dtype, NamesGoBothWays) {
  for (int index = 0; index <= static_cast<int>(Dtype::kU64); ++index) {
    const auto dtype = static_cast<Dtype>(index);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("BF17"), std::nullopt);
  EXPECT_EQ(parse_dtype("bf16"), std::nullopt);
  EXPECT_EQ(dtype_bits(Dtype::kF4), 4);
  EXPECT_EQ(dtype_bits(Dtype::kF6E2m3), 6);
  EXPECT_EQ(dtype_bits(Dtype::kF8E4m3), 8);
  EXPECT_EQ(dtype_bits(Dtype::kC64), 64);
}

// Every f16 against the definition: (-1)^s 2^(e-15) 1.m, subnormals 2^-14 0.m.
TEST(Dtype, F16HasTheValuesOfItsDefinition) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10 & 0x1f);
    const double mantissa = (bits & 0x3ff) / 1024.0;
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0.0);
      EXPECT_EQ(std::isinf(value), mantissa == 0.0);
    } else if (exponent == 0) {
      EXPECT_EQ(value, sign * std::ldexp(mantissa, -14));
    } else {
      EXPECT_EQ(value, sign * std::ldexp(1.0 + mantissa, exponent - 15));
    }
    if (!std::isnan(value)) {
      EXPECT_EQ(f32_to_f16(value), bits);
    }
  }
}

// F8 E4M3 "fn": bias 7, no infinity, one NaN per sign, largest value 448.
TEST(Dtype, F8E4m3HasTheValuesOfItsDefinition) {
  for (std::uint32_t bits = 0; bits <= 0xff; ++bits) {
    const float value = f8_e4m3_to_f32(static_cast<std::uint8_t>(bits));
    const int exponent = static_cast<int>(bits >> 3 & 0xf);
    const double mantissa = (bits & 7) / 8.0;
    const double sign = (bits & 0x80) != 0 ? -1.0 : 1.0;
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    const double expected = exponent == 0 ? sign * std::ldexp(mantissa, -6)
                                          : sign * std::ldexp(1.0 + mantissa, exponent - 7);
    EXPECT_EQ(value, expected);
    EXPECT_EQ(f32_to_f8_e4m3(value), bits);
  }
  EXPECT_EQ(f8_e4m3_to_f32(0x7e), 448.0f);
}

// Rounding against the nearest neighbour found by search, ties to the even code.
template <typename Bits, typename ToFloat, typename FromFloat>
void expect_nearest_even(Bits last_finite, ToFloat to_float, FromFloat from_float) {
  for (std::uint32_t code = 0; code < last_finite; ++code) {
    const double low = to_float(static_cast<Bits>(code));
    const double high = to_float(static_cast<Bits>(code + 1));
    const auto middle = static_cast<float>(0.5 * (low + high));
    ASSERT_EQ(static_cast<double>(middle), 0.5 * (low + high)) << "a tie must be an f32";
    const std::uint32_t even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(from_float(middle), even) << code;
    ASSERT_EQ(from_float(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(from_float(std::nextafter(middle, std::numeric_limits<float>::infinity())), code + 1);
  }
}

TEST(Dtype, ConversionsRoundToNearestEven) {
  expect_nearest_even<std::uint16_t>(0x7bff, f16_to_f32, f32_to_f16);
  expect_nearest_even<std::uint8_t>(0x7e, f8_e4m3_to_f32, f32_to_f8_e4m3);
  expect_nearest_even<std::uint16_t>(0x7f7e, bf16_to_f32, f32_to_bf16);
}

TEST(Dtype, ExtremesStayWhatTheyAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(f32_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xfc00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(kNan))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(kNan))));
  // A NaN whose payload lies in the bits that are cut must not become infinity.
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(bf16_to_f32(f32_to_bf16(kInfinity)), kInfinity);
  EXPECT_EQ(f32_to_f8_e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_f8_e4m3(-kInfinity), 0xfe);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(f32_to_f8_e4m3(kNan))));
}

}  // namespace
}  // namespace moe::model
