// Goal: every code becomes the bf16 of its value, in its column of the pair, or keeps its value in
// its column of the four. Method: all bytes at
// every place, by the instructions themselves; the emulated level of the other tests replaces them.

#include <array>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/api.hpp"
#include "kernels/cpu/numeric.hpp"
#include "tests/kernels/avx512_bf16_pairs.hpp"

namespace moe::kernels {
namespace {

constexpr std::size_t kPlaces = 16;
using PairArray = std::array<std::uint16_t, 2 * kPlaces>;

class Avx512Pairs : public testing::Test {
 protected:
  void SetUp() override {
    if (!isa_supported(Isa::kAvx512)) GTEST_SKIP() << "no AVX-512 here";
  }
};

// value(code) of a 4-bit code.
template <class Unpack, class Value>
void expect_every_byte(Unpack unpack, Value value) {
  for (unsigned first = 0; first < 256; ++first) {
    std::array<std::byte, kPlaces> codes;
    for (std::size_t i = 0; i < kPlaces; ++i) {
      codes[i] = static_cast<std::byte>(first + 17 * i);
    }
    PairArray pairs;
    unpack(codes.data(), pairs.data());
    for (std::size_t i = 0; i < kPlaces; ++i) {
      const auto code = static_cast<unsigned>(codes[i]);
      ASSERT_EQ(pairs[2 * i], bf16_from_f32(value(code & 0xfU))) << code << " at " << i;
      ASSERT_EQ(pairs[2 * i + 1], bf16_from_f32(value(code >> 4U))) << code << " at " << i;
    }
  }
}

TEST_F(Avx512Pairs, HoldEveryUnsignedFourBitCode) {
  expect_every_byte(avx512_u4_pairs, [](unsigned code) { return static_cast<float>(code); });
}

TEST_F(Avx512Pairs, HoldEveryMxfp4Code) {
  expect_every_byte(avx512_e2m1_pairs,
                    [](unsigned code) { return e2m1_value(static_cast<std::uint8_t>(code)); });
}

TEST_F(Avx512Pairs, HoldTheEvenAndTheOddColumn) {
  std::array<float, kPlaces> even;
  std::array<float, kPlaces> odd;
  for (std::size_t i = 0; i < kPlaces; ++i) {
    even[i] = static_cast<float>(i) - 128.0F;
    odd[i] = 0x1p-17F * static_cast<float>(15 - i);
  }
  PairArray pairs;
  avx512_to_pairs(even.data(), odd.data(), pairs.data());
  for (std::size_t i = 0; i < kPlaces; ++i) {
    EXPECT_EQ(bf16_value(pairs[2 * i]), even[i]);
    EXPECT_EQ(bf16_value(pairs[2 * i + 1]), odd[i]);
  }
}

TEST_F(Avx512Pairs, FoursHoldFourColumnsOfInt8Codes) {
  for (unsigned first = 0; first < 256; first += 5) {
    std::array<std::byte, 4 * kPlaces> codes;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::byte>(first + 37 * i);
    }
    std::array<std::int8_t, 4 * kPlaces> fours{};
    avx512_i8_fours(codes.data(), fours.data());
    for (std::size_t i = 0; i < fours.size(); ++i) {
      ASSERT_EQ(fours[i], static_cast<std::int8_t>(codes[i % 4 * kPlaces + i / 4])) << i;
    }
  }
}

TEST_F(Avx512Pairs, FoursHoldFourColumnsOfFourBitCodes) {
  for (unsigned first = 0; first < 256; first += 5) {
    std::array<std::byte, 2 * kPlaces> codes;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::byte>(first + 37 * i);
    }
    std::array<std::int8_t, 4 * kPlaces> fours{};
    avx512_u4_fours(codes.data(), fours.data());
    for (std::size_t i = 0; i < fours.size(); ++i) {
      const auto pair = static_cast<unsigned>(codes[i % 4 / 2 * kPlaces + i / 4]);
      ASSERT_EQ(static_cast<unsigned>(fours[i]), i % 2 == 0 ? pair & 0xfU : pair >> 4U) << i;
    }
  }
}

}  // namespace
}  // namespace moe::kernels
