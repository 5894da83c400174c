// Decoders with softmax attention that lib/engine does not run.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"
#include "lib/model/architecture_families.hpp"

namespace moe::model {

std::string layer_prefix(std::int32_t layer) {
  return fmt::format("model.layers.{}.", layer);
}

void close_decoder(FamilyContext& context, std::string_view norm) {
  context.builder.end_layers();
  context.builder.final_norm(norm);
  context.builder.head();
}

namespace {

// One decoder layer of the common shape: norm, attention, norm, feed-forward part.
template <typename AddFfn>
void add_layer(FamilyContext& context, std::int32_t layer, const MixerSpec& mixer,
               const AttentionExtras& extras, AddFfn&& add_ffn) {
  ArchitectureBuilder& builder = context.builder;
  builder.begin_layer({}, layer_prefix(layer));
  builder.norm("input_layernorm");
  builder.gqa(mixer, extras);
  builder.norm("post_attention_layernorm");
  add_ffn(builder);
}

AttentionExtras per_head_norms(const MixerSpec& mixer) {
  AttentionExtras extras;
  extras.q_norm = extras.k_norm = mixer.qk_head_dim;
  return extras;
}

}  // namespace

DecoderDims read_decoder(FamilyContext& context, HeadDim head_dim) {
  ArchitectureFields& fields = context.fields;
  Architecture& architecture = context.architecture;
  DecoderDims dims;
  architecture.vocab_size = fields.need({"vocab_size"}, kVocabRange);
  architecture.hidden_size = fields.need({"hidden_size", "d_model"}, kWidthRange);
  architecture.max_position_embeddings =
      fields.integer_or({"max_position_embeddings", "max_seq_len"}, 0, {0, kContextRange.high});
  dims.num_layers = fields.need32({"num_hidden_layers", "n_layers"}, kLayerRange);
  MixerSpec& mixer = dims.mixer;
  mixer.num_heads = fields.need32({"num_attention_heads", "n_heads"}, kHeadRange);
  mixer.num_kv_heads = fields.need32({"num_key_value_heads"}, kHeadRange);
  const auto width =
      head_dim == HeadDim::kRequired
          ? fields.need32({"head_dim", "attention_head_dim"}, kHeadDimRange)
          : fields.integer32_or({"head_dim", "attention_head_dim"}, 0, {0, kHeadDimRange.high});
  mixer.qk_head_dim =
      width > 0 ? width : static_cast<std::int32_t>(architecture.hidden_size / mixer.num_heads);
  // Classes that can also do latent attention write 0 where they do not.
  const auto value_width = fields.integer32_or({"v_head_dim"}, 0, {0, kHeadDimRange.high});
  mixer.v_head_dim = value_width > 0 ? value_width : mixer.qk_head_dim;
  return dims;
}

void require_decoder(const FamilyContext& context, const DecoderDims& dims) {
  context.fields.require_complete();
  const MixerSpec& mixer = dims.mixer;
  if (mixer.num_heads % mixer.num_kv_heads != 0) {
    context.fields.fail("num_key_value_heads",
                        fmt::format("{} does not divide the {} attention heads", mixer.num_kv_heads,
                                    mixer.num_heads));
  }
  const bool is_from_hidden =
      !context.fields.has("head_dim") && !context.fields.has("attention_head_dim");
  if (is_from_hidden && context.architecture.hidden_size % mixer.num_heads != 0) {
    context.fields.fail("head_dim",
                        fmt::format("missing, and hidden_size {} is not a multiple of {} heads",
                                    context.architecture.hidden_size, mixer.num_heads));
  }
}

namespace {

// Only when both are there: what is missing is reported first.
void require_top_k(const FamilyContext& context, const FfnSpec& ffn) {
  if (context.fields.missing().empty() && ffn.top_k > ffn.num_experts) {
    context.fields.fail("num_experts_per_tok",
                        fmt::format("{} experts per token of only {}", ffn.top_k, ffn.num_experts));
  }
}

}  // namespace

FfnSpec read_experts(FamilyContext& context) {
  FfnSpec ffn;
  ffn.kind = FfnKind::kMoe;
  ffn.num_experts = context.fields.need32(
      {"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"}, kExpertRange);
  ffn.top_k = context.fields.need32(
      {"num_experts_per_tok", "top_k_experts", "moe_k", "moe_top_k", "experts_per_token"},
      kExpertRange);
  require_top_k(context, ffn);
  return ffn;
}

std::int32_t checked_width(const ArchitectureFields& fields, std::string_view name,
                           std::int64_t width) {
  if (width > kWidthRange.high) {
    fields.fail(name, fmt::format("{} wide together, at most {}", width, kWidthRange.high));
  }
  return static_cast<std::int32_t>(width);
}

void build_arctic(FamilyContext& context) {
  const DecoderDims dims = read_decoder(context, HeadDim::kFromHidden);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = context.fields.need32({"intermediate_size"}, kWidthRange);
  const std::int64_t step = context.fields.integer_or({"moe_layer_frequency"}, 1, kLayerRange);
  const bool has_residual = context.fields.need_boolean("parallel_attn_mlp_res");
  require_decoder(context, dims);
  MoeExtras extras;
  extras.router = "block_sparse_moe.gate";
  extras.experts = "block_sparse_moe.experts.0";
  context.builder.embedding();
  const auto hidden = static_cast<std::int32_t>(context.architecture.hidden_size);
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    add_layer(context, layer, dims.mixer, {}, [&](ArchitectureBuilder& builder) {
      if ((layer + 1) % step != 0) {
        builder.dense(ffn.expert_width, true, "block_sparse_moe.mlp");
        return;
      }
      if (has_residual) {  // a dense part as wide as the hidden state, in parallel
        builder.norm("residual_layernorm");
        builder.dense(hidden, true, "residual_mlp");
      }
      builder.moe(ffn, extras);
    });
  }
  close_decoder(context);
}

