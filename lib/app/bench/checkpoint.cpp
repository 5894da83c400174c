#include "lib/app/bench/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/gguf_tokenizer.hpp"
#include "lib/model/tensor_files.hpp"

namespace moe::app {
namespace {

constexpr std::array<std::string_view, 8> kSamplingKeys = {
    "do_sample", "temperature",        "top_k",          "top_p",
    "min_p",     "repetition_penalty", "max_new_tokens", "max_length"};

}  // namespace

std::filesystem::path find_checkpoint(const std::string& path_or_name,
                                      const std::string& scenarios_option) {
  std::error_code ignored;
  const std::filesystem::path directory =
      find_scenario(path_or_name, scenarios_dir(scenarios_option), "checkpoints", "");
  if (!std::filesystem::is_directory(directory, ignored) && directory.extension() != ".gguf") {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a checkpoint directory with config.json, tokenizer.json "
                            "and *.safetensors, or a .gguf file; found another file",
                            directory.string()));
  }
  return directory;
}

std::optional<model::Tokenizer> load_tokenizer(const std::filesystem::path& directory,
                                               const model::BoundModel& model) {
  const auto file = model::checkpoint_file(directory, "tokenizer.json");
  std::optional<model::Tokenizer> tokenizer;
  if (file) {
    tokenizer = model::Tokenizer::load(*file);
  } else if (model.gguf != nullptr) {
    tokenizer = model::load_gguf_tokenizer(*model.gguf);
  }
  if (tokenizer) {
    model::check_against_model(
        *tokenizer, model.config.vocab_size,
        model.gguf != nullptr ? "token_embd.weight: rows" : "config.json: vocab_size");
  }
  return tokenizer;
}

model::Tokenizer require_tokenizer(const std::filesystem::path& directory,
                                   const model::BoundModel& model, const std::string& what) {
  std::optional<model::Tokenizer> tokenizer = load_tokenizer(directory, model);
  if (!tokenizer) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: no tokenizer.json, which {} needs; add the file or give token ids",
                            directory.string(), what));
  }
  return *std::move(tokenizer);
}

std::vector<std::int32_t> encode_file_text(const model::Tokenizer& tokenizer, std::string_view text,
                                           const std::filesystem::path& file) {
  try {
    return tokenizer.encode(text, false);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file.string(), error.what()));
  }
}

std::vector<std::string> unused_generation_settings(const std::filesystem::path& directory) {
  const auto file = model::checkpoint_file(directory, "generation_config.json");
  if (!file) return {};
  const json::Json config = json::parse_file(file->string());
  std::vector<std::string> found;
  if (!config.is_object()) return found;
  for (const std::string_view key : kSamplingKeys) {
    const std::string name(key);
    if (!config.contains(name) || config.at(name).is_null()) continue;
    found.push_back(fmt::format("{} = {}", name, config.at(name).dump()));
  }
  return found;
}

}  // namespace moe::app
