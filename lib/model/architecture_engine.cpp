// Families of lib/engine: the weights are the tensors that the binder expects, so inspect and plan
// count the same. Fields that do not bear on size may be absent here.

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/model/architecture_families.hpp"
#include "lib/model/config.hpp"

namespace moe::model {
namespace {

using json::Json;

bool is_latent(std::string_view family) {
  return family.starts_with("deepseek") || family == "kimi_k2";
}

// A field whose null is a statement and whose absence means a library default.
void need_present(ArchitectureFields& fields, std::string_view name) {
  if (!fields.json().contains(std::string(name))) fields.add_missing(std::string(name));
}

void need_moe_fields(ArchitectureFields& fields, std::string_view family) {
  (void)fields.need({"num_experts", "num_local_experts", "n_routed_experts"}, kExpertRange);
  (void)fields.need({"num_experts_per_tok", "experts_per_token", "moe_top_k"}, kExpertRange);
  const bool has_own_width =
      family.starts_with("qwen") || family == "glm4_moe" || is_latent(family);
  if (has_own_width) {
    (void)fields.need({"moe_intermediate_size"}, kWidthRange);
  } else {
    (void)fields.need({"intermediate_size"}, kWidthRange);
  }
  if (family == "qwen2_moe") {
    (void)fields.need({"shared_expert_intermediate_size"}, kWidthRange);
  }
  if (is_latent(family) || family == "glm4_moe") {
    const std::int64_t first = fields.need({"first_k_dense_replace"}, {0, kLayerRange.high});
    if (first > 0) (void)fields.need({"intermediate_size"}, kWidthRange);
    need_present(fields, "n_shared_experts");
  }
}

void need_fields(ArchitectureFields& fields, std::string_view family) {
  (void)fields.need({"vocab_size"}, kVocabRange);
  (void)fields.need({"hidden_size"}, kWidthRange);
  (void)fields.need({"num_hidden_layers"}, kLayerRange);
  (void)fields.need({"num_attention_heads"}, kHeadRange);
  if (is_latent(family)) {
    need_present(fields, "q_lora_rank");
    for (const std::string_view name :
         {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
      (void)fields.need({name}, kWidthRange);
    }
  } else {
    (void)fields.need({"num_key_value_heads"}, kHeadRange);
  }
  if (family == "gpt_oss") {
    (void)fields.need({"head_dim"}, kHeadDimRange);
    if (!fields.has("layer_types")) (void)fields.need({"sliding_window"}, {1, INT32_MAX});
  }
  if (family == "phimoe") {
    (void)fields.need_boolean("attention_bias");
    (void)fields.need_boolean("lm_head_bias");
  }
  if (family == "llama" || family == "qwen3") {
    (void)fields.need({"intermediate_size"}, kWidthRange);
  } else {
    need_moe_fields(fields, family);
  }
  fields.require_complete();
}

// The config as the engine reads it, with every field that has no bearing on size set to a value
// that is always valid.
Json size_view(const ArchitectureFields& fields, std::string_view family, bool is_tied) {
  Json view = fields.json();
  for (const char* name : {"quantization_config", "compression_config", "rope_scaling",
                           "rope_parameters", "partial_rotary_factor", "rope_theta", "eos_token_id",
                           "bos_token_id", "auto_map", "text_config"}) {
    view.erase(name);
  }
  view["model_type"] = family;
  view["tie_word_embeddings"] = is_tied;
  view["rms_norm_eps"] = 1e-6;
  view["hidden_act"] = "silu";
  view["rope_theta"] = 10000.0;
  if (!view.contains("max_position_embeddings")) view["max_position_embeddings"] = 1;
  if (family == "glm4_moe") view["partial_rotary_factor"] = 1.0;
  if (family == "gpt_oss") view["rope_scaling"] = {{"rope_type", "default"}};
  if (family == "granitemoe") {
    for (const char* name : {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                             "logits_scaling"}) {
      view[name] = 1.0;
    }
  }
  if (family == "phimoe") view["router_jitter_noise"] = 0.01;
  if (family == "qwen3_moe") view["norm_topk_prob"] = true;
  if (is_latent(family) || family == "glm4_moe") {
    const bool is_v2 = family == "deepseek_v2";
    view["scoring_func"] = is_v2 ? "softmax" : "sigmoid";
    view["topk_method"] = is_v2 ? "greedy" : "noaux_tc";
    view["norm_topk_prob"] = !is_v2;
    view["routed_scaling_factor"] = 1.0;
    view["n_group"] = 1;
    view["topk_group"] = 1;
  }
  return view;
}

MixerSpec mixer_of(const ModelConfig& config, std::size_t layer) {
  const AttentionConfig& attention = config.attention;
  MixerSpec mixer;
  mixer.kind = attention.is_mla ? MixerKind::kMla : MixerKind::kGqa;
  mixer.num_heads = attention.num_heads;
  mixer.num_kv_heads = attention.num_kv_heads;
  mixer.qk_head_dim = attention.head_dim;
  mixer.v_head_dim = attention.is_mla ? attention.mla.v_head_dim : attention.head_dim;
  mixer.window = config.layers[layer].window;
  if (attention.is_mla) {
    mixer.q_lora_rank = attention.mla.q_lora_rank;
    mixer.kv_lora_rank = attention.mla.kv_lora_rank;
    mixer.qk_nope_head_dim = attention.mla.qk_nope_head_dim;
    mixer.qk_rope_head_dim = attention.mla.qk_rope_head_dim;
  }
  return mixer;
}

LayerSpec layer_of(const ModelConfig& config, std::size_t layer) {
  LayerSpec spec;
  spec.mixer = mixer_of(config, layer);
  if (config.is_moe() && config.layers[layer].is_moe) {
    spec.ffn.kind = FfnKind::kMoe;
    spec.ffn.num_experts = config.moe.num_experts;
    spec.ffn.top_k = config.moe.top_k;
    spec.ffn.expert_width = config.moe.expert_intermediate_size;
    spec.ffn.shared_width = config.moe.shared_intermediate_size;
    spec.ffn.expert_input = config.hidden_size;
  } else {
    spec.ffn.dense_width = config.intermediate_size;
  }
  return spec;
}

struct Placement {
  Split split = Split::kNone;
  SplitAxis axis = SplitAxis::kRows;
  std::int64_t units = 1;
};

Placement placement_of(const ModelConfig& config, const ExpectedTensor& tensor) {
  const AttentionConfig& attention = config.attention;
  const bool is_vector = tensor.shape.rank() == 1;
  const SplitAxis out = is_vector ? SplitAxis::kCols : SplitAxis::kRows;
  switch (tensor.slot) {
    case Slot::kEmbedding:
    case Slot::kLmHead:
    case Slot::kLmHeadBias:
      return {Split::kVocab, out, config.vocab_size};
    case Slot::kQ:
    case Slot::kQBias:
    case Slot::kQB:
    case Slot::kKvB:
    case Slot::kSinks:
      return {Split::kHeads, out, attention.num_heads};
    case Slot::kO:
      return {Split::kHeads, SplitAxis::kCols, attention.num_heads};
    case Slot::kK:
    case Slot::kV:
    case Slot::kKBias:
    case Slot::kVBias:
      return {Split::kKvHeads, out, attention.num_kv_heads};
    case Slot::kDenseGate:
    case Slot::kDenseUp:
      return {Split::kWidth, SplitAxis::kRows, config.intermediate_size};
    case Slot::kDenseDown:
      return {Split::kWidth, SplitAxis::kCols, config.intermediate_size};
    case Slot::kSharedGate:
    case Slot::kSharedUp:
      return {Split::kWidth, SplitAxis::kRows, config.moe.shared_intermediate_size};
    case Slot::kSharedDown:
      return {Split::kWidth, SplitAxis::kCols, config.moe.shared_intermediate_size};
    case Slot::kExpertGate:
    case Slot::kExpertUp:
    case Slot::kExpertsGateUp:
      return {Split::kExperts, SplitAxis::kRows, config.moe.expert_intermediate_size};
    case Slot::kExpertDown:
    case Slot::kExpertsDown:
      return {Split::kExperts, SplitAxis::kCols, config.moe.expert_intermediate_size};
    case Slot::kExpertsGateUpBias:
      return {Split::kExperts, SplitAxis::kCols, config.moe.expert_intermediate_size};
    case Slot::kExpertsDownBias:
      return {Split::kExperts, SplitAxis::kCols, 1};
    default:
      return {};
  }
}

WeightGroup group_of(const ModelConfig& config, const ExpectedTensor& tensor) {
  WeightGroup group;
  group.name = tensor.name;
  if (group.name.ends_with(".weight")) group.name.resize(group.name.size() - 7);
  group.part = tensor.part;
  group.layer = tensor.layer;
  const Shape& shape = tensor.shape;
  const bool is_fused = tensor.slot == Slot::kExpertsGateUp || tensor.slot == Slot::kExpertsDown;
  const bool is_fused_bias =
      tensor.slot == Slot::kExpertsGateUpBias || tensor.slot == Slot::kExpertsDownBias;
  if (is_fused) {
    MOE_CHECK(shape.rank() == 3);
    const bool is_in_out = tensor.storage == Storage::kExpertsInOut;
    group.count = shape[0];
    group.rows = is_in_out ? shape[2] : shape[1];
    group.cols = is_in_out ? shape[1] : shape[2];
  } else if (is_fused_bias) {
    group.count = shape[0];
    group.cols = shape[1];
  } else if (shape.rank() == 1) {
    group.cols = shape[0];
  } else {
    group.rows = shape[0];
    group.cols = shape[1];
  }
  const Placement placement = placement_of(config, tensor);
  group.split = placement.split;
  group.axis = placement.axis;
  group.units = placement.units;
  group.is_linear = tensor.storage != Storage::kPlain && tensor.part != Part::kHead;
  if (tensor.slot == Slot::kCorrectionBias) group.fixed_bits = 32;
  return group;
}

void add_weights(const ModelConfig& config, Architecture& architecture) {
  const auto schemes = moe_name_schemes(config.family);
  std::map<Slot, std::size_t> of_layer;  // experts of the open layer
  std::int32_t layer = -1;
  visit_expected_tensors(config, schemes.empty() ? nullptr : &schemes.front(),
                         [&](const ExpectedTensor& tensor) {
                           if (tensor.layer != layer) of_layer.clear();
                           layer = tensor.layer;
                           if (tensor.expert > 0) {
                             ++architecture.weights[of_layer.at(tensor.slot)].count;
                             return;
                           }
                           if (tensor.expert == 0)
                             of_layer[tensor.slot] = architecture.weights.size();
                           architecture.weights.push_back(group_of(config, tensor));
                         });
}

}  // namespace

void build_engine_family(FamilyContext& context, std::string_view family) {
  need_fields(context.fields, family);
  Architecture& architecture = context.architecture;
  const Json view = size_view(context.fields, family, architecture.has_tied_head);
  const ModelConfig config = parse_config(view.dump(), context.fields.where());
  architecture.vocab_size = config.vocab_size;
  architecture.hidden_size = config.hidden_size;
  architecture.max_position_embeddings =
      context.fields.has("max_position_embeddings") ? config.max_position_embeddings : 0;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    architecture.layers.push_back(layer_of(config, layer));
  }
  add_weights(config, architecture);
  // The published files of these families hold the module with its own embedding and head.
  context.builder.mtp(config.num_nextn_predict_layers, true);
}

void build_deepseek_sparse(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const std::int32_t heads = fields.need32({"index_n_heads"}, kHeadRange);
  const std::int32_t dim = fields.need32({"index_head_dim"}, kHeadDimRange);
  const std::int32_t top_k = fields.need32({"index_topk"}, {1, INT32_MAX});
  (void)fields.need({"q_lora_rank"}, kWidthRange);  // the indexer reads the low-rank query
  build_engine_family(context, "deepseek_v3");
  Architecture& architecture = context.architecture;
  std::vector<WeightGroup> mtp = std::exchange(architecture.mtp_weights, {});
  for (std::size_t layer = 0; layer < architecture.layers.size(); ++layer) {
    MixerSpec& mixer = architecture.layers[layer].mixer;
    mixer.index_heads = heads;
    mixer.index_head_dim = dim;
    mixer.index_topk = top_k;
    context.builder.indexer_of(static_cast<std::int32_t>(layer));
  }
  if (!mtp.empty()) context.builder.mtp(1, true);
  architecture.notes.emplace_back(
      "the indexer's weights follow from index_n_heads and index_head_dim; no published count "
      "confirms them");
}

}  // namespace moe::model
