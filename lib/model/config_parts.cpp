#include "lib/model/config_parts.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"

namespace moe::model {
namespace {

// One id, or a list of ids.
std::vector<std::int32_t> read_token_ids(ConfigReader& reader, std::string_view key) {
  std::vector<std::int32_t> ids;
  const json::Json* value = reader.find(key);
  if (value == nullptr) return ids;
  if (value->is_array()) {
    const auto list = reader.optional_integers(key, kTokenIdRange);
    for (const std::int64_t id : *list) ids.push_back(static_cast<std::int32_t>(id));
  } else {
    ids.push_back(reader.integer32(key, kTokenIdRange));
  }
  return ids;
}

}  // namespace

void read_common(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.integer32("vocab_size", kVocabRange);
  config.hidden_size = reader.integer32("hidden_size", kWidthRange);
  config.num_hidden_layers = reader.integer32("num_hidden_layers", kLayerRange);
  config.max_position_embeddings = reader.integer("max_position_embeddings", kContextRange);
  config.norm_eps = reader.number("rms_norm_eps", kEpsRange);
  reader.require_text("hidden_act", {"silu"});
  read_token_ids_and_dtype(reader, config);
}

void read_token_ids_and_dtype(ConfigReader& reader, ModelConfig& config) {
  config.tie_word_embeddings = reader.boolean_or("tie_word_embeddings", false);
  config.eos_token_ids = read_token_ids(reader, "eos_token_id");
  const auto bos = read_token_ids(reader, "bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos.front();
  const auto torch_dtype = reader.optional_text("torch_dtype");
  const auto dtype = reader.optional_text("dtype");
  config.torch_dtype = dtype.value_or(torch_dtype.value_or(""));
  if (reader.has("auto_map")) {
    config.warnings.push_back("auto_map names Python code, which is never run: ignored");
  }
  // Written by the library, used in training or by other code only.
  reader.ignore({"architectures",
                 "auto_map",
                 "transformers_version",
                 "_name_or_path",
                 "use_cache",
                 "attention_dropout",
                 "hidden_dropout",
                 "expert_dropout",
                 "resid_pdrop",
                 "embd_pdrop",
                 "emb_pdrop",
                 "initializer_range",
                 "pretraining_tp",
                 "pad_token_id",
                 "output_router_logits",
                 "router_aux_loss_coef",
                 "aux_loss_alpha",
                 "seq_aux",
                 "ep_size",
                 "is_decoder",
                 "chunk_size_feed_forward",
                 "return_dict",
                 "output_attentions",
                 "output_hidden_states",
                 "attn_implementation",
                 "_attn_implementation",
                 "_experts_implementation",
                 "experts_implementation",
                 "input_jitter_noise",
                 "_reconstructed"});
  config.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), LayerConfig{false, 0});
}

void read_gqa(ConfigReader& reader, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  attention.num_heads = reader.integer32("num_attention_heads", kHeadRange);
  // Absent in files from before grouped queries: as many as query heads.
  const bool may_be_absent = config.family == Family::kLlama || config.family == Family::kOlmoe ||
                             config.family == Family::kGraniteMoe;
  attention.num_kv_heads = may_be_absent && !reader.has("num_key_value_heads")
                               ? attention.num_heads
                               : reader.integer32("num_key_value_heads", kHeadRange);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    reader.fail("num_key_value_heads",
                fmt::format("{} does not divide the {} attention heads (num_attention_heads)",
                            attention.num_kv_heads, attention.num_heads));
  }
  const auto head_dim = reader.optional_integer("head_dim", kHeadDimRange);
  if (head_dim) {
    attention.head_dim = static_cast<std::int32_t>(*head_dim);
  } else {
    if (config.hidden_size % attention.num_heads != 0) {
      reader.fail("head_dim", fmt::format("missing, and hidden_size {} is not a multiple of "
                                          "num_attention_heads {}",
                                          config.hidden_size, attention.num_heads));
    }
    attention.head_dim = config.hidden_size / attention.num_heads;
  }
  if (std::int64_t{attention.num_heads} * attention.head_dim > kWidthRange.high) {
    reader.fail("num_attention_heads",
                fmt::format("{} heads of {} are more than {} together", attention.num_heads,
                            attention.head_dim, kWidthRange.high));
  }
  attention.softmax_scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
}