void build_dbrx(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  auto attention = fields.object("attn_config");
  auto ffn_config = fields.object("ffn_config");
  Architecture& architecture = context.architecture;
  architecture.vocab_size = fields.need({"vocab_size"}, kVocabRange);
  architecture.hidden_size = fields.need({"d_model"}, kWidthRange);
  architecture.max_position_embeddings =
      fields.integer_or({"max_seq_len"}, 0, {0, kContextRange.high});
  DecoderDims dims;
  dims.num_layers = fields.need32({"n_layers"}, kLayerRange);
  dims.mixer.num_heads = fields.need32({"n_heads"}, kHeadRange);
  FfnSpec ffn;
  ffn.kind = FfnKind::kMoe;
  const auto nested = [&](std::optional<ArchitectureFields>& object, std::string_view parent,
                          std::string_view name, IntRange range) {
    const std::int64_t value = object ? object->integer_or({name}, -1, range) : -1;
    if (value < 0) fields.add_missing(fmt::format("{}.{}", parent, name));
    return static_cast<std::int32_t>(value < 0 ? range.low : value);
  };
  dims.mixer.num_kv_heads = nested(attention, "attn_config", "kv_n_heads", kHeadRange);
  ffn.expert_width = nested(ffn_config, "ffn_config", "ffn_hidden_size", kWidthRange);
  ffn.num_experts = nested(ffn_config, "ffn_config", "moe_num_experts", kExpertRange);
  ffn.top_k = nested(ffn_config, "ffn_config", "moe_top_k", kExpertRange);
  dims.mixer.qk_head_dim = dims.mixer.v_head_dim =
      static_cast<std::int32_t>(architecture.hidden_size / dims.mixer.num_heads);
  require_decoder(context, dims);
  require_top_k(context, ffn);
  MoeExtras extras;
  extras.router = "ffn.router.layer";
  extras.experts = "ffn.experts.mlp";
  context.builder.embedding("transformer.wte");
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    context.builder.begin_layer({}, fmt::format("transformer.blocks.{}.", layer));
    context.builder.norm("norm_attn_norm.norm_1");
    context.builder.gqa(dims.mixer, {}, "norm_attn_norm.attn");
    context.builder.norm("norm_attn_norm.norm_2");
    context.builder.moe(ffn, extras);
  }
  close_decoder(context, "transformer.norm_f");
}

