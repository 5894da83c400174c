#pragma once

// Block types of GGUF tensors: how many values a block holds and how many bytes it takes. Source:
// docs/gguf.md and ggml-common.h of ggml-org/ggml.

#include <cstdint>
#include <optional>
#include <string_view>

namespace moe::model {

struct GgufBlockType {
  std::uint32_t id = 0;
  std::string_view name;
  std::int64_t block_values = 1;
  std::int64_t block_bytes = 1;
};

// nullopt for an id that the format does not define (or has withdrawn).
[[nodiscard]] std::optional<GgufBlockType> find_gguf_block_type(std::uint32_t id);

}  // namespace moe::model