bool read_layer_types(ConfigReader& reader, ModelConfig& config,
                      std::optional<std::int64_t> window) {
  const auto types = reader.optional_texts("layer_types");
  if (!types) return false;
  if (types->size() != config.layers.size()) {
    reader.fail("layer_types", fmt::format("{} entries for {} layers (num_hidden_layers)",
                                           types->size(), config.layers.size()));
  }
  for (std::size_t layer = 0; layer < types->size(); ++layer) {
    const std::string& type = (*types)[layer];
    if (type == "sliding_attention") {
      if (!window) reader.fail("sliding_window", "missing, but layer_types has sliding_attention");
      config.layers[layer].window = static_cast<std::int32_t>(*window);
    } else if (type != "full_attention") {
      reader.fail("layer_types", fmt::format("\"{}\" is not supported; supported: full_attention, "
                                             "sliding_attention",
                                             printable(type)));
    }
  }
  return true;
}

void read_windows(ConfigReader& reader, ModelConfig& config, bool window_is_used) {
  const auto window = reader.optional_integer("sliding_window", {1, INT32_MAX});
  if (read_layer_types(reader, config, window) || !window || !window_is_used) return;
  for (LayerConfig& layer : config.layers) layer.window = static_cast<std::int32_t>(*window);
}

void read_experts(ConfigReader& reader, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.num_experts = static_cast<std::int32_t>(
      reader.integer_alias({"num_experts", "num_local_experts", "n_routed_experts"}, kExpertRange));
  moe.top_k = static_cast<std::int32_t>(reader.integer_alias(
      {"num_experts_per_tok", "experts_per_token", "moe_top_k"}, kExpertRange));
  if (moe.top_k > moe.num_experts) {
    reader.fail("num_experts_per_tok",
                fmt::format("{} experts per token of only {} experts", moe.top_k, moe.num_experts));
  }
  if (std::int64_t{moe.num_experts} * config.num_hidden_layers > kMaxExpertsInModel) {
    reader.fail("num_experts",
                fmt::format("{} experts in {} layers are more than {} together", moe.num_experts,
                            config.num_hidden_layers, kMaxExpertsInModel));
  }
}

void read_groups(ConfigReader& reader, ModelConfig& config, std::int32_t min_experts_per_group) {
  RouterRule& router = config.moe.router;
  const std::int32_t num_experts = config.moe.num_experts;
  router.num_groups = reader.integer32("n_group", kExpertRange);
  router.num_groups_kept = reader.integer32("topk_group", kExpertRange);
  if (num_experts % router.num_groups != 0) {
    reader.fail("n_group",
                fmt::format("{} groups do not divide {} experts", router.num_groups, num_experts));
  }
  if (router.num_groups_kept > router.num_groups) {
    reader.fail("topk_group", fmt::format("{} groups kept of only {} (n_group)",
                                          router.num_groups_kept, router.num_groups));
  }
  const std::int32_t per_group = num_experts / router.num_groups;
  if (router.num_groups > 1 && per_group < min_experts_per_group) {
    reader.fail("n_group",
                fmt::format("{} groups of {} experts have {} each, need at least {}",
                            router.num_groups, num_experts, per_group, min_experts_per_group));
  }
  if (config.moe.top_k > router.num_groups_kept * per_group) {
    reader.fail(
        "num_experts_per_tok",
        fmt::format("{} experts per token, but the {} groups kept (topk_group) hold {}",
                    config.moe.top_k, router.num_groups_kept, router.num_groups_kept * per_group));
  }
}

}  // namespace moe::model
