#include "lib/routing/content_hash.hpp"

#include <algorithm>
#include <cstdint>

#include "lib/base/fnv1a.hpp"

namespace moe::routing {
namespace {

constexpr std::size_t kNumPages = 64;
constexpr std::size_t kSampleBytes = 4096;

}  // namespace

std::string content_hash(std::span<const std::shared_ptr<const FileMap>> files) {
  Fnv1a64 hash;
  for (const auto& file : files) {
    const std::span<const std::byte> bytes = file->bytes();
    const auto size = static_cast<std::uint64_t>(bytes.size());
    hash.add(std::as_bytes(std::span(&size, 1)));
    if (bytes.size() <= kNumPages * kSampleBytes) {
      hash.add(bytes);
      continue;
    }
    for (std::size_t page = 0; page < kNumPages; ++page) {
      const std::size_t begin = (bytes.size() - kSampleBytes) / (kNumPages - 1) * page;
      hash.add(bytes.subspan(begin, kSampleBytes));
    }
  }
  return hash.to_string();
}

}  // namespace moe::routing
