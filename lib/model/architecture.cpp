#include "lib/model/architecture.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/model/architecture_families.hpp"

namespace moe::model {
namespace {

using json::Json;

// Beyond this many parameters nothing real exists, and sums could overflow.
constexpr double kMaxParameters = 1e15;

struct FamilyEntry {
  std::string_view model_type;
  void (*build)(FamilyContext&);   // nullptr: a family of the engine
  std::string_view engine_family;  // whose rules it follows
};

constexpr auto kFamilies = std::to_array<FamilyEntry>({
    {"mixtral", nullptr, "mixtral"},
    {"qwen2_moe", nullptr, "qwen2_moe"},
    {"qwen3_moe", nullptr, "qwen3_moe"},
    {"qwen3_vl_moe_text", nullptr, "qwen3_moe"},
    {"olmoe", nullptr, "olmoe"},
    {"deepseek_v2", nullptr, "deepseek_v2"},
    {"deepseek_v3", nullptr, "deepseek_v3"},
    {"kimi_k2", nullptr, "kimi_k2"},
    {"gpt_oss", nullptr, "gpt_oss"},
    {"glm4_moe", nullptr, "glm4_moe"},
    {"glm4v_moe_text", nullptr, "glm4_moe"},
    {"granitemoe", nullptr, "granitemoe"},
    {"phimoe", nullptr, "phimoe"},
    {"llama", nullptr, "llama"},
    {"qwen3", nullptr, "qwen3"},
    {"arctic", build_arctic, {}},
    {"dbrx", build_dbrx, {}},
    {"deepseek", build_deepseek_mha, {}},
    {"deepseek_v32", build_deepseek_sparse, {}},
    {"deepseek_v4", build_deepseek_v4, {}},
    {"deepseek_v4", build_deepseek_v4, {}},
    {"dots1", build_dots1, {}},
    {"ernie4_5_moe", build_ernie, {}},
    {"gemma4_text", build_gemma4, {}},
    {"glm_moe_dsa", build_deepseek_sparse, {}},
    {"grok-1", build_grok1, {}},
    {"hunyuan", build_hunyuan, {}},
    {"hunyuan_v1_moe", build_hunyuan, {}},
    {"jamba", build_jamba, {}},
    {"llama4_text", build_llama4, {}},
    {"mimo_v2_flash", build_mimo, {}},
    {"minimax_m2", build_minimax_m2, {}},
    {"minimax_text_01", build_minimax_text_01, {}},
    {"nemotron_h", build_nemotron_h, {}},
    {"nllb-moe", build_nllb, {}},
    {"qwen3_5_moe_text", build_qwen3_next, {}},
    {"qwen3_next", build_qwen3_next, {}},
    {"switch_transformers", build_switch, {}},
});

// Objects of a wrapper that hold its language model.
constexpr std::array<std::string_view, 4> kTextObjects = {"text_config", "language_config",
                                                          "llm_config", "text"};

const FamilyEntry* find_family(std::string_view model_type) {
  const auto found = std::ranges::find(kFamilies, model_type, &FamilyEntry::model_type);
  return found == kFamilies.end() ? nullptr : &*found;
}

struct TextPart {
  const Json* object = nullptr;
  std::string prefix;
};

// The object that describes the language model: the document itself, or the nested one.
TextPart find_text_part(const Json& document) {
  for (const std::string_view name : kTextObjects) {
    const auto found = document.find(std::string(name));
    if (found != document.end() && found->is_object()) {
      return {&*found, std::string(name) + "."};
    }
  }
  return {&document, {}};
}

std::string model_type_of(ArchitectureFields& fields) {
  const auto type = fields.text({"model_type"});
  if (!type) {
    fields.add_missing("model_type");
    fields.require_complete();
  }
  return *type;
}

[[noreturn]] void refuse_family(const std::string& where, std::string_view model_type) {
  throw Error(
      ErrorCode::kInput,
      fmt::format("{}: model_type \"{}\" is not known, so nothing says which of its fields bear on "
                  "size; known: {}",
                  where, printable(model_type), fmt::join(known_model_types(), ", ")));
}

void note_uncounted(const Json& document, Architecture& architecture) {
  for (const std::string_view name : {"vision_config", "audio_config", "projector_config"}) {
    const auto found = document.find(std::string(name));
    if (found == document.end() || !found->is_object()) continue;
    architecture.notes.push_back(
        fmt::format("{} is there: only the language model is counted", name));
  }
}

void require_size(const Architecture& architecture, const std::string& where) {
  double total = 0.0;
  for (const auto* list : {&architecture.weights, &architecture.mtp_weights}) {
    for (const WeightGroup& group : *list) {
      total += static_cast<double>(group.count) * static_cast<double>(group.rows) *
               static_cast<double>(group.cols);
    }
  }
  if (total > kMaxParameters) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {:.3g} parameters are more than any model has", where, total));
  }
}

}  // namespace

