// DBRX: other names for every field, fused q, k and v, layer norms without bias.

#include <cmath>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

ConfigReader require_object(ConfigReader& reader, std::string_view key) {
  auto object = reader.optional_object(key);
  if (!object) reader.fail(key, "missing; expected an object");
  return *std::move(object);
}

void read_attention(ConfigReader& reader, ModelConfig& config) {
  ConfigReader inner = require_object(reader, "attn_config");
  AttentionConfig& attention = config.attention;
  attention.num_heads = reader.integer32("n_heads", kHeadRange);
  attention.num_kv_heads = inner.integer32("kv_n_heads", kHeadRange);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    inner.fail("kv_n_heads", fmt::format("{} does not divide the {} attention heads (n_heads)",
                                         attention.num_kv_heads, attention.num_heads));
  }
  if (config.hidden_size % attention.num_heads != 0) {
    reader.fail("d_model", fmt::format("{} is not a multiple of the {} heads (n_heads)",
                                       config.hidden_size, attention.num_heads));
  }
  attention.head_dim = config.hidden_size / attention.num_heads;
  attention.softmax_scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  attention.has_fused_qkv = true;
  attention.clip_qkv = inner.optional_number("clip_qkv", {0.0, 1e6, true}).value_or(0.0);
  RopeOptions rope;
  rope.head_dim = attention.head_dim;
  rope.dim_key = "d_model";
  rope.default_theta = inner.optional_number("rope_theta", {1.0, 1e12, true});
  read_rope(reader, config, rope);  // rope_parameters, as newer libraries write them
  if (rope.default_theta && *rope.default_theta != attention.rope.theta) {
    inner.fail("rope_theta", fmt::format("{} contradicts rope_parameters, which have {}",
                                         *rope.default_theta, attention.rope.theta));
  }
  inner.ignore({"attn_pdrop", "model_type"});
  const auto repeated = reader.optional_integer("num_key_value_heads", kHeadRange);
  if (repeated && *repeated != attention.num_kv_heads) {
    reader.fail("num_key_value_heads", fmt::format("{} contradicts attn_config.kv_n_heads = {}",
                                                   *repeated, attention.num_kv_heads));
  }
}

void read_ffn(ConfigReader& reader, ModelConfig& config) {
  ConfigReader inner = require_object(reader, "ffn_config");
  MoeConfig& moe = config.moe;
  moe.expert_intermediate_size = inner.integer32("ffn_hidden_size", kWidthRange);
  if (auto activation = inner.optional_object("ffn_act_fn")) {
    activation->require_text("name", {"silu"});
  }
  moe.num_experts = inner.integer32("moe_num_experts", kExpertRange);
  moe.top_k = inner.integer32("moe_top_k", kExpertRange);
  if (moe.top_k > moe.num_experts) {
    inner.fail("moe_top_k",
               fmt::format("{} experts per token of only {} experts", moe.top_k, moe.num_experts));
  }
  if (std::int64_t{moe.num_experts} * config.num_hidden_layers > kMaxExpertsInModel) {
    inner.fail("moe_num_experts",
               fmt::format("{} experts in {} layers are more than {} together", moe.num_experts,
                           config.num_hidden_layers, kMaxExpertsInModel));
  }
  // The release does not write it and means 1; only null switches the division off.
  const auto p = inner.optional_number("moe_normalize_expert_weights", {0.0, 64.0, true});
  moe.router.renormalize = !inner.is_null("moe_normalize_expert_weights");
  moe.router.renormalize_p = p.value_or(1.0);
  inner.ignore({"moe_jitter_eps", "moe_loss_weight", "uniform_expert_assignment", "model_type",
                "hidden_size"});
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
}

}  // namespace

void parse_dbrx(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.integer32("vocab_size", kVocabRange);
  config.hidden_size = reader.integer32("d_model", kWidthRange);
  config.num_hidden_layers = reader.integer32("n_layers", kLayerRange);
  config.max_position_embeddings = reader.integer("max_seq_len", kContextRange);
  config.norm_eps = 1e-5;  // the default of the layer norms, which no field changes
  config.norm = NormKind::kLayerNorm;
  read_token_ids_and_dtype(reader, config);
  read_attention(reader, config);
  read_ffn(reader, config);
}

}  // namespace moe::model
