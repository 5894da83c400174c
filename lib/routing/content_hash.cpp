#include "lib/routing/content_hash.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

namespace moe::routing {
namespace {

constexpr std::size_t kNumPages = 64;
constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kOffsetBasis = 0xcbf29ce484222325ULL;
constexpr std::uint64_t kPrime = 0x100000001b3ULL;

void add(std::span<const std::byte> bytes, std::uint64_t& hash) {
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * kPrime;
}

}  // namespace

std::string content_hash(std::span<const std::shared_ptr<const FileMap>> files) {
  std::uint64_t hash = kOffsetBasis;
  for (const auto& file : files) {
    const std::span<const std::byte> bytes = file->bytes();
    const auto size = static_cast<std::uint64_t>(bytes.size());
    add(std::as_bytes(std::span(&size, 1)), hash);
    if (bytes.size() <= kNumPages * kPageBytes) {
      add(bytes, hash);
      continue;
    }
    for (std::size_t page = 0; page < kNumPages; ++page) {
      const std::size_t begin = (bytes.size() - kPageBytes) / (kNumPages - 1) * page;
      add(bytes.subspan(begin, kPageBytes), hash);
    }
  }
  return fmt::format("fnv1a64:{:016x}", hash);
}

}  // namespace moe::routing
