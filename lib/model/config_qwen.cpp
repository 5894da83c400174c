// Qwen2-MoE, Qwen3-MoE and the dense Qwen3.

#include <algorithm>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

void read_qwen_common(ConfigReader& reader, ModelConfig& config) {
  read_common(reader, config);
  read_gqa(reader, config);
  RopeOptions rope;
  rope.head_dim = config.attention.head_dim;
  rope.dim_key = "head_dim";
  read_rope(reader, config, rope);
  // sliding_window counts only with use_sliding_window; which layers slide is layer_types' to say
  // (the library versions disagree on max_window_layers).
  const bool uses_window = reader.boolean_or("use_sliding_window", false);
  if (uses_window && !reader.has("layer_types")) {
    reader.fail("use_sliding_window",
                "true is supported only together with layer_types, which says "
                "which layers slide");
  }
  read_windows(reader, config, false);
  reader.ignore({"max_window_layers"});
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
