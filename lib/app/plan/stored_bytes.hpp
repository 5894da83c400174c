#pragma once

// Weight bytes as the files of a checkpoint state them, for comparison with the formula.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace moe::app {

struct StoredBytes {
  std::int64_t bytes = 0;
  std::string source;  // "metadata.total_size of model.safetensors.index.json", ...
};

// The best source beside a config.json: the index's total size, the headers of the safetensors
// files, those of GGUF files. nullopt when there is none.
[[nodiscard]] std::optional<StoredBytes> read_stored_bytes(const std::filesystem::path& path);

}  // namespace moe::app
