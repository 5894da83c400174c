#pragma once

// Recorded routing, token by token, of tests/data/routing/esft: 26 layers, 64 experts, top-6.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/file_map.hpp"

namespace moe::tiering::test {

inline constexpr std::int32_t kLayers = 26;
inline constexpr std::int32_t kExperts = 64;
inline constexpr std::int32_t kTopK = 6;

// [tokens, layers, top_k].
inline std::vector<std::int32_t> esft_ids(const std::string& domain) {
  const FileMap file(MOE_SOURCE_DIR "/tests/data/routing/esft/" + domain + "_topk.npy");
  const std::span<const std::byte> bytes = file.bytes();
  // npy version 1: magic, version, two bytes of header length, header; then uint8 values.
  const std::size_t begin =
      10 + std::to_integer<std::size_t>(bytes[8]) + 256 * std::to_integer<std::size_t>(bytes[9]);
  std::vector<std::int32_t> ids;
  for (std::size_t i = begin; i < bytes.size(); ++i) {
    ids.push_back(std::to_integer<std::int32_t>(bytes[i]));
  }
  return ids;
}

// The accesses of one layer in the order of the tokens.
inline std::vector<std::int32_t> layer_of(const std::vector<std::int32_t>& ids,
                                          std::int32_t layer) {
  constexpr std::size_t kRow = static_cast<std::size_t>(kLayers * kTopK);
  std::vector<std::int32_t> accesses;
  for (std::size_t begin = static_cast<std::size_t>(layer * kTopK); begin < ids.size();
       begin += kRow) {
    for (std::size_t i = begin; i < begin + static_cast<std::size_t>(kTopK); ++i) {
      accesses.push_back(ids[i]);
    }
  }
  return accesses;
}

}  // namespace moe::tiering::test