// DeepSeekMoE before latent attention, and DeepSeek-VL2-Tiny's language model.
void build_deepseek_mha(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kFromHidden);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  ffn.shared_width = checked_width(fields, "n_shared_experts",
                                   fields.need({"n_shared_experts"}, {0, 4096}) * ffn.expert_width);
  const std::int32_t first_dense = fields.need32({"first_k_dense_replace"}, {0, kLayerRange.high});
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  const std::int64_t step = fields.integer_or({"moe_layer_freq"}, 1, kLayerRange);
  require_decoder(context, dims);
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    add_layer(context, layer, dims.mixer, {}, [&](ArchitectureBuilder& builder) {
      if (layer >= first_dense && layer % step == 0) {
        builder.moe(ffn);
      } else {
        builder.dense(dense, true);
      }
    });
  }
  close_decoder(context);
}

void build_dots1(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kFromHidden);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  ffn.shared_width = checked_width(fields, "n_shared_experts",
                                   fields.need({"n_shared_experts"}, {0, 4096}) * ffn.expert_width);
  const std::int32_t first_dense = fields.need32({"first_k_dense_replace"}, {0, kLayerRange.high});
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  const bool has_bias = fields.boolean_or("attention_bias", false);
  require_decoder(context, dims);
  AttentionExtras attention = per_head_norms(dims.mixer);
  attention.has_qkv_bias = attention.has_o_bias = has_bias;
  MoeExtras extras;
  extras.has_correction_bias = true;
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    add_layer(context, layer, dims.mixer, attention, [&](ArchitectureBuilder& builder) {
      if (layer >= first_dense) {
        builder.moe(ffn, extras);
      } else {
        builder.dense(dense, true);
      }
    });
  }
  close_decoder(context);
}

void build_ernie(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kFromHidden);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  ffn.shared_width =
      checked_width(fields, "moe_num_shared_experts",
                    fields.need({"moe_num_shared_experts"}, {0, 4096}) * ffn.expert_width);
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  const std::int64_t begin = fields.need({"moe_layer_start_index"}, {0, kLayerRange.high});
  std::int64_t last = fields.integer_or({"moe_layer_end_index"}, -1, {-1, kLayerRange.high});
  const std::int64_t interval = fields.integer_or({"moe_layer_interval"}, 1, kLayerRange);
  AttentionExtras attention;
  attention.has_qkv_bias = attention.has_o_bias = fields.boolean_or("use_bias", false);
  require_decoder(context, dims);
  if (last < 0) last = dims.num_layers - 1;
  MoeExtras extras;
  extras.has_correction_bias = true;
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    add_layer(context, layer, dims.mixer, attention, [&](ArchitectureBuilder& builder) {
      if (layer >= begin && layer <= last && (layer + 1) % interval == 0) {
        builder.moe(ffn, extras);
      } else {
        builder.dense(dense, true);
      }
    });
  }
  close_decoder(context);
}

void build_grok1(FamilyContext& context) {
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = context.fields.need32({"intermediate_size"}, kWidthRange);
  require_decoder(context, dims);
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    add_layer(context, layer, dims.mixer, {}, [&](ArchitectureBuilder& builder) {
      builder.norm("pre_moe_norm");
      builder.norm("post_moe_norm");
      builder.moe(ffn);
    });
  }
  close_decoder(context);
}

// Experts, width, top-k and shared experts may be one value or one a layer.
void build_hunyuan(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kFromHidden);
  const std::int64_t layers = dims.num_layers;
  const auto experts = fields.per_layer({"num_experts"}, layers, kExpertRange);
  const auto top_k = fields.per_layer({"moe_topk"}, layers, kExpertRange);
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  const auto widths = fields.per_layer({"moe_intermediate_size"}, layers, kWidthRange, dense);
  const auto shared = fields.per_layer({"num_shared_expert"}, layers, {0, 4096}, 0);
  const bool has_shared = fields.boolean_or("use_mixed_mlp_moe", true);
  const std::int64_t skipped =
      fields.integer_or({"moe_layer_num_skipped"}, 0, {0, kLayerRange.high});
  if (fields.boolean_or("use_cla", false)) {
    fields.fail("use_cla", "layers that share keys and values are not supported, expected false");
  }
  if (fields.boolean_or("use_mla", false)) {
    fields.fail("use_mla", "latent attention of this family is not supported, expected false");
  }
  AttentionExtras attention;
  if (fields.need_boolean("use_qk_norm")) attention = per_head_norms(dims.mixer);
  attention.has_qkv_bias = attention.has_o_bias = fields.boolean_or("attention_bias", false);
  require_decoder(context, dims);
  MoeExtras extras;
  extras.router = "mlp.gate.wg";
  extras.shared = "mlp.shared_mlp";
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    FfnSpec ffn;
    ffn.kind = FfnKind::kMoe;
    ffn.num_experts = static_cast<std::int32_t>(experts[at]);
    ffn.top_k = static_cast<std::int32_t>(top_k[at]);
    ffn.expert_width = static_cast<std::int32_t>(widths[at]);
    ffn.shared_width =
        has_shared ? checked_width(fields, "num_shared_expert", shared[at] * dense) : 0;
    require_top_k(context, ffn);
    add_layer(context, layer, dims.mixer, attention, [&](ArchitectureBuilder& builder) {
      if (layer < skipped || ffn.num_experts == 1) {
        builder.dense(dense, true);
      } else {
        builder.moe(ffn, extras);
      }
    });
  }
  close_decoder(context);
}

