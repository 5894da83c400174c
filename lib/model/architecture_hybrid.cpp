// Models that mix attention with recurrent layers.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"
#include "lib/model/architecture_families.hpp"

namespace moe::model {
namespace {

std::int32_t state_bits(ArchitectureFields& fields, ArchitectureFields::Names names,
                        std::int32_t fallback) {
  const auto text = fields.text(names);
  if (!text) return fallback;
  if (*text == "float32") return 32;
  if (*text == "bfloat16" || *text == "float16") return 16;
  fields.fail(*names.begin(), fmt::format("\"{}\" is not known; known: float32, bfloat16, float16",
                                          printable(*text)));
}

}  // namespace

void build_jamba(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kFromHidden);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"intermediate_size"}, kWidthRange);
  const std::int64_t expert_period = fields.need({"expert_layer_period"}, kLayerRange);
  const std::int64_t expert_offset = fields.need({"expert_layer_offset"}, {0, kLayerRange.high});
  const std::int64_t attn_period = fields.need({"attn_layer_period"}, kLayerRange);
  const std::int64_t attn_offset = fields.need({"attn_layer_offset"}, {0, kLayerRange.high});
  MambaDims mamba;
  mamba.inner = fields.need({"mamba_expand"}, {1, 64}) * context.architecture.hidden_size;
  mamba.state = fields.need({"mamba_d_state"}, {1, 4096});
  mamba.conv_kernel = fields.need({"mamba_d_conv"}, {1, 64});
  mamba.dt_rank = fields.need({"mamba_dt_rank"}, kWidthRange);
  mamba.has_conv_bias = fields.need_boolean("mamba_conv_bias");
  mamba.has_proj_bias = fields.need_boolean("mamba_proj_bias");
  mamba.has_inner_norms = true;
  require_decoder(context, dims);
  MoeExtras extras;
  extras.router = "feed_forward.router";
  extras.experts = "feed_forward.experts.0";
  ArchitectureBuilder& builder = context.builder;
  builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    builder.begin_layer({}, layer_prefix(layer));
    builder.norm("input_layernorm");
    if (layer % attn_period == attn_offset) {
      builder.gqa(dims.mixer);
    } else {
      builder.mamba1(mamba);
    }
    builder.norm("pre_ff_layernorm");
    if (layer % expert_period == expert_offset) {
      builder.moe(ffn, extras);
    } else {
      builder.dense(ffn.expert_width, true, "feed_forward");
    }
  }
  close_decoder(context);
}

// One letter a layer: M Mamba-2, E experts, * attention, - dense.
void build_nemotron_h(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  const std::string pattern = fields.text({"hybrid_override_pattern"}).value_or("");
  if (pattern.empty()) fields.add_missing("hybrid_override_pattern");
  const bool has_experts = pattern.find('E') != std::string::npos;
  FfnSpec ffn;
  std::int32_t latent = 0;
  if (has_experts) {
    ffn = read_experts(context);
    ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
    const std::int64_t shared = fields.need({"n_shared_experts"}, {0, 4096});
    if (shared > 0) {
      ffn.shared_width =
          checked_width(fields, "n_shared_experts",
                        shared * fields.need({"moe_shared_expert_intermediate_size"}, kWidthRange));
    }
    latent = fields.integer32_or({"moe_latent_size"}, 0, {0, kWidthRange.high});
    ffn.expert_input = latent;
  }
  ffn.is_gated = false;
  const std::int32_t dense = fields.need32({"intermediate_size"}, kWidthRange);
  MambaDims mamba;
  mamba.heads = fields.need({"mamba_num_heads"}, kHeadRange);
  mamba.inner = mamba.heads * fields.need({"mamba_head_dim"}, {1, 4096});
  mamba.state = fields.need({"ssm_state_size"}, {1, 4096});
  mamba.groups = fields.need({"n_groups"}, {1, 4096});
  mamba.conv_kernel = fields.need({"conv_kernel"}, {1, 64});
  mamba.has_conv_bias = fields.boolean_or("use_conv_bias", true);
  mamba.has_proj_bias = fields.boolean_or("mamba_proj_bias", false);
  mamba.state_bits = state_bits(fields, {"mamba_ssm_cache_dtype"}, 32);
  require_decoder(context, dims);
  if (std::ssize(pattern) != dims.num_layers) {
    fields.fail("hybrid_override_pattern",
                fmt::format("{} letters for {} layers", pattern.size(), dims.num_layers));
  }
  MoeExtras extras;
  extras.has_correction_bias = true;
  extras.router = "mixer.gate";
  extras.experts = "mixer.experts.0";
  extras.shared = "mixer.shared_experts";
  const std::int64_t hidden = context.architecture.hidden_size;
  ArchitectureBuilder& builder = context.builder;
  builder.embedding("backbone.embeddings");
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    LayerSpec spec;
    spec.mixer.kind = MixerKind::kNone;
    spec.ffn.kind = FfnKind::kNone;
    builder.begin_layer(spec, fmt::format("backbone.layers.{}.", layer));
    builder.norm("norm");
    const char kind = pattern[static_cast<std::size_t>(layer)];
    if (kind == 'M') {
      builder.mamba2(mamba);
    } else if (kind == '*') {
      builder.gqa(dims.mixer, {}, "mixer");
    } else if (kind == 'E') {
      if (latent > 0) {
        builder.matrix("mixer.fc1_latent_proj", Part::kDense, latent, hidden);
        builder.matrix("mixer.fc2_latent_proj", Part::kDense, hidden, latent);
      }
      builder.moe(ffn, extras);
    } else if (kind == '-') {
      builder.dense(dense, false, "mixer");
    } else {
      fields.fail("hybrid_override_pattern",
                  fmt::format("letter {} is \"{}\", expected M, E, * or -", layer,
                              printable(std::string(1, kind))));
    }
  }
  close_decoder(context);
  if (fields.integer_or({"num_nextn_predict_layers"}, 0, {0, 64}) > 0) {
    context.architecture.notes.emplace_back(
        "the multi-token-prediction module of this family is not counted");
  }
}

