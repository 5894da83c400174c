#include "lib/model/synth.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/aligned_buffer.hpp"
#include "lib/base/atomic_file.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/units.hpp"
#include "lib/json/read.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/config.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "lib/model/synth_plan.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChunkBytes = std::int64_t{8} << 20;
constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

std::int64_t bytes_of(const PlannedTensor& tensor) {
  const auto bytes = tensor_bytes(tensor.declaration.dtype, tensor.declaration.shape);
  MOE_CHECK(bytes.has_value());
  return *bytes;
}

// The tensors of each shard, in model order; a tensor larger than a shard has one for itself.
std::vector<std::vector<PlannedTensor>> split_into_shards(std::vector<PlannedTensor> tensors,
                                                          std::int64_t shard_bytes) {
  std::vector<std::vector<PlannedTensor>> shards(1);
  std::int64_t filled = 0;
  for (PlannedTensor& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    if (filled > 0 && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(tensor));
  }
  // Wide elements first, so that every element is aligned.
  for (auto& shard : shards) {
    std::stable_sort(shard.begin(), shard.end(), [](const auto& a, const auto& b) {
      return dtype_bits(a.declaration.dtype) > dtype_bits(b.declaration.dtype);
    });
  }
  return shards;
}

// Creates the directory; removes what was written unless it is kept.
class OutputDirectory {
 public:
  explicit OutputDirectory(fs::path directory) : directory_(std::move(directory)) {
    std::error_code error;
    if (fs::exists(directory_, error)) {
      if (!fs::is_directory(directory_, error) || !fs::is_empty(directory_, error)) {
        throw Error(ErrorCode::kUsage,
                    fmt::format("{}: exists and is not an empty directory; give a new one",
                                directory_.string()));
      }
      return;
    }
    if (!fs::create_directories(directory_, error) || error) {
      throw Error(ErrorCode::kRuntime,
                  fmt::format("could not create {}: {}", directory_.string(), error.message()));
    }
    is_new_ = true;
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory() {
    if (is_kept_) return;
    std::error_code ignored;
    for (const fs::path& file : files_) fs::remove(file, ignored);
    if (is_new_) fs::remove(directory_, ignored);
  }

  // The path of a file that is about to be written.
  fs::path file(std::string_view name) {
    files_.push_back(directory_ / name);
    return files_.back();
  }

  void require_space(std::int64_t bytes) const {
    std::error_code error;
    const fs::space_info space = fs::space(directory_, error);
    if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return;
    throw Error(ErrorCode::kRuntime,
                fmt::format("{}: the checkpoint takes {}, the disk has {} free",
                            directory_.string(), format_bytes_binary(static_cast<double>(bytes)),
                            format_bytes_binary(static_cast<double>(space.available))));
  }

  void keep() { is_kept_ = true; }

 private:
  fs::path directory_;
  std::vector<fs::path> files_;
  bool is_new_ = false;
  bool is_kept_ = false;
};

class ShardWriter {
 public:
  explicit ShardWriter(const SynthOptions& options)
      : options_(options), filler_(options.seed), buffer_(kChunkBytes) {}

  void write(const fs::path& path, const std::vector<PlannedTensor>& tensors) {
    std::vector<TensorDeclaration> declarations;
    for (const PlannedTensor& tensor : tensors) declarations.push_back(tensor.declaration);
    SafetensorsWriter writer(path, declarations);
    for (const PlannedTensor& tensor : tensors) write_tensor(writer, tensor);
    writer.finish();
  }

 private:
  void write_tensor(SafetensorsWriter& writer, const PlannedTensor& tensor) {
    const Dtype dtype = tensor.declaration.dtype;
    const auto table = filler_.table(tensor.fill, dtype);
    const std::int64_t element_bytes = dtype_bits(dtype) / 8;
    const std::int64_t total = bytes_of(tensor);
    for (std::int64_t begin = 0; begin < total; begin += kChunkBytes) {
      if (options_.interrupt != nullptr && options_.interrupt->requested()) {
        throw Error(ErrorCode::kRuntime, "interrupted: the unfinished checkpoint was removed");
      }
      const std::int64_t count = std::min(kChunkBytes, total - begin);
      const auto fill_piece = [&](std::int64_t piece, int) {
        const std::int64_t at = piece * kPieceBytes;
        filler_.fill(
            tensor.fill, *table, dtype, tensor.declaration.name, (begin + at) / element_bytes,
            {buffer_.data() + at, static_cast<std::size_t>(std::min(kPieceBytes, count - at))});
      };
      const std::int64_t pieces = (count + kPieceBytes - 1) / kPieceBytes;
      if (options_.pool != nullptr) {
        options_.pool->for_each(pieces, fill_piece);
      } else {
        for (std::int64_t piece = 0; piece < pieces; ++piece) fill_piece(piece, 0);
      }
      writer.write({buffer_.data(), static_cast<std::size_t>(count)});
      done_ += count;
      if (options_.progress != nullptr) options_.progress->update(done_);
    }
  }

