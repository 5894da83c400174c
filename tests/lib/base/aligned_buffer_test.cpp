#include "lib/base/aligned_buffer.hpp"

#include <cstdint>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe {
namespace {

TEST(AlignedBuffer, IsAlignedAndZeroFilledAtEverySize) {
  for (const std::int64_t count : {1, 7, 1024, 600'000}) {
    AlignedBuffer<float> buffer(count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    EXPECT_EQ(buffer.size(), count);
    EXPECT_EQ(buffer.size_bytes(), count * 4);
    EXPECT_EQ(buffer[0], 0.0F);
    EXPECT_EQ(buffer[count - 1], 0.0F);
    buffer[count - 1] = 2.5F;
    EXPECT_EQ(buffer.span().back(), 2.5F);
  }
}

// Of a block that begins or ends elsewhere, its first and last part would lie in small pages.
TEST(AlignedBuffer, BigBlocksBeginAtAHugePage) {
  constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;
  for (const std::int64_t extra : {0, 1, 5000}) {
    AlignedBytes bytes(3 * kHugePageBytes + extra);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % kHugePageBytes, 0U);
    bytes.data()[bytes.size_bytes() - 1] = std::byte{1};
    EXPECT_EQ(bytes.data()[0], std::byte{0});
  }
}

TEST(AlignedBuffer, EmptyHasNoMemory) {
  const AlignedBuffer<float> never;
  const AlignedBuffer<float> zero(0);
  EXPECT_EQ(never.size(), 0);
  EXPECT_EQ(zero.size(), 0);
  EXPECT_TRUE(zero.span().empty());
}

TEST(AlignedBuffer, MovedFromIsEmpty) {
  AlignedBuffer<std::int32_t> first(3);
  first[1] = 42;
  AlignedBuffer<std::int32_t> second(std::move(first));
  EXPECT_EQ(second.size(), 3);
  EXPECT_EQ(second[1], 42);
  // The state after a move is part of the contract: an empty span, never a dangling one.
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): that is the subject.
  EXPECT_EQ(first.size(), 0);
  EXPECT_TRUE(first.span().empty());
}

TEST(AlignedBuffer, MoveAssignmentTakesOver) {
  AlignedBuffer<std::int32_t> target(2);
  target = AlignedBuffer<std::int32_t>(5);
  EXPECT_EQ(target.size(), 5);
  EXPECT_EQ(target[4], 0);
}

TEST(AlignedBuffer, ImpossibleSizeIsAnErrorThatSaysSo) {
  try {
    const AlignedBytes bytes(std::numeric_limits<std::int64_t>::max());
    FAIL() << "8 EiB were granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    EXPECT_NE(std::string_view(error.what()).find("could not allocate"), std::string_view::npos);
  }
}

TEST(AlignedBuffer, CountTimesElementSizeMustNotWrapAround) {
  // 2^62 doubles are 2^65 bytes, which is 0 modulo 2^64.
  EXPECT_THROW(AlignedBuffer<double>(std::int64_t{1} << 62), Error);
}

}  // namespace
}  // namespace moe