// Qwen3-Next and Qwen3.5: gated delta net, with full attention every few layers.
void build_qwen3_next(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const bool is_35 = context.model_type == "qwen3_5_moe_text";
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  ffn.shared_width = fields.need32({"shared_expert_intermediate_size"}, {0, kWidthRange.high});
  const auto types = fields.texts("layer_types");
  const std::int64_t interval = types ? 0 : fields.need({"full_attention_interval"}, kLayerRange);
  const auto only_dense = fields.integers("mlp_only_layers", {0, kLayerRange.high})
                              .value_or(std::vector<std::int64_t>{});
  const std::int64_t step = fields.integer_or({"decoder_sparse_step"}, 1, kLayerRange);
  const std::int32_t dense =
      only_dense.empty() && step == 1 ? 0 : fields.need32({"intermediate_size"}, kWidthRange);
  DeltaNetDims delta;
  delta.key_heads = fields.need({"linear_num_key_heads"}, kHeadRange);
  delta.key_dim = fields.need({"linear_key_head_dim"}, kHeadDimRange);
  delta.value_heads = fields.need({"linear_num_value_heads"}, kHeadRange);
  delta.value_dim = fields.need({"linear_value_head_dim"}, kHeadDimRange);
  delta.conv_kernel = fields.need({"linear_conv_kernel_dim"}, {1, 64});
  delta.state_bits = state_bits(fields, {"mamba_ssm_dtype"}, 32);
  AttentionExtras attention;
  attention.has_output_gate = fields.boolean_or("attn_output_gate", true);
  attention.has_qkv_bias = attention.has_o_bias = fields.boolean_or("attention_bias", false);
  attention.q_norm = attention.k_norm = dims.mixer.qk_head_dim;
  require_decoder(context, dims);
  if (types && std::ssize(*types) != dims.num_layers) {
    fields.fail("layer_types",
                fmt::format("{} entries for {} layers", types->size(), dims.num_layers));
  }
  MoeExtras extras;
  extras.has_shared_gate = ffn.shared_width > 0;
  extras.shared = "mlp.shared_expert";
  ArchitectureBuilder& builder = context.builder;
  builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    const std::string type = types ? (*types)[static_cast<std::size_t>(layer)]
                             : (layer + 1) % interval == 0 ? "full_attention"
                                                           : "linear_attention";
    builder.begin_layer({}, layer_prefix(layer));
    builder.norm("input_layernorm");
    if (type == "full_attention") {
      builder.gqa(dims.mixer, attention);
    } else if (type == "linear_attention") {
      builder.delta_net(delta, is_35);
    } else {
      fields.fail("layer_types", fmt::format("\"{}\" is not known", printable(type)));
    }
    builder.norm("post_attention_layernorm");
    const bool is_dense = std::ranges::find(only_dense, layer) != only_dense.end();
    if (is_dense || (layer + 1) % step != 0) {
      builder.dense(dense, true);
    } else {
      builder.moe(ffn, extras);
    }
  }
  close_decoder(context);
  // The module shares embedding and head unless it says otherwise.
  builder.mtp(fields.integer32_or({"mtp_num_hidden_layers"}, 0, {0, 64}),
              fields.boolean_or("mtp_use_dedicated_embeddings", false));
}

// attn_type_list: 0 lightning attention, 1 softmax attention.
void build_minimax_text_01(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  const DecoderDims dims = read_decoder(context, HeadDim::kRequired);
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"intermediate_size"}, kWidthRange);
  const auto types = fields.per_layer({"attn_type_list"}, dims.num_layers, {0, 1});
  ffn.shared_width = fields.integer32_or({"shared_intermediate_size"}, 0, {0, kWidthRange.high});
  require_decoder(context, dims);
  MoeExtras extras;
  extras.router = "block_sparse_moe.gate";
  extras.experts = "block_sparse_moe.experts.0";
  ArchitectureBuilder& builder = context.builder;
  builder.embedding();
  for (std::int32_t layer = 0; layer < dims.num_layers; ++layer) {
    builder.begin_layer({}, layer_prefix(layer));
    builder.norm("input_layernorm");
    if (types[static_cast<std::size_t>(layer)] == 1) {
      builder.gqa(dims.mixer);
    } else {
      builder.lightning(dims.mixer.num_heads, dims.mixer.qk_head_dim);
    }
    builder.norm("post_attention_layernorm");
    builder.moe(ffn, extras);
  }
  close_decoder(context);
}

}  // namespace moe::model
