// Every way in which a part can be wrong is seen.

#include "lib/comm/payload.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace moe::comm {
namespace {

constexpr std::uint64_t kSeed = 5;

std::vector<std::byte> filled(std::size_t size, const PayloadKey& key) {
  std::vector<std::byte> bytes(size);
  fill_payload(bytes, kSeed, key);
  return bytes;
}

TEST(Payload, OfAnyLengthChecksItself) {
  for (std::size_t size = 0; size < 40; ++size) {
    EXPECT_FALSE(check_payload(filled(size, {1, 2, 3}), kSeed, {1, 2, 3})) << size;
  }
}

TEST(Payload, SeesOneFlippedBitAnywhere) {
  for (std::size_t at = 0; at < 37; ++at) {
    std::vector<std::byte> bytes = filled(37, {1, 2, 3});
    bytes[at] ^= std::byte{1};
    const auto fault = check_payload(bytes, kSeed, {1, 2, 3});
    ASSERT_TRUE(fault) << at;
    EXPECT_EQ(fault->num_wrong_bytes, 1);
    EXPECT_EQ(fault->first_offset, static_cast<std::int64_t>(at));
  }
}

TEST(Payload, OfAnotherPairDirectionRoundOrPlaceIsWrong) {
  const std::vector<std::byte> bytes = filled(4096, {1, 2, 3});
  EXPECT_TRUE(check_payload(bytes, kSeed, {2, 1, 3}));
  EXPECT_TRUE(check_payload(bytes, kSeed, {1, 3, 3}));
  EXPECT_TRUE(check_payload(bytes, kSeed, {1, 2, 4}));
  EXPECT_TRUE(check_payload(bytes, kSeed + 1, {1, 2, 3}));
  for (const std::size_t shift : {1u, 8u, 16u, 1024u}) {
    std::vector<std::byte> shifted = bytes;
    std::rotate(shifted.begin(), shifted.begin() + static_cast<std::ptrdiff_t>(shift),
                shifted.end());
    EXPECT_TRUE(check_payload(shifted, kSeed, {1, 2, 3})) << shift;
  }
  EXPECT_TRUE(check_payload(std::vector<std::byte>(64), kSeed, {1, 2, 3}));
}

}  // namespace
}  // namespace moe::comm
