// DeepSeek-V2, DeepSeek-V3 with Kimi-K2, and GLM-4.5, whose router is DeepSeek-V3's.

#include <cmath>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

constexpr NumberRange kScaleRange{0.0, 1e6, true};

void read_mla(ConfigReader& reader, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  MlaConfig& mla = attention.mla;
  attention.is_mla = true;
  attention.num_heads = reader.integer32("num_attention_heads", kHeadRange);
  // Not a grouping: every head has its own keys, made from the shared latent.
  const auto kv_heads = reader.optional_integer("num_key_value_heads", kHeadRange);
  if (kv_heads && *kv_heads != attention.num_heads) {
    reader.fail("num_key_value_heads", fmt::format("{} differs from num_attention_heads {}; latent "
                                                   "attention has one key head for each",
                                                   *kv_heads, attention.num_heads));
  }
  attention.num_kv_heads = attention.num_heads;
  mla.q_lora_rank =
      static_cast<std::int32_t>(reader.optional_integer("q_lora_rank", kWidthRange).value_or(0));
  mla.kv_lora_rank = reader.integer32("kv_lora_rank", kWidthRange);
  mla.qk_nope_head_dim = reader.integer32("qk_nope_head_dim", kHeadDimRange);
  mla.qk_rope_head_dim = reader.integer32("qk_rope_head_dim", kHeadDimRange);
  mla.v_head_dim = reader.integer32("v_head_dim", kHeadDimRange);
  attention.head_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim;
  if (std::int64_t{attention.num_heads} * (attention.head_dim + mla.v_head_dim) >
      kWidthRange.high) {
    reader.fail("num_attention_heads", fmt::format("{} heads of {} are too many together",
                                                   attention.num_heads, attention.head_dim));
  }
  RopeOptions rope;
  rope.style = reader.boolean_or("rope_interleave", true) ? RopeStyle::kPairs : RopeStyle::kHalf;
  rope.head_dim = mla.qk_rope_head_dim;
  rope.dim_key = "qk_rope_head_dim";
  read_rope(reader, config, rope);
  const double m = mla_mscale(reader, config);
  attention.softmax_scale = m * m / std::sqrt(static_cast<double>(attention.head_dim));
  reader.require_boolean("attention_bias", false, "biases of latent attention");
  // head_dim and qk_head_dim repeat what the parts say; some versions write rope's width there.
  reader.ignore({"head_dim", "qk_head_dim"});
}

// The first k layers are dense; of the rest every moe_layer_freq-th by layer number is sparse.
void read_layer_kinds(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t first = reader.integer("first_k_dense_replace", {0, kLayerRange.high});
  const std::int64_t step = reader.optional_integer("moe_layer_freq", kLayerRange).value_or(1);
  bool has_dense = false;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool is_moe = layer >= first && layer % step == 0;
    config.layers[static_cast<std::size_t>(layer)].is_moe = is_moe;
    has_dense = has_dense || !is_moe;
  }
  if (has_dense || reader.has("intermediate_size")) {
    config.intermediate_size = reader.integer32("intermediate_size", kWidthRange);
  }
  config.moe.expert_intermediate_size = reader.integer32("moe_intermediate_size", kWidthRange);
  const std::int64_t num_shared =
      reader.optional_integer("n_shared_experts", {0, 4096}).value_or(0);
  const std::int64_t shared_width = num_shared * config.moe.expert_intermediate_size;
  if (shared_width > kWidthRange.high) {
    reader.fail("n_shared_experts",
                fmt::format("{} shared experts are too wide together", num_shared));
  }
  config.moe.shared_intermediate_size = static_cast<std::int32_t>(shared_width);
  config.num_nextn_predict_layers = static_cast<std::int32_t>(
      reader.optional_integer("num_nextn_predict_layers", {0, 64}).value_or(0));
}

// Sigmoid scores, a correction bias for the selection, groups by their two best.
void read_noaux_router(ConfigReader& reader, ModelConfig& config) {
  RouterRule& router = config.moe.router;
  reader.require_text("scoring_func", {"sigmoid"});
  reader.require_text("topk_method", {"noaux_tc"});
  router.score = ScoreFunction::kSigmoid;
  router.has_correction_bias = true;
  read_groups(reader, config, 2);
  router.group_rule = router.num_groups > 1 ? GroupRule::kTop2Sum : GroupRule::kNone;
  router.renormalize = reader.boolean("norm_topk_prob");
  router.renormalize_eps = 1e-20;
  router.scale = reader.number("routed_scaling_factor", kScaleRange);
}

}  // namespace

void parse_deepseek_v2(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_mla(reader, config);
  read_windows(reader, config, false);
  read_experts(reader, config);
  read_layer_kinds(reader, config);
  RouterRule& router = config.moe.router;
  reader.require_text("scoring_func", {"softmax"});
  const auto method = reader.optional_text("topk_method");
  if (!method) reader.fail("topk_method", "missing; expected greedy or group_limited_greedy");
  reader.require_text("topk_method", {"greedy", "group_limited_greedy"});
  if (*method == "group_limited_greedy") {
    read_groups(reader, config, 1);
    router.group_rule = router.num_groups > 1 ? GroupRule::kMax : GroupRule::kNone;
  }
  // Implementations of the family disagree on true, and no release has it.
  reader.require_boolean("norm_topk_prob", false, "weights of this family are not renormalised");
  router.scale = reader.number("routed_scaling_factor", kScaleRange);
  reader.ignore({"n_group", "topk_group"});
}

void parse_deepseek_v3(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_mla(reader, config);
  read_windows(reader, config, false);
  read_experts(reader, config);
  read_layer_kinds(reader, config);
  read_noaux_router(reader, config);
}

void parse_glm4_moe(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  RopeOptions rope;
  rope.head_dim = config.attention.head_dim;
  rope.dim_key = "partial_rotary_factor";
  rope.allow_partial = true;
  rope.default_partial = 0.5;  // of the family, wherever the file keeps its RoPE fields
  read_rope(reader, config, rope);
  read_windows(reader, config, false);
  read_experts(reader, config);
  read_layer_kinds(reader, config);
  read_noaux_router(reader, config);
  config.attention.has_qkv_bias = reader.boolean_or("attention_bias", false);
  config.attention.qk_norm =
      reader.boolean_or("use_qk_norm", false) ? QkNorm::kPerHead : QkNorm::kNone;
}

}  // namespace moe::model