  const SynthOptions& options_;
  Filler filler_;
  AlignedBytes buffer_;
  std::int64_t done_ = 0;
};

// The keys of the given config, with the dtype that is written.
std::string config_text(const json::Json& document, Dtype dtype) {
  json::Json config = document;
  config.erase("_reconstructed");
  const bool is_v5 = config.contains("dtype") && !config.contains("torch_dtype");
  config[is_v5 ? "dtype" : "torch_dtype"] = dtype == Dtype::kF32   ? "float32"
                                            : dtype == Dtype::kF16 ? "float16"
                                                                   : "bfloat16";
  return config.dump(2) + "\n";
}

std::string generation_text(const ModelConfig& config) {
  json::Json generation = {{"_from_model_config", true}, {"do_sample", false}};
  if (config.bos_token_id >= 0) generation["bos_token_id"] = config.bos_token_id;
  if (config.eos_token_ids.size() == 1) {
    generation["eos_token_id"] = config.eos_token_ids.front();
  } else if (!config.eos_token_ids.empty()) {
    generation["eos_token_id"] = config.eos_token_ids;
  }
  return generation.dump(2) + "\n";
}

void check_options(const SynthOptions& options) {
  if (options.dtype != Dtype::kF32 && options.dtype != Dtype::kF16 &&
      options.dtype != Dtype::kBf16) {
    throw Error(ErrorCode::kUsage, "the dtype of a random checkpoint is f32, f16 or bf16");
  }
  if (!std::isfinite(options.router_skew) || options.router_skew < 0.0 ||
      options.router_skew > 4.0) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("router skew {}: expected a Zipf exponent from 0 to 4", options.router_skew));
  }
  if (options.shard_bytes < 1) {
    throw Error(ErrorCode::kUsage, "the shard size must be at least 1 byte");
  }
}

}  // namespace

SynthResult synth_checkpoint(std::string_view config_json, const fs::path& config_file,
                             const fs::path& directory, const SynthOptions& options) {
  check_options(options);
  const ModelConfig config = parse_config(config_json, config_file);
  const json::Json document = json::parse(config_json, config_file.string());
  if (options.router_skew > 0.0 && !config.is_moe()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: a dense model has no router to skew", config_file.string()));
  }
  const auto shards =
      split_into_shards(plan_synthetic_tensors(config, options), options.shard_bytes);
  SynthResult result;
  result.num_parameters = count_parameters(config).total;
  result.num_shards = std::ssize(shards);
  for (const auto& shard : shards) {
    result.num_tensors += std::ssize(shard);
    for (const PlannedTensor& tensor : shard) result.tensor_bytes += bytes_of(tensor);
  }
  OutputDirectory output(directory);
  output.require_space(result.tensor_bytes);
  if (options.progress != nullptr) options.progress->begin("write", result.tensor_bytes, "B");
  ShardWriter writer(options);
  json::Json weight_map = json::Json::object();
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string name = shards.size() == 1 ? std::string(kSingleFileName)
                                                : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                              shard + 1, shards.size());
    writer.write(output.file(name), shards[shard]);
    if (shards.size() == 1) continue;
    for (const PlannedTensor& tensor : shards[shard]) {
      // The names are distinct; push_back would look for each of them.
      weight_map.get_ref<json::Json::object_t&>().emplace_back(tensor.declaration.name, name);
    }
  }
  if (shards.size() > 1) {
    const json::Json index = {{"metadata", {{"total_size", result.tensor_bytes}}},
                              {"weight_map", std::move(weight_map)}};
    write_file_atomically(output.file("model.safetensors.index.json"), index.dump(2) + "\n");
  }
  write_file_atomically(output.file("generation_config.json"), generation_text(config));
  // Last: without it the directory is no checkpoint.
  write_file_atomically(output.file("config.json"), config_text(document, options.dtype));
  if (options.progress != nullptr) options.progress->end();
  output.keep();
  return result;
}

}  // namespace moe::model
