// gpt-oss, Llama-4, Phi-3.5-MoE and Granite-MoE: what their keys say, and what no key says.

#include <algorithm>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"
#include "lib/model/gguf_config_parts.hpp"

namespace moe::model {

// No key holds the clamp of the activation, its slope, or that the YaRN borders are not rounded:
// they are those of the released models.
void read_gguf_gpt_oss(const GgufKeys& keys, ModelConfig& config) {
  read_gguf_expert_counts(keys, false, config);
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
  config.moe.has_expert_bias = true;
  config.moe.router.score = ScoreFunction::kLogits;
  config.moe.router.has_logit_bias = true;
  config.activation = Activation::kGptOssGlu;
  config.attention.has_o_bias = true;
  config.attention.has_sinks = true;
  config.attention.rope.truncate = false;
  const std::int32_t window = keys.integer32("attention.sliding_window", {1, INT32_MAX});
  const std::vector<bool> slides =
      keys.layer_pattern("attention.sliding_window_pattern", 2, config.layers.size());
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    config.layers[layer].window = slides[layer] ? window : 0;
  }
}

// Chunks of 8192 and temperatures are those of the released models where no key says otherwise.
void read_gguf_llama4(const GgufKeys& keys, ModelConfig& config) {
  read_gguf_expert_counts(keys, false, config);
  MoeConfig& moe = config.moe;
  const std::int64_t step = keys.integer32("interleave_moe_layer_step", {1, 4096});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layers[static_cast<std::size_t>(layer)].is_moe = (layer + 1) % step == 0;
  }
  if (std::ranges::none_of(config.layers, &LayerConfig::is_moe)) {
    keys.fail("interleave_moe_layer_step", "leaves no layer of experts");
  }
  if (step > 1) {
    config.intermediate_size = keys.required_uniform("feed_forward_length", kWidthRange);
  }
  moe.shared_intermediate_size = moe.expert_intermediate_size;
  moe.router.score = ScoreFunction::kLogitsSigmoid;
  moe.weight_on_input = true;
  AttentionConfig& attention = config.attention;
  // The variant of 128 experts has no norm of q and k; no key says so.
  if (moe.num_experts != 128) attention.qk_norm = QkNorm::kUnitAfterRope;
  const std::int64_t chunk =
      keys.optional_integer("attention.sliding_window", {0, INT32_MAX}).value_or(8192);
  if (chunk == 0) return;  // every layer rotates and sees everything
  attention.temperature_scale =
      keys.optional_number("attention.temperature_scale", {0.0, 1e3, true}).value_or(0.1);
  attention.temperature_floor =
      keys.optional_number("attention.temperature_length", {0.0, 1e9, true}).value_or(8192.0);
  const std::vector<bool> rotates =
      keys.layer_pattern("attention.sliding_window_pattern", 4, config.layers.size());
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    config.layers[layer].window = 0;
    config.layers[layer].has_rope = rotates[layer];
    if (rotates[layer]) config.layers[layer].chunk = static_cast<std::int32_t>(chunk);
  }
}

void read_gguf_phimoe(const GgufKeys& keys, ModelConfig& config) {
  read_gguf_expert_counts(keys, false, config);
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
  if (config.moe.top_k != 2) {
    keys.fail("expert_used_count", fmt::format("{} is not supported: sparsemixer routing picks 2 "
                                               "experts",
                                               config.moe.top_k));
  }
  if (config.moe.num_experts < 2) keys.fail("expert_count", "sparsemixer needs at least 2");
  config.norm = NormKind::kLayerNormWithBias;
  config.moe.router.score = ScoreFunction::kSparsemixer;
  config.moe.router.sparsemixer_eps = 0.01;
  config.attention.has_o_bias = true;
  config.has_lm_head_bias = keys.file().find("output.bias") != nullptr;
  config.warnings.push_back(
      "experts are chosen by sparsemixer with a jitter of 0.01, as Phi-3.5-MoE does, which no key "
      "says; llama.cpp takes the two best of a softmax");
  if (keys.file().find("rope_factors_long.weight") == nullptr) return;
  RopeConfig& rope = config.attention.rope;
  if (rope.kind != RopeKind::kDefault) {
    keys.fail("rope.scaling.type", "is not supported together with rope_factors_long.weight");
  }
  rope.kind = RopeKind::kLongrope;
  rope.original_max_position_embeddings =
      keys.integer32("rope.scaling.original_context_length", kContextRange);
  rope.short_factor = read_gguf_factors(keys.file(), "rope_factors_short.weight", rope.dim / 2);
  rope.long_factor = read_gguf_factors(keys.file(), "rope_factors_long.weight", rope.dim / 2);
  rope.short_mscale = rope.long_mscale =
      keys.optional_number("rope.scaling.attn_factor", kFactorRange).value_or(1.0);
}

void read_gguf_granite(const GgufKeys& keys, ModelConfig& config) {
  constexpr NumberRange kMultiplierRange{0.0, 1e6, true};
  config.moe.router.score = ScoreFunction::kLogits;
  config.embedding_multiplier = keys.number("embedding_scale", kMultiplierRange);
  config.attention.softmax_scale = keys.number("attention.scale", kMultiplierRange);
  config.residual_multiplier = keys.number("residual_scale", kMultiplierRange);
  config.logits_divisor = keys.number("logit_scale", kMultiplierRange);
}

}  // namespace moe::model
