#include "lib/base/parse_number.hpp"

#include <cstdint>

#include <gtest/gtest.h>

namespace moe {
namespace {

TEST(ParseNumber, TakesAWholeText) {
  EXPECT_EQ(parse_number<std::int32_t>("-12"), -12);
  EXPECT_EQ(parse_number<std::int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_number<double>("1.5e3"), 1500.0);
  EXPECT_EQ(parse_number<double>("-0.25"), -0.25);
}

TEST(ParseNumber, RefusesWhatIsNotOneNumber) {
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "0x10", "1,5", "--1"}) {
    EXPECT_FALSE(parse_number<std::int64_t>(text)) << text;
    EXPECT_FALSE(parse_number<double>(text)) << text;
  }
  EXPECT_FALSE(parse_number<std::int64_t>("1.0"));
  EXPECT_FALSE(parse_number<std::uint32_t>("-1"));
}

TEST(ParseNumber, RefusesWhatDoesNotFitAndWhatIsNotFinite) {
  EXPECT_FALSE(parse_number<std::int32_t>("2147483648"));
  for (const char* text : {"inf", "-inf", "nan", "infinity", "1e999"}) {
    EXPECT_FALSE(parse_number<double>(text)) << text;
  }
}

}  // namespace
}  // namespace moe
