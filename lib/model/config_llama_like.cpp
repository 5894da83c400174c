// Families that are a Llama with another feed-forward block: Llama itself, Mixtral, OLMoE,
// Granite-MoE, Phi-3.5-MoE.

#include <algorithm>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

void make_all_layers_moe(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
}

RopeOptions rope_options(const ModelConfig& config) {
  RopeOptions options;
  options.head_dim = config.attention.head_dim;
  options.dim_key = "head_dim";
  return options;
}

// The expert width of these families is called intermediate_size.
void read_expert_width(ConfigReader& reader, ModelConfig& config) {
  config.moe.expert_intermediate_size = reader.integer32("intermediate_size", kWidthRange);
}

}  // namespace

void parse_mixtral(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  read_rope(reader, config, rope_options(config));
  read_windows(reader, config, true);
  read_experts(reader, config);
  read_expert_width(reader, config);
  make_all_layers_moe(config);
  config.moe.router.score = ScoreFunction::kSoftmax;
  config.moe.router.renormalize = true;
  reader.ignore({"router_jitter_noise"});  // training only
}

void parse_olmoe(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  read_rope(reader, config, rope_options(config));
  read_windows(reader, config, false);
  read_experts(reader, config);
  read_expert_width(reader, config);
  make_all_layers_moe(config);
  config.moe.router.renormalize = reader.boolean_or("norm_topk_prob", false);
  config.attention.has_qkv_bias = config.attention.has_o_bias =
      reader.boolean_or("attention_bias", false);
  config.attention.qk_norm = QkNorm::kWholeProjection;
  config.attention.clip_qkv = reader.optional_number("clip_qkv", {0.0, 1e6, true}).value_or(0.0);
}

void parse_granitemoe(ConfigReader& reader, ModelConfig& config) {
  constexpr NumberRange kMultiplierRange{0.0, 1e6, true};
  read_common(reader, config);
  read_gqa(reader, config);
  read_rope(reader, config, rope_options(config));
  read_windows(reader, config, false);
  read_experts(reader, config);
  read_expert_width(reader, config);
  make_all_layers_moe(config);
  config.moe.router.score = ScoreFunction::kLogits;
  config.attention.has_qkv_bias = config.attention.has_o_bias =
      reader.boolean_or("attention_bias", false);
  config.embedding_multiplier = reader.number("embedding_multiplier", kMultiplierRange);
  config.attention.softmax_scale = reader.number("attention_multiplier", kMultiplierRange);
  config.residual_multiplier = reader.number("residual_multiplier", kMultiplierRange);
  config.logits_divisor = reader.number("logits_scaling", kMultiplierRange);
}

void parse_phimoe(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  RopeOptions rope = rope_options(config);
  rope.allow_longrope = true;
  read_rope(reader, config, rope);
  read_windows(reader, config, true);
  read_experts(reader, config);
  if (config.moe.top_k != 2) {
    reader.fail("num_experts_per_tok", fmt::format("{} is not supported: sparsemixer routing picks "
                                                   "2 experts",
                                                   config.moe.top_k));
  }
  if (config.moe.num_experts < 2) reader.fail("num_local_experts", "sparsemixer needs at least 2");
  read_expert_width(reader, config);
  make_all_layers_moe(config);
  config.norm = NormKind::kLayerNormWithBias;
  config.moe.router.score = ScoreFunction::kSparsemixer;
  config.moe.router.sparsemixer_eps = reader.number("router_jitter_noise", {0.0, 1.0});
  config.attention.has_qkv_bias = config.attention.has_o_bias = reader.boolean("attention_bias");
  config.has_lm_head_bias = reader.boolean("lm_head_bias");
}

void parse_llama(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  RopeOptions rope = rope_options(config);
  rope.default_theta = 10000.0;  // files from before the field existed
  read_rope(reader, config, rope);
  read_windows(reader, config, false);
  config.intermediate_size = reader.integer32("intermediate_size", kWidthRange);
  config.attention.has_qkv_bias = config.attention.has_o_bias =
      reader.boolean_or("attention_bias", false);
  reader.require_boolean("mlp_bias", false, "biases of a dense feed-forward block");
}

}  // namespace moe::model
