#include "lib/base/fnv1a.hpp"

#include <array>

#include <gtest/gtest.h>

namespace moe {
namespace {

// Values of the test vectors that the authors of the hash publish (draft-eastlake-fnv).
TEST(Fnv1a64, GivesThePublishedValues) {
  EXPECT_EQ(fnv1a64(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(fnv1a64("a"), 0xaf63dc4c8601ec8cULL);
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171f73967e8ULL);
}

TEST(Fnv1a64, BytesAndTextInPiecesAreOneStream) {
  Fnv1a64 hash;
  hash.add("foo");
  hash.add(std::array{std::byte{'b'}, std::byte{'a'}});
  hash.add(std::uint8_t{'r'});
  EXPECT_EQ(hash.value(), fnv1a64("foobar"));
  EXPECT_EQ(hash.to_string(), "fnv1a64:85944171f73967e8");
}

}  // namespace
}  // namespace moe