// Chunked local attention with rotary positions, and every no_rope_layer_interval-th layer without
// positions over the whole sequence; dense layers between MoE layers by interleave_moe_layer_step.
void build_llama4(FamilyContext& context) {
  constexpr std::int64_t kInterval = 4;  // the library's default
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"intermediate_size"}, kWidthRange);
  ffn.shared_width = ffn.expert_width;
  const std::int32_t dense = fields.need32({"intermediate_size_mlp"}, kWidthRange);
  const std::int64_t step = fields.need({"interleave_moe_layer_step"}, kLayerRange);
  const std::int32_t chunk = fields.need32({"attention_chunk_size"}, {1, INT32_MAX});
  const auto rope_layers = fields.integers("no_rope_layers", {0, 1});
  const std::int64_t interval =
      fields.integer_or({"no_rope_layer_interval"}, kInterval, kLayerRange);
  AttentionExtras attention;
  attention.has_qkv_bias = attention.has_o_bias = fields.boolean_or("attention_bias", false);
  require_decoder(context, dims);
  const bool has_list = rope_layers && !rope_layers->empty();
  if (has_list && std::ssize(*rope_layers) != dims.num_layers) {
    fields.fail("no_rope_layers",
                fmt::format("{} entries for {} layers", rope_layers->size(), dims.num_layers));
  }
  if (!has_list) {
    context.architecture.notes.push_back(fmt::format(
        "no_rope_layers is absent: every {}th layer sees the whole sequence", interval));
  }
  MoeExtras extras;
  extras.router = "feed_forward.router";
  extras.experts = "feed_forward.experts";
  extras.shared = "feed_forward.shared_expert";
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    MixerSpec mixer = dims.mixer;
    const bool has_rope = has_list ? (*rope_layers)[static_cast<std::size_t>(layer)] != 0
                                   : (layer + 1) % interval != 0;
    mixer.chunk = has_rope ? chunk : 0;
    add_layer(context, layer, mixer, attention, [&](ArchitectureBuilder& builder) {
      if ((layer + 1) % step == 0) {
        builder.moe(ffn, extras);
      } else {
        builder.dense(dense, true, "feed_forward");
      }
    });
  }
  close_decoder(context);
}

void build_minimax_m2(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"intermediate_size"}, kWidthRange);
  ffn.shared_width = fields.integer32_or({"shared_intermediate_size"}, 0, {0, kWidthRange.high});
  const bool has_norm = fields.need_boolean("use_qk_norm");
  const bool has_bias = fields.need_boolean("use_routing_bias");
  require_decoder(context, dims);
  AttentionExtras attention;
  if (has_norm) {  // one norm over all heads
    attention.q_norm = std::int64_t{dims.mixer.num_heads} * dims.mixer.qk_head_dim;
    attention.k_norm = std::int64_t{dims.mixer.num_kv_heads} * dims.mixer.qk_head_dim;
  }
  MoeExtras extras;
  extras.has_correction_bias = has_bias;
  extras.router_bits = 32;
  extras.router = "block_sparse_moe.gate";
  extras.experts = "block_sparse_moe.experts.0";
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    add_layer(context, layer, dims.mixer, attention,
              [&](ArchitectureBuilder& builder) { builder.moe(ffn, extras); });
  }
  close_decoder(context);
  if (fields.boolean_or("use_mtp", false)) {
    context.architecture.notes.emplace_back(
        "use_mtp is set, but published files hold no such module: not counted");
  }
}

