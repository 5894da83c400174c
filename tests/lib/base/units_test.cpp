#include "lib/base/units.hpp"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe {
namespace {

TEST(Units, BytesAreDecimalOrBinaryAsSpelled) {
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("512"), 512);
  EXPECT_EQ(parse_bytes("512B"), 512);
  EXPECT_EQ(parse_bytes("64MB"), 64'000'000);
  EXPECT_EQ(parse_bytes("64MiB"), 67'108'864);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000);
  EXPECT_EQ(parse_bytes("2TiB"), std::int64_t{2} << 40);
}

TEST(Units, WhatIsNoSizeIsAUsageErrorThatShowsTheText) {
  for (const char* text : {"", "MB", "12 parrots", "-1", "1e400", "nan", "inf", "64mb", "5M", "1.5",
                           "0.3B", "9223372036854775808", "9.3e18", "0x10"}) {
    try {
      static_cast<void>(parse_bytes(text));
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(error.what()).find("\"" + std::string(text) + "\""), std::string::npos);
    }
  }
}

TEST(Units, DurationsAreSeconds) {
  EXPECT_DOUBLE_EQ(parse_duration_s("250ms"), 0.25);
  EXPECT_DOUBLE_EQ(parse_duration_s("40us"), 40e-6);
  EXPECT_DOUBLE_EQ(parse_duration_s("1.5"), 1.5);
  EXPECT_DOUBLE_EQ(parse_duration_s("30s"), 30.0);
  EXPECT_DOUBLE_EQ(parse_duration_s("2m"), 120.0);
  EXPECT_DOUBLE_EQ(parse_duration_s("1h"), 3600.0);
  EXPECT_THROW(static_cast<void>(parse_duration_s("-3s")), Error);
  EXPECT_THROW(static_cast<void>(parse_duration_s("soon")), Error);
}

TEST(Units, RatiosTakePercent) {
  EXPECT_DOUBLE_EQ(parse_ratio("5%"), 0.05);
  EXPECT_DOUBLE_EQ(parse_ratio("0.05"), 0.05);
  EXPECT_THROW(static_cast<void>(parse_ratio("5 %")), Error);
}

TEST(Units, BinaryBytesReadWell) {
  EXPECT_EQ(format_bytes_binary(0), "0 B");
  EXPECT_EQ(format_bytes_binary(1023), "1023 B");
  EXPECT_EQ(format_bytes_binary(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes_binary(16.1 * 1048576), "16.1 MiB");
  // Rounds up into the next unit instead of showing 1024.0 KiB.
  EXPECT_EQ(format_bytes_binary(1048575), "1.0 MiB");
  EXPECT_EQ(format_bytes_binary(5e15), "4547.5 TiB");
}

TEST(Units, DurationsReadWell) {
  EXPECT_EQ(format_duration(0.0), "0 ns");
  EXPECT_EQ(format_duration(2.5e-8), "25 ns");
  EXPECT_EQ(format_duration(1.5e-5), "15.0 us");
  EXPECT_EQ(format_duration(0.0123), "12.30 ms");
  EXPECT_EQ(format_duration(0.99999999), "1.00 s");
  EXPECT_EQ(format_duration(90.0), "90.00 s");
  EXPECT_EQ(format_duration(150.0), "2.5 min");
  EXPECT_EQ(format_duration(-0.5), "-500.00 ms");
}

TEST(Units, RatesAndCountsAreDecimal) {
  EXPECT_EQ(format_rate(3.2e10, "B/s"), "32.0 GB/s");
  EXPECT_EQ(format_rate(12.0, "tokens/s"), "12.0 tokens/s");
  EXPECT_EQ(format_rate(999.97, "B/s"), "1.0 kB/s");
  EXPECT_EQ(format_count(8'082'240), "8.08 M");
  EXPECT_EQ(format_count(17), "17");
}

}  // namespace
}  // namespace moe
