#pragma once

// How blocks of memory are really backed, as the system says in /proc/self/smaps.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace moe::sysinfo {

struct MappingMemory {
  std::int64_t resident_bytes = 0;   // in memory
  std::int64_t huge_page_bytes = 0;  // of them in huge pages, transparent or reserved
};

// Of the mappings that the blocks lie in. Blocks side by side may share a mapping, with others too,
// so a block of its own has no figure. nullopt when the file cannot be read or names none of them.
[[nodiscard]] std::optional<MappingMemory> read_mapping_memory(
    std::span<const std::span<const std::byte>> blocks,
    const std::filesystem::path& smaps = "/proc/self/smaps");

}  // namespace moe::sysinfo