// Window layers and global layers with different head counts; key heads wider than value heads.
void build_mimo(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  ffn.shared_width =
      checked_width(fields, "n_shared_experts",
                    fields.integer_or({"n_shared_experts"}, 0, {0, 4096}) * ffn.expert_width);
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  const auto is_sparse = fields.per_layer({"moe_layer_freq"}, dims.num_layers, {0, 1});
  const auto is_window = fields.per_layer({"hybrid_layer_pattern"}, dims.num_layers, {0, 1});
  MixerSpec window = dims.mixer;
  window.window = fields.need32({"sliding_window", "sliding_window_size"}, {1, INT32_MAX});
  window.num_heads = fields.need32({"swa_num_attention_heads"}, kHeadRange);
  window.num_kv_heads = fields.need32({"swa_num_key_value_heads"}, kHeadRange);
  window.qk_head_dim = fields.need32({"swa_head_dim"}, kHeadDimRange);
  window.v_head_dim = fields.need32({"swa_v_head_dim"}, kHeadDimRange);
  const bool has_window_sinks = fields.boolean_or("add_swa_attention_sink_bias", false);
  const bool has_full_sinks = fields.boolean_or("add_full_attention_sink_bias", false);
  const bool has_bias = fields.boolean_or("attention_bias", false);
  require_decoder(context, dims);
  MoeExtras extras;
  extras.has_correction_bias = true;
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    AttentionExtras attention;
    attention.has_sinks = is_window[at] != 0 ? has_window_sinks : has_full_sinks;
    attention.has_qkv_bias = has_bias;
    add_layer(context, layer, is_window[at] != 0 ? window : dims.mixer, attention,
              [&](ArchitectureBuilder& builder) {
                if (is_sparse[at] != 0) {
                  builder.moe(ffn, extras);
                } else {
                  builder.dense(dense, true);
                }
              });
  }
  close_decoder(context);
}

// A dense part beside the experts in every layer; global layers have their own head width and use
// one projection as key and value.
void build_gemma4(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  const auto types = fields.texts("layer_types");
  if (!types) fields.add_missing("layer_types");
  MixerSpec window = dims.mixer;
  window.window = fields.need32({"sliding_window"}, {1, INT32_MAX});
  MixerSpec global = dims.mixer;
  global.qk_head_dim = global.v_head_dim = fields.need32({"global_head_dim"}, kHeadDimRange);
  global.num_kv_heads = fields.need32({"num_global_key_value_heads"}, kHeadRange);
  global.has_shared_kv = fields.need_boolean("attention_k_eq_v");
  for (const std::string_view name : {"num_kv_shared_layers", "hidden_size_per_layer_input"}) {
    if (fields.integer_or({name}, 0, {0, kWidthRange.high}) != 0) {
      fields.fail(name, "only 0 is supported");
    }
  }
  require_decoder(context, dims);
  if (std::ssize(*types) != dims.num_layers) {
    fields.fail("layer_types",
                fmt::format("{} entries for {} layers", types->size(), dims.num_layers));
  }
  MoeExtras extras;
  extras.router = "router.proj";
  extras.experts = "experts";
  context.builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    const std::string& type = (*types)[static_cast<std::size_t>(layer)];
    const bool is_global = type == "full_attention";
    if (!is_global && type != "sliding_attention") {
      fields.fail("layer_types", fmt::format("\"{}\" is not known", printable(type)));
    }
    const MixerSpec& mixer = is_global ? global : window;
    add_layer(context, layer, mixer, per_head_norms(mixer), [&](ArchitectureBuilder& builder) {
      builder.norm("feedforward_layernorms", 5);
      builder.dense(dense, true);
      builder.moe(ffn, extras);
      builder.vector("router.scales", Part::kRouter,
                     context.architecture.hidden_size + ffn.num_experts);
    });
  }
  close_decoder(context);
  context.architecture.notes.emplace_back(
      "the small scale vectors of this family are counted by its library class; no published "
      "parameter count confirms them");
}

}  // namespace moe::model
