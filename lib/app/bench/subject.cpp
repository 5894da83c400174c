#include "lib/app/bench/subject.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/engine_setup.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/fnv1a.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/tensor_files.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kNumPages = 16;
constexpr std::int64_t kPageBytes = 4096;

// The data begin at `header_bytes`.
void add_weight_file(const FileMap& map, std::int64_t header_bytes, Fnv1a64& hash) {
  const std::span<const std::byte> bytes = map.bytes();
  hash.add(map.path().filename().string());
  hash.add(fmt::format(" {} ", map.size_bytes()));
  const std::size_t data_begin =
      std::min(static_cast<std::size_t>(header_bytes), bytes.size());  // a file may end before
  hash.add(bytes.first(data_begin));
  const auto data_bytes = static_cast<std::int64_t>(bytes.size() - data_begin);
  map.advise_read_ahead(false);
  for (std::int64_t page = 0; page < kNumPages && data_bytes > 0; ++page) {
    const std::int64_t begin = data_bytes / kNumPages * page;
    const std::int64_t length = std::min(kPageBytes, data_bytes - begin);
    hash.add(bytes.subspan(data_begin + static_cast<std::size_t>(begin),
                           static_cast<std::size_t>(length)));
  }
  map.advise_read_ahead(true);
}

}  // namespace

std::string checkpoint_hash(const std::filesystem::path& directory,
                            const model::BoundModel& model) {
  Fnv1a64 hash;
  if (model.gguf != nullptr) {
    for (std::size_t part = 0; part < model.gguf->num_parts(); ++part) {
      add_weight_file(model.gguf->map(part), model.gguf->data_begin(part), hash);
    }
    return hash.to_string();
  }
  const FileMap config(directory / "config.json");
  hash.add(config.bytes());
  for (const model::SafetensorsFile& file : model.files->files()) {
    std::uint64_t header_bytes = 0;  // the reader has checked it
    std::memcpy(&header_bytes, file.map().bytes().data(), sizeof(header_bytes));
    add_weight_file(file.map(), static_cast<std::int64_t>(sizeof(header_bytes) + header_bytes),
                    hash);
  }
  return hash.to_string();
}

json::Json describe_checkpoint(const std::filesystem::path& directory,
                               const model::BoundModel& model) {
  const model::ModelConfig& config = model.config;
  json::Json subject;
  subject["kind"] = "checkpoint";
  // The last part of the path; "." and "dir/" name a directory, too.
  const std::filesystem::path full = std::filesystem::weakly_canonical(directory);
  subject["name"] = full.filename().empty() ? full.string() : full.filename().string();
  subject["content_hash"] = checkpoint_hash(directory, model);
  subject["content_hash_of"] =
      model.gguf != nullptr
          ? "headers and sizes of the files, 16 pages of 4 KiB of each"
          : "config.json, headers and sizes of the weight files, 16 pages of 4 KiB of each";
  subject["path"] = directory.string();
  subject["family"] = model::family_name(config.family);
  subject["model_type"] = config.model_type;
  subject["weight_dtypes"] = weight_dtypes(model);
  subject["file_bytes"] = model.file_bytes;
  subject["num_hidden_layers"] = config.num_hidden_layers;
  subject["num_moe_layers"] =
      std::count_if(config.layers.begin(), config.layers.end(),
                    [](const model::LayerConfig& layer) { return layer.is_moe; });
  subject["hidden_size"] = config.hidden_size;
  subject["vocab_size"] = config.vocab_size;
  subject["num_attention_heads"] = config.attention.num_heads;
  subject["num_key_value_heads"] = config.attention.num_kv_heads;
  subject["max_position_embeddings"] = config.max_position_embeddings;
  subject["num_experts"] = config.moe.num_experts;
  subject["top_k"] = config.moe.top_k;
  subject["expert_intermediate_size"] = config.moe.expert_intermediate_size;
  subject["shared_intermediate_size"] = config.moe.shared_intermediate_size;
  subject["router"] = config.is_moe() ? model::describe_router(config.moe) : "none: a dense model";
  return subject;
}

}  // namespace moe::app
