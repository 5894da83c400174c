// Qwen2-MoE, Qwen3-MoE and the dense Qwen3.

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

// sliding_window counts only with use_sliding_window: newer libraries write 0 there, older ones
// leave a default. Which layers slide is layer_types' to say; without it, in the dense model those
// from max_window_layers on. For the models with experts the library versions disagree.
void read_qwen_windows(ConfigReader& reader, ModelConfig& config) {
  std::optional<std::int64_t> window;
  const auto types = reader.optional_texts("layer_types");
  if (reader.boolean_or("use_sliding_window", false)) {
    window = reader.integer("sliding_window", {1, INT32_MAX});
  } else {
    (void)reader.optional_integer("sliding_window", {0, INT32_MAX});
    if (types && std::ranges::find(*types, "sliding_attention") != types->end()) {
      reader.fail("layer_types", "has sliding_attention, but use_sliding_window is not true");
    }
  }
  const auto first = reader.optional_integer("max_window_layers", {0, INT32_MAX});
  const bool has_types = read_layer_types(reader, config, window);
  if (!window || has_types) return;
  if (config.family != Family::kQwen3) {
    reader.fail("use_sliding_window",
                "true is supported only together with layer_types, which says "
                "which layers slide");
  }
  if (!first) reader.fail("max_window_layers", "missing, but use_sliding_window is true");
  for (std::int64_t layer = *first; layer < config.num_hidden_layers; ++layer) {
    config.layers[static_cast<std::size_t>(layer)].window = static_cast<std::int32_t>(*window);
  }
}

void read_qwen_common(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  RopeOptions rope;
  rope.head_dim = config.attention.head_dim;
  rope.dim_key = "head_dim";
  read_rope(reader, config, rope);
  read_qwen_windows(reader, config);
}

// A layer is sparse unless it is in mlp_only_layers or off the step.
void read_sparse_layers(ConfigReader& reader, ModelConfig& config) {
  const std::int64_t step = reader.optional_integer("decoder_sparse_step", {1, 4096}).value_or(1);
  const auto dense = reader.optional_integers("mlp_only_layers", {0, config.num_hidden_layers - 1})
                         .value_or(std::vector<std::int64_t>{});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool is_listed = std::ranges::find(dense, layer) != dense.end();
    config.layers[static_cast<std::size_t>(layer)].is_moe = !is_listed && (layer + 1) % step == 0;
  }
  const bool has_dense =
      std::ranges::any_of(config.layers, [](auto& layer) { return !layer.is_moe; });
  if (has_dense || reader.has("intermediate_size")) {
    config.intermediate_size = reader.integer32("intermediate_size", kWidthRange);
  }
  config.moe.expert_intermediate_size = reader.integer32("moe_intermediate_size", kWidthRange);
}

}  // namespace

void parse_qwen2_moe(ConfigReader& reader, ModelConfig& config) {
  read_qwen_common(reader, config);
  read_experts(reader, config);
  read_sparse_layers(reader, config);
  config.moe.router.renormalize = reader.boolean_or("norm_topk_prob", false);
  config.attention.has_qkv_bias = reader.boolean_or("qkv_bias", true);
  config.moe.shared_intermediate_size =
      reader.integer32("shared_expert_intermediate_size", kWidthRange);
  config.moe.has_shared_gate = true;
}

void parse_qwen3_moe(ConfigReader& reader, ModelConfig& config) {
  read_qwen_common(reader, config);
  read_experts(reader, config);
  read_sparse_layers(reader, config);
  // The library default is false and every released config says true: never guessed.
  config.moe.router.renormalize = reader.boolean("norm_topk_prob");
  config.attention.has_qkv_bias = config.attention.has_o_bias =
      reader.boolean_or("attention_bias", false);
  config.attention.qk_norm = QkNorm::kPerHead;
  // Written by some releases with the only value the family has.
  reader.require_boolean("use_qk_norm", true, "the family always norms q and k");
  reader.require_boolean("qkv_bias", false, "the family has attention_bias instead");
  const auto shared = reader.optional_integer("shared_expert_intermediate_size", {0, INT32_MAX});
  if (shared.value_or(0) != 0) {
    reader.fail("shared_expert_intermediate_size", "the family has no shared expert, expected 0");
  }
}

void parse_qwen3(ConfigReader& reader, ModelConfig& config) {
  read_qwen_common(reader, config);
  config.intermediate_size = reader.integer32("intermediate_size", kWidthRange);
  config.attention.has_qkv_bias = config.attention.has_o_bias =
      reader.boolean_or("attention_bias", false);
  config.attention.qk_norm = QkNorm::kPerHead;
}

}  // namespace moe::model
