#include "lib/base/int_math.hpp"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace moe {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(IntMath, CheckedMulReportsOverflow) {
  EXPECT_EQ(checked_mul(6, 7), 42);
  EXPECT_EQ(checked_mul(-6, 7), -42);
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_FALSE(checked_mul(kMax / 2 + 1, 2).has_value());
  EXPECT_FALSE(checked_mul(std::numeric_limits<std::int64_t>::min(), -1).has_value());
}

TEST(IntMath, CheckedAddReportsOverflow) {
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_FALSE(checked_add(kMax, 1).has_value());
  EXPECT_FALSE(checked_add(-kMax, -2).has_value());
}

TEST(IntMath, DivCeilRoundsUp) {
  EXPECT_EQ(div_ceil(0, 8), 0);
  EXPECT_EQ(div_ceil(1, 8), 1);
  EXPECT_EQ(div_ceil(8, 8), 1);
  EXPECT_EQ(div_ceil(9, 8), 2);
  EXPECT_EQ(div_ceil(kMax, 2), kMax / 2 + 1);
}

TEST(IntMath, AlignUpIsTheNextMultiple) {
  EXPECT_EQ(align_up(0, 64), 0);
  EXPECT_EQ(align_up(1, 64), 64);
  EXPECT_EQ(align_up(64, 64), 64);
  EXPECT_EQ(align_up(65, 3), 66);
}

TEST(IntMathDeathTest, DivExactRefusesARemainder) {
  EXPECT_EQ(div_exact(12, 4), 3);
  EXPECT_DEATH(static_cast<void>(div_exact(13, 4)), "check failed");
  EXPECT_DEATH(static_cast<void>(div_exact(1, 0)), "check failed");
}

}  // namespace
}  // namespace moe
