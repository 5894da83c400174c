#include "lib/sysinfo/mappings.hpp"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/aligned_buffer.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::sysinfo {
namespace {

using Block = std::span<const std::byte>;

// A block that nobody reads, at an address of a written map.
Block block_at(std::uintptr_t address, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(address), size};
}

constexpr const char* kMap =
    "10000-20000 rw-p 00000000 00:00 0 \n"
    "Size:                 64 kB\n"
    "Rss:                  40 kB\n"
    "AnonHugePages:        16 kB\n"
    "Private_Hugetlb:       0 kB\n"
    "20000-30000 r--p 00000000 fe:00 24                     /usr/bin/10000-20000 x\n"
    "Rss:                1000 kB\n"
    "AnonHugePages:      1000 kB\n"
    "30000-50000 rw-p 00000000 00:00 0 \n"
    "Rss:                   7 kB\n"
    "AnonHugePages:         0 kB\n"
    "Private_Hugetlb:       3 kB\n";

TEST(ReadMappingMemory, CountsTheMappingsOfTheBlocksOnce) {
  const test::TempDir folder;
  test::write_file(folder / "smaps", kMap);
  const auto read = [&](const std::vector<Block>& blocks) {
    return read_mapping_memory(blocks, folder / "smaps");
  };
  const auto first = read({block_at(0x10000, 100), block_at(0x1ff00, 0x100)});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->resident_bytes, 40 * 1024);
  EXPECT_EQ(first->huge_page_bytes, 16 * 1024);
  const auto apart = read({block_at(0x12000, 100), block_at(0x40000, 5)});
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->resident_bytes, (40 + 7 + 3) * 1024);
  EXPECT_EQ(apart->huge_page_bytes, (16 + 3) * 1024);
  // A block over two mappings is in both.
  EXPECT_EQ(read({block_at(0x1fff0, 0x20)})->resident_bytes, 1040 * 1024);
}

TEST(ReadMappingMemory, IsAbsentForUnknownBlocksAndMissingFiles) {
  const test::TempDir folder;
  test::write_file(folder / "smaps", kMap);
  const std::array<Block, 2> outside = {block_at(0x50000, 9), Block()};
  EXPECT_FALSE(read_mapping_memory(outside, folder / "smaps"));
  const std::array<Block, 1> inside = {block_at(0x10000, 9)};
  EXPECT_TRUE(read_mapping_memory(inside, folder / "smaps"));
  EXPECT_FALSE(read_mapping_memory(inside, folder / "none"));
}

TEST(ReadMappingMemory, SeesWhatThisProcessTouches) {
  AlignedBytes bytes(std::int64_t{8} << 20);
  const std::array<Block, 1> blocks = {
      Block(bytes.data(), static_cast<std::size_t>(bytes.size_bytes()))};
  std::memset(bytes.data(), 1, blocks.front().size());
  const auto memory = read_mapping_memory(blocks);
  if (!memory) GTEST_SKIP() << "the system has no /proc/self/smaps";
  EXPECT_GE(memory->resident_bytes, bytes.size_bytes());
  EXPECT_GE(memory->huge_page_bytes, 0);
  EXPECT_LE(memory->huge_page_bytes, memory->resident_bytes);
}

}  // namespace
}  // namespace moe::sysinfo
