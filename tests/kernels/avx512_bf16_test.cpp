// Goal: every code becomes the bf16 of its value, in its column of the pair, or keeps its value in
// its column of the four. Method: all bytes at every place, by the instructions themselves; the
// emulated level of the other tests replaces them.

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

// A group of codes as it lies in a panel: four bytes of every output.
using CodeGroup = std::array<std::byte, 4 * kPlaces>;

// Every byte at every place of the four.
template <class Check>
void for_each_group(Check check) {
  for (unsigned first = 0; first < 256; ++first) {
    CodeGroup codes;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::byte>(first + 37 * i);
    }
    check(codes);
  }
}

// The code of column `col` of eight.
unsigned u4_code(const CodeGroup& codes, std::size_t output, std::size_t col) {
  const auto both = std::to_integer<unsigned>(codes[4 * output + col % 4]);
  return col < 4 ? both & 0xfU : both >> 4U;
}

// code(codes, output, col) of a group with this many columns, which `unpack` makes pairs of bf16.
template <std::size_t columns, class Unpack, class Code>
void expect_every_pair(Unpack unpack, Code code) {
  for_each_group([&](const CodeGroup& codes) {
    std::array<std::uint16_t, columns * kPlaces> pairs;
    unpack(codes.data(), pairs.data());
    for (std::size_t col = 0; col < columns; ++col) {
      for (std::size_t i = 0; i < kPlaces; ++i) {
        const int expected = code(codes, i, col);
        ASSERT_EQ(pairs[col / 2 * 2 * kPlaces + 2 * i + col % 2],
                  bf16_from_f32(static_cast<float>(expected)))
            << expected << " in column " << col;
      }
    }
  });
}

TEST_F(Avx512Pairs, HoldEveryInt8Code) {
  expect_every_pair<4>(avx512_i8_pairs,
                       [](const CodeGroup& codes, std::size_t output, std::size_t col) -> int {
                         return static_cast<std::int8_t>(codes[4 * output + col]);
                       });
}

TEST_F(Avx512Pairs, HoldEveryUnsignedFourBitCode) {
  expect_every_pair<8>(avx512_u4_pairs,
                       [](const CodeGroup& codes, std::size_t output, std::size_t col) {
                         return static_cast<int>(u4_code(codes, output, col));
                       });
}

TEST_F(Avx512Pairs, HoldEveryMxfp4Code) {
  for (unsigned first = 0; first < 256; ++first) {
    std::array<std::byte, kPlaces> codes;
    for (std::size_t i = 0; i < kPlaces; ++i) {
      codes[i] = static_cast<std::byte>(first + 17 * i);
    }
    PairArray pairs;
    avx512_e2m1_pairs(codes.data(), pairs.data());
    for (std::size_t i = 0; i < kPlaces; ++i) {
      const auto code = std::to_integer<std::uint8_t>(codes[i]);
      ASSERT_EQ(pairs[2 * i], bf16_from_f32(e2m1_value(code & 0xf))) << +code << " at " << i;
      ASSERT_EQ(pairs[2 * i + 1], bf16_from_f32(e2m1_value(code >> 4))) << +code << " at " << i;
    }
  }
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

TEST_F(Avx512Pairs, FoursHoldFourColumnsOfFourBitCodes) {
  for_each_group([](const CodeGroup& codes) {
    std::array<std::int8_t, 8 * kPlaces> fours{};
    avx512_u4_fours(codes.data(), fours.data());
    for (std::size_t col = 0; col < 8; ++col) {
      for (std::size_t i = 0; i < kPlaces; ++i) {
        ASSERT_EQ(static_cast<unsigned>(fours[col / 4 * 4 * kPlaces + 4 * i + col % 4]),
                  u4_code(codes, i, col));
      }
    }
  });
}

}  // namespace
}  // namespace moe::kernels
