#include "lib/app/plan/stored_bytes.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lib/app/plan/plan_inputs.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/int_math.hpp"
#include "lib/model/gguf_header.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/shard_index.hpp"
#include "lib/model/text_file.hpp"

namespace moe::app {
namespace {

namespace fs = std::filesystem;

std::int64_t add(std::int64_t a, std::int64_t b, const fs::path& where) {
  const auto sum = checked_add(a, b);
  if (!sum) throw Error(ErrorCode::kInput, where.string() + ": sizes beyond 64 bits");
  return *sum;
}

// Files of this extension whose names a checkpoint has: the whole in one, or its shards.
std::vector<fs::path> weight_files(const fs::path& folder, std::string_view extension) {
  const fs::path whole = folder / ("model" + std::string(extension));
  if (is_file(whole)) return {whole};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_shard = name.find("-of-") != std::string::npos || extension == ".gguf";
    if (is_shard && entry.path().extension() == extension && is_file(entry.path())) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

std::optional<StoredBytes> of_gguf(const fs::path& folder) {
  const std::vector<fs::path> files = weight_files(folder, ".gguf");
  if (files.empty()) return std::nullopt;
  StoredBytes stored;
  std::size_t tensors = 0;
  for (const fs::path& file : files) {
    const FileMap map(file);
    const model::GgufHeader header = model::parse_gguf_header(map.bytes(), file.string());
    for (const model::GgufTensor& tensor : header.tensors) {
      stored.bytes = add(stored.bytes, tensor.size_bytes, file);
    }
    tensors += header.tensors.size();
  }
  stored.source = fmt::format("headers of {} GGUF files, {} tensors", files.size(), tensors);
  return stored;
}

std::optional<StoredBytes> of_index(const fs::path& path) {
  const FileMap map(path);
  const model::ShardIndex index = model::parse_shard_index(model::text_of(map), path.string());
  if (index.total_size < 0) return std::nullopt;
  return StoredBytes{index.total_size,
                     fmt::format("metadata.total_size of {}", path.filename().string())};
}

std::optional<StoredBytes> of_headers(const fs::path& folder) {
  const std::vector<fs::path> files = weight_files(folder, ".safetensors");
  if (files.empty()) return std::nullopt;
  StoredBytes stored;
  std::size_t tensors = 0;
  for (const fs::path& file : files) {
    const model::SafetensorsFile header(file);
    for (const model::TensorEntry& entry : header.entries()) {
      stored.bytes = add(stored.bytes, entry.end - entry.begin, file);
    }
    tensors += header.entries().size();
  }
  stored.source = fmt::format("headers of {} safetensors files, {} tensors", files.size(), tensors);
  return stored;
}

}  // namespace

std::optional<StoredBytes> read_stored_bytes(const fs::path& path) {
  if (path.filename() != "config.json") return std::nullopt;  // a scenario, not a checkpoint
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path index = folder / "model.safetensors.index.json";
  if (is_file(index)) {
    if (auto stored = of_index(index)) return stored;
  }
  if (auto stored = of_headers(folder)) return stored;
  return of_gguf(folder);
}

}  // namespace moe::app
