#include "tests/support/sparse_checkpoint.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/model/config.hpp"
#include "lib/model/synth_plan.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kShardBytes = 5'000'000'000;

struct Shard {
  std::vector<std::string> tensors;  // names
  std::string header;                // JSON, without the braces
  std::int64_t data_bytes = 0;
};

std::vector<Shard> plan_shards(const std::vector<model::PlannedTensor>& tensors) {
  std::vector<Shard> shards(1);
  for (const model::PlannedTensor& tensor : tensors) {
    const model::TensorDeclaration& declared = tensor.declaration;
    const std::int64_t bytes = model::tensor_bytes(declared.dtype, declared.shape).value();
    if (shards.back().data_bytes > 0 && shards.back().data_bytes + bytes > kShardBytes) {
      shards.emplace_back();
    }
    Shard& shard = shards.back();
    shard.header += fmt::format(
        R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
        shard.header.empty() ? "" : ",", declared.name, model::dtype_name(declared.dtype),
        fmt::join(declared.shape.sizes(), ","), shard.data_bytes, shard.data_bytes + bytes);
    shard.tensors.push_back(declared.name);
    shard.data_bytes += bytes;
  }
  return shards;
}

}  // namespace

SparseCheckpoint write_sparse_checkpoint(const fs::path& config_file, const fs::path& directory) {
  const std::string config_text = read_file(config_file);
  const model::ModelConfig config = model::parse_config(config_text, config_file.string());
  const std::vector<model::PlannedTensor> tensors = model::plan_synthetic_tensors(config, {});
  const std::vector<Shard> shards = plan_shards(tensors);
  fs::create_directories(directory);
  write_file(directory / "config.json", config_text);
  std::string weight_map;
  SparseCheckpoint result;
  result.num_tensors = std::ssize(tensors);
  result.num_shards = std::ssize(shards);
  std::int64_t tensor_bytes = 0;
  for (std::size_t number = 0; number < shards.size(); ++number) {
    const Shard& shard = shards[number];
    const std::string name =
        fmt::format("model-{:05}-of-{:05}.safetensors", number + 1, shards.size());
    std::string text = "{" + shard.header + "}";
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string length(8, '\0');
    const std::uint64_t header_bytes = text.size();
    std::memcpy(length.data(), &header_bytes, sizeof(header_bytes));
    write_file(directory / name, length + text);
    const std::int64_t file_bytes = 8 + std::ssize(text) + shard.data_bytes;
    fs::resize_file(directory / name, static_cast<std::uintmax_t>(file_bytes));
    result.file_bytes += file_bytes;
    tensor_bytes += shard.data_bytes;
    for (const std::string& tensor : shard.tensors) {
      weight_map += fmt::format(R"({}"{}":"{}")", weight_map.empty() ? "" : ",", tensor, name);
    }
  }
  write_file(directory / "model.safetensors.index.json",
             fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{{}}}}})", tensor_bytes,
                         weight_map));
  return result;
}

}  // namespace moe::test
