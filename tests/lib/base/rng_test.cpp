#include "lib/base/rng.hpp"

#include <array>
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

namespace moe {
namespace {

// Computed with an independent Python version of the definition in rng.hpp. Synthetic checkpoints
// and prompts are made of this sequence: it must never change.
TEST(Rng, SequenceIsTheRecordedOne) {
  Rng zero(0);
  EXPECT_EQ(zero.next_bits(), 0x568a9b0b1a2c05ecULL);
  EXPECT_EQ(zero.next_bits(), 0x44e5b8b147ef718bULL);
  EXPECT_EQ(zero.next_bits(), 0x458563ab55521133ULL);
  const Rng other(42, 7);
  EXPECT_EQ(other.bits_at(0), 0xdeb745320506897aULL);
  EXPECT_EQ(other.bits_at(2), 0x55df53e1604e823aULL);
}

TEST(Rng, PositionIsTheSameAsStepping) {
  const Rng random(7);
  Rng stepped(7);
  for (std::uint64_t index = 0; index < 100; ++index) {
    ASSERT_EQ(stepped.next_bits(), random.bits_at(index));
  }
}

TEST(Rng, SeedsAndStreamsDiffer) {
  const std::array<std::uint64_t, 4> first = {Rng(1).bits_at(0), Rng(2).bits_at(0),
                                              Rng(1, 1).bits_at(0), Rng(2, 1).bits_at(0)};
  for (std::size_t a = 0; a < first.size(); ++a) {
    for (std::size_t b = a + 1; b < first.size(); ++b) EXPECT_NE(first[a], first[b]);
  }
}

TEST(Rng, UniformHasTheRightMomentsAndRange) {
  constexpr int kCount = 100'000;
  Rng random(3);
  double sum = 0.0;
  double sum_of_squares = 0.0;
  for (int draw = 0; draw < kCount; ++draw) {
    const double value = random.next_uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
    sum_of_squares += value * value;
  }
  // Five standard errors of each mean: sqrt(1/12/n) and sqrt(4/45/n).
  EXPECT_NEAR(sum / kCount, 1.0 / 2.0, 5.0 * std::sqrt(1.0 / 12.0 / kCount));
  EXPECT_NEAR(sum_of_squares / kCount, 1.0 / 3.0, 5.0 * std::sqrt(4.0 / 45.0 / kCount));
}

TEST(Rng, UniformStaysBelowOneForAllBits) {
  EXPECT_LT(Rng::to_uniform(~std::uint64_t{0}), 1.0);
  EXPECT_EQ(Rng::to_uniform(0), 0.0);
}

TEST(Rng, BelowReachesEveryValueEvenly) {
  constexpr int kCount = 70'000;
  Rng random(5);
  std::array<int, 7> hits{};
  for (int draw = 0; draw < kCount; ++draw) {
    const std::uint64_t value = random.next_below(7);
    ASSERT_LT(value, 7U);
    ++hits[value];
  }
  // Five standard deviations of a binomial count with p = 1/7.
  const double tolerance = 5.0 * std::sqrt(kCount * (1.0 / 7.0) * (6.0 / 7.0));
  for (const int count : hits) EXPECT_NEAR(count, kCount / 7.0, tolerance);
  EXPECT_EQ(random.next_below(1), 0U);
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  constexpr int kCount = 100'000;
  Rng random(11);
  double sum = 0.0;
  double sum_of_squares = 0.0;
  for (int draw = 0; draw < kCount; ++draw) {
    const double value = random.next_normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    sum_of_squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 5.0 / std::sqrt(kCount));
  EXPECT_NEAR(sum_of_squares / kCount, 1.0, 5.0 * std::sqrt(2.0 / kCount));
}

}  // namespace
}  // namespace moe