std::int64_t WeightGroup::bytes() const {
  if (fixed_bits > 0) return (elements() * fixed_bits + 7) / 8;
  return matrix_bytes(format, rows, cols, count);
}

bool Architecture::is_moe() const {
  return num_moe_layers() > 0;
}

std::int32_t Architecture::num_moe_layers() const {
  return static_cast<std::int32_t>(std::ranges::count_if(
      layers, [](const LayerSpec& layer) { return layer.ffn.kind == FfnKind::kMoe; }));
}

std::int64_t Architecture::weight_bytes() const {
  std::int64_t total = 0;
  for (const WeightGroup& group : weights) total += group.bytes();
  return total;
}

std::int64_t Architecture::mtp_bytes() const {
  std::int64_t total = 0;
  for (const WeightGroup& group : mtp_weights) total += group.bytes();
  return total;
}

ParameterSummary count_parameters(const Architecture& architecture) {
  ParameterSummary summary;
  std::int64_t active = 0;
  for (const WeightGroup& group : architecture.weights) {
    const std::int64_t elements = group.elements();
    summary.by_part[static_cast<std::size_t>(group.part)] += elements;
    summary.total += elements;
    if (group.part == Part::kRoutedExperts) {
      const FfnSpec& ffn = architecture.layers[static_cast<std::size_t>(group.layer)].ffn;
      active += group.rows * group.cols * std::min<std::int64_t>(ffn.top_k, group.count);
    } else {
      active += elements;
    }
  }
  const std::int64_t embedding = summary.of(Part::kEmbedding);
  summary.active_with_embeddings = active;
  summary.active_without_input_embedding = architecture.has_tied_head ? active : active - embedding;
  summary.active_without_embeddings = active - embedding - summary.of(Part::kHead);
  for (const WeightGroup& group : architecture.mtp_weights) {
    const bool is_copy = group.part == Part::kEmbedding || group.part == Part::kHead;
    (is_copy ? summary.mtp_copies : summary.mtp) += group.elements();
  }
  return summary;
}

Architecture parse_architecture(std::string_view config_json, const std::string& where,
                                const ArchitectureOptions& options) {
  const Json document = json::parse(
      config_json, where, {.max_bytes = std::int64_t{16} << 20, .allow_infinity_literal = true});
  if (!document.is_object()) throw Error(ErrorCode::kInput, where + ": expected a JSON object");
  const TextPart part = find_text_part(document);
  ArchitectureFields fields(*part.object, where, part.prefix);
  ArchitectureFields outer(document, where);

  Architecture architecture;
  architecture.model_type = model_type_of(fields);
  const auto names = outer.texts("architectures");
  architecture.name =
      names && !names->empty() ? names->front() : std::string(architecture.model_type);
  // The tie flag of a wrapper stands at either level.
  architecture.has_tied_head = fields.has("tie_word_embeddings")
                                   ? fields.boolean_or("tie_word_embeddings", false)
                                   : outer.boolean_or("tie_word_embeddings", false);
  const FamilyEntry* family = find_family(architecture.model_type);
  if (family == nullptr) refuse_family(where, architecture.model_type);

  ArchitectureBuilder builder(architecture);
  FamilyContext context{fields, architecture, builder, architecture.model_type};
  if (architecture.model_type == "deepseek_v2" && !fields.boolean_or("use_mla", true)) {
    build_deepseek_mha(context);
  } else if (family->build != nullptr) {
    family->build(context);
  } else {
    build_engine_family(context, family->engine_family);
    architecture.is_engine_family =
        part.prefix.empty() && family->engine_family == family->model_type;
  }
  require_size(architecture, where);
  note_uncounted(document, architecture);
  apply_quantization(architecture, document, *part.object, where, options);
  return architecture;
}

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const FamilyEntry& entry : kFamilies) names.emplace_back(entry.model_type);
  std::ranges::sort(names);
  return names;
}

std::string_view mixer_name(MixerKind kind) {
  switch (kind) {
    case MixerKind::kNone:
      return "none";
    case MixerKind::kGqa:
      return "attention";
    case MixerKind::kMla:
      return "latent attention";
    case MixerKind::kCompressed:
      return "compressed attention";
    case MixerKind::kDeltaNet:
      return "gated delta net";
    case MixerKind::kMamba1:
      return "Mamba-1";
    case MixerKind::kMamba2:
      return "Mamba-2";
    case MixerKind::kLightning:
      return "lightning attention";
  }
  MOE_CHECK(false);
}

}  // namespace moe::model
