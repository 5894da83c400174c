#include "lib/sysinfo/mappings.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>

#include "lib/sysinfo/text_file.hpp"

namespace moe::sysinfo {
namespace {

struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// "7f10c0000000-7f10c4000000 rw-p 00000000 00:00 0" begins a mapping; other lines do not.
std::optional<AddressRange> parse_head(std::string_view line) {
  AddressRange range;
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, range.begin, 16);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, range.end, 16);
  if (second.ec != std::errc() || second.ptr == end || *second.ptr != ' ') return std::nullopt;
  return range;
}

bool holds_any(const AddressRange& range, std::span<const std::span<const std::byte>> blocks) {
  return std::ranges::any_of(blocks, [&](std::span<const std::byte> block) {
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data());
    return !block.empty() && begin < range.end && range.begin < begin + block.size();
  });
}

}  // namespace

std::optional<MappingMemory> read_mapping_memory(std::span<const std::span<const std::byte>> blocks,
                                                 const std::filesystem::path& smaps) {
  std::ifstream file(smaps);
  MappingMemory memory;
  bool is_inside = false;
  bool has_any = false;
  for (std::string line; std::getline(file, line);) {
    if (const auto range = parse_head(line)) {
      is_inside = holds_any(*range, blocks);
      has_any = has_any || is_inside;
    } else if (is_inside) {
      const auto bytes = [&](const char* key) {
        return parse_kilobytes(find_value(line, key)).value_or(0);
      };
      // Reserved huge pages are not in Rss.
      const std::int64_t reserved_bytes = bytes("Private_Hugetlb") + bytes("Shared_Hugetlb");
      memory.resident_bytes += bytes("Rss") + reserved_bytes;
      memory.huge_page_bytes += bytes("AnonHugePages") + reserved_bytes;
    }
  }
  return has_any ? std::optional(memory) : std::nullopt;
}

}  // namespace moe::sysinfo
