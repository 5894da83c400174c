#include "lib/model/config.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/model/config_parts.hpp"
#include "lib/model/tensor_files.hpp"
#include "lib/model/text_file.hpp"

namespace moe::model {
namespace {

struct ConfigFamily {
  std::string_view model_type;
  Family family;
  void (*parse)(ConfigReader&, ModelConfig&);
};

constexpr std::array<ConfigFamily, 16> kConfigFamilies = {{
    {"mixtral", Family::kMixtral, parse_mixtral},
    {"qwen2_moe", Family::kQwen2Moe, parse_qwen2_moe},
    {"qwen3_moe", Family::kQwen3Moe, parse_qwen3_moe},
    {"olmoe", Family::kOlmoe, parse_olmoe},
    {"deepseek_v2", Family::kDeepseekV2, parse_deepseek_v2},
    {"deepseek_v3", Family::kDeepseekV3, parse_deepseek_v3},
    {"kimi_k2", Family::kDeepseekV3, parse_deepseek_v3},
    {"gpt_oss", Family::kGptOss, parse_gpt_oss},
    {"glm4_moe", Family::kGlm4Moe, parse_glm4_moe},
    {"granitemoe", Family::kGraniteMoe, parse_granitemoe},
    {"phimoe", Family::kPhimoe, parse_phimoe},
    {"dbrx", Family::kDbrx, parse_dbrx},
    {"llama4_text", Family::kLlama4, parse_llama4},
    {"llama4", Family::kLlama4, parse_llama4},
    {"llama", Family::kLlama, parse_llama},
    {"qwen3", Family::kQwen3, parse_qwen3},
}};

const ConfigFamily& find_family(ConfigReader& reader) {
  const auto model_type = reader.optional_text("model_type");
  std::vector<std::string_view> supported;
  for (const ConfigFamily& entry : kConfigFamilies) {
    if (model_type == entry.model_type) return entry;
    supported.push_back(entry.model_type);
  }
  if (!model_type) {
    reader.fail("model_type", fmt::format("missing; supported: {}", fmt::join(supported, ", ")));
  }
  std::string found = fmt::format("\"{}\" is not supported", printable(*model_type));
  if (auto text = reader.optional_object("text_config")) {
    const auto inner = text->optional_text("model_type");
    found += fmt::format(" (a multimodal wrapper{}; only text checkpoints are read)",
                         inner ? fmt::format(" of {}", printable(*inner)) : "");
  }
  reader.fail("model_type", fmt::format("{}; supported: {}", found, fmt::join(supported, ", ")));
}

json::Json parse_object(std::string_view text, const std::string& where) {
  json::Json document = json::parse(text, where, {.max_bytes = std::int64_t{16} << 20});
  if (!document.is_object()) {
    throw Error(ErrorCode::kInput, where + ": expected a JSON object");
  }
  return document;
}

// End-of-sequence ids of generation_config.json join those of config.json.
void read_generation_config(const std::filesystem::path& file, ModelConfig& config) {
  const FileMap map(file);
  const json::Json document = parse_object(text_of(map), file.string());
  ConfigReader reader(document, file.string());
  const json::Json* eos = reader.find("eos_token_id");
  if (eos == nullptr) return;
  std::vector<std::int64_t> ids;
  if (eos->is_array()) {
    ids = *reader.optional_integers("eos_token_id", kTokenIdRange);
  } else {
    ids.push_back(reader.integer("eos_token_id", kTokenIdRange));
  }
  for (const std::int64_t id : ids) {
    const auto id32 = static_cast<std::int32_t>(id);
    if (std::ranges::find(config.eos_token_ids, id32) == config.eos_token_ids.end()) {
      config.eos_token_ids.push_back(id32);
    }
  }
}

}  // namespace

ModelConfig parse_config(std::string_view json_text, const std::filesystem::path& file) {
  const json::Json document = parse_object(json_text, file.string());
  ConfigReader reader(document, file.string());
  const ConfigFamily& entry = find_family(reader);
  ModelConfig config;
  config.family = entry.family;
  config.model_type = entry.model_type;
  entry.parse(reader, config);
  read_quantization(reader, config);
  if (const auto unknown = reader.unknown_keys(); !unknown.empty()) {
    config.warnings.push_back(fmt::format(
        "config.json has keys that are not known and were ignored: {}", fmt::join(unknown, ", ")));
  }
  return config;
}

ModelConfig read_config(const std::filesystem::path& directory) {
  const auto file = checkpoint_file(directory, "config.json");
  if (!file) refuse_without_config(directory);
  const FileMap map(*file);
  ModelConfig config = parse_config(text_of(map), *file);
  if (const auto generation = checkpoint_file(directory, "generation_config.json")) {
    read_generation_config(*generation, config);
  }
  return config;
}

std::string_view family_name(Family family) {
  switch (family) {
    case Family::kMixtral:
      return "Mixtral";
    case Family::kQwen2Moe:
      return "Qwen2-MoE";
    case Family::kQwen3Moe:
      return "Qwen3-MoE";
    case Family::kOlmoe:
      return "OLMoE";
    case Family::kDeepseekV2:
      return "DeepSeek-V2";
    case Family::kDeepseekV3:
      return "DeepSeek-V3";
    case Family::kGptOss:
      return "gpt-oss";
    case Family::kGlm4Moe:
      return "GLM-4.5";
    case Family::kGraniteMoe:
      return "Granite-MoE";
    case Family::kPhimoe:
      return "Phi-3.5-MoE";
    case Family::kDbrx:
      return "DBRX";
    case Family::kLlama4:
      return "Llama-4 (text)";
    case Family::kLlama:
      return "Llama (dense)";
    case Family::kQwen3:
      return "Qwen3 (dense)";
  }
  MOE_CHECK(false);
}

std::string describe_router(const MoeConfig& moe) {
  if (moe.num_experts == 0) return "no router (dense)";
  const RouterRule& rule = moe.router;
  std::string text;
  switch (rule.score) {
    case ScoreFunction::kSoftmax:
      text = fmt::format("softmax over {}, top {}", moe.num_experts, moe.top_k);
      break;
    case ScoreFunction::kSigmoid:
      text = fmt::format("sigmoid of {}, top {}", moe.num_experts, moe.top_k);
      break;
    case ScoreFunction::kLogits:
      text = fmt::format("top {} of {} logits, softmax over those", moe.top_k, moe.num_experts);
      break;
    case ScoreFunction::kLogitsSigmoid:
      text = fmt::format("top {} of {} logits, sigmoid of those", moe.top_k, moe.num_experts);
      break;
    case ScoreFunction::kSparsemixer:
      text = fmt::format("sparsemixer over {}, top {}, threshold {}", moe.num_experts, moe.top_k,
                         2.0 * rule.sparsemixer_eps);
      break;
  }
  if (rule.has_logit_bias) text += ", logit bias";
  if (rule.has_correction_bias) text += ", selected with a correction bias";
  if (rule.group_rule != GroupRule::kNone) {
    text += fmt::format(", within {} of {} groups by {}", rule.num_groups_kept, rule.num_groups,
                        rule.group_rule == GroupRule::kMax ? "their best" : "their two best");
  }
  if (rule.renormalize) {
    text += rule.renormalize_p == 1.0
                ? ", renormalised"
                : fmt::format(", divided by their {}-norm", rule.renormalize_p);
  }
  if (rule.score == ScoreFunction::kSoftmax && !rule.renormalize) text += ", not renormalised";
  if (rule.scale != 1.0) text += fmt::format(", times {}", rule.scale);
  if (moe.weight_on_input) text += ", weight on the input";
  return text;
}

}  // namespace moe::model
