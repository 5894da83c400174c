// Encoder-decoders: Switch Transformers and NLLB-MoE.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/model/architecture_families.hpp"

namespace moe::model {
namespace {

struct Stack {
  bool is_encoder = false;
  std::int32_t num_layers = 0;
  std::int32_t sparse_step = 0;  // 0: no sparse layer
  std::int32_t dense_width = 0;
  MixerSpec mixer;
};

std::string prefix_of(const Stack& stack, std::int32_t layer) {
  return fmt::format("{}.layers.{}.", stack.is_encoder ? "encoder" : "decoder", layer);
}

LayerSpec spec_of(const Stack& stack, bool is_gated) {
  LayerSpec spec;
  spec.is_encoder = stack.is_encoder;
  spec.ffn.is_gated = is_gated;
  return spec;
}

// T5: no biases, RMS norms, relative position buckets in the first layer of a stack.
void add_switch_stack(FamilyContext& context, const Stack& stack, const FfnSpec& experts,
                      std::int64_t buckets) {
  ArchitectureBuilder& builder = context.builder;
  for (std::int32_t layer = 0; layer < stack.num_layers; ++layer) {
    builder.begin_layer(spec_of(stack, false), prefix_of(stack, layer));
    builder.norm("self_attn_norm");
    builder.gqa(stack.mixer);
    if (layer == 0) {
      builder.vector("self_attn.relative_attention_bias", Part::kAttention,
                     buckets * stack.mixer.num_heads);
    }
    if (!stack.is_encoder) {
      builder.norm("cross_attn_norm");
      builder.cross_attention(stack.mixer, {}, "cross_attn");
    }
    builder.norm("ffn_norm");
    if (stack.sparse_step > 0 && layer % stack.sparse_step == stack.sparse_step - 1) {
      builder.moe(experts);
    } else {
      builder.dense(stack.dense_width, false);
    }
  }
  builder.end_layers();
  builder.final_norm(stack.is_encoder ? "encoder.final_layer_norm" : "decoder.final_layer_norm");
}

// M2M: biases on every linear, LayerNorm with bias, positions without weights.
void add_nllb_stack(FamilyContext& context, const Stack& stack, const FfnSpec& experts) {
  ArchitectureBuilder& builder = context.builder;
  AttentionExtras attention;
  attention.has_qkv_bias = attention.has_o_bias = true;
  MoeExtras extras;
  extras.has_bias = true;
  for (std::int32_t layer = 0; layer < stack.num_layers; ++layer) {
    builder.begin_layer(spec_of(stack, false), prefix_of(stack, layer));
    builder.norm("self_attn_layer_norm", 2);
    builder.gqa(stack.mixer, attention);
    if (!stack.is_encoder) {
      builder.norm("cross_attention_layer_norm", 2);
      builder.cross_attention(stack.mixer, attention, "cross_attention");
    }
    builder.norm("ff_layer_norm", 2);
    if (stack.sparse_step > 0 && (layer + 1) % stack.sparse_step == 0) {
      builder.moe(experts, extras);
    } else {
      builder.dense(stack.dense_width, false, "ffn", true);
    }
  }
  builder.end_layers();
  builder.final_norm(stack.is_encoder ? "encoder.layer_norm" : "decoder.layer_norm", 2);
}

void close_encoder_decoder(FamilyContext& context) {
  context.builder.head();
  context.architecture.is_encoder_decoder = true;
}

}  // namespace

void build_switch(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  Architecture& architecture = context.architecture;
  architecture.vocab_size = fields.need({"vocab_size"}, kVocabRange);
  architecture.hidden_size = fields.need({"d_model"}, kWidthRange);
  Stack encoder;
  encoder.is_encoder = true;
  encoder.num_layers = fields.need32({"num_layers"}, kLayerRange);
  encoder.dense_width = fields.need32({"d_ff"}, kWidthRange);
  encoder.mixer.num_heads = encoder.mixer.num_kv_heads = fields.need32({"num_heads"}, kHeadRange);
  encoder.mixer.qk_head_dim = encoder.mixer.v_head_dim = fields.need32({"d_kv"}, kHeadDimRange);
  const std::int64_t buckets = fields.need({"relative_attention_num_buckets"}, {1, 65536});
  FfnSpec experts;
  experts.kind = FfnKind::kMoe;
  experts.is_gated = false;
  experts.num_experts = fields.need32({"num_experts"}, kExpertRange);
  experts.top_k = 1;  // what makes it a Switch Transformer
  experts.expert_width = encoder.dense_width;
  Stack decoder = encoder;
  decoder.is_encoder = false;
  decoder.num_layers = fields.integer32_or({"num_decoder_layers"}, encoder.num_layers, kLayerRange);
  const auto step = [&](const Stack& stack, std::string_view name) {
    const std::int32_t sparse = fields.need32({name}, {0, kLayerRange.high});
    return sparse > 0 ? std::max(1, stack.num_layers / sparse) : 0;
  };
  encoder.sparse_step = step(encoder, "num_sparse_encoder_layers");
  decoder.sparse_step = step(decoder, "num_sparse_decoder_layers");
  architecture.max_position_embeddings =
      fields.integer_or({"max_position_embeddings", "n_positions"}, 0, {0, kContextRange.high});
  fields.require_complete();
  context.builder.embedding("shared");
  add_switch_stack(context, encoder, experts, buckets);
  add_switch_stack(context, decoder, experts, buckets);
  close_encoder_decoder(context);
}

void build_nllb(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  Architecture& architecture = context.architecture;
  architecture.vocab_size = fields.need({"vocab_size"}, kVocabRange);
  architecture.hidden_size = fields.need({"d_model", "hidden_size"}, kWidthRange);
  architecture.max_position_embeddings =
      fields.integer_or({"max_position_embeddings"}, 0, {0, kContextRange.high});
  const auto read_stack = [&](bool is_encoder) {
    Stack stack;
    stack.is_encoder = is_encoder;
    const std::string side = is_encoder ? "encoder" : "decoder";
    stack.num_layers = fields.need32({side + "_layers"}, kLayerRange);
    stack.dense_width = fields.need32({side + "_ffn_dim"}, kWidthRange);
    stack.sparse_step = fields.need32({side + "_sparse_step"}, {0, kLayerRange.high});
    const std::int32_t heads = fields.need32({side + "_attention_heads"}, kHeadRange);
    stack.mixer.num_heads = stack.mixer.num_kv_heads = heads;
    stack.mixer.qk_head_dim = stack.mixer.v_head_dim =
        static_cast<std::int32_t>(architecture.hidden_size / heads);
    return stack;
  };
  const Stack encoder = read_stack(true);
  const Stack decoder = read_stack(false);
  for (const Stack* stack : {&encoder, &decoder}) {
    if (!fields.missing().empty() || architecture.hidden_size % stack->mixer.num_heads == 0) {
      continue;
    }
    fields.fail("d_model", fmt::format("{} is not a multiple of {} heads", architecture.hidden_size,
                                       stack->mixer.num_heads));
  }
  FfnSpec experts;
  experts.kind = FfnKind::kMoe;
  experts.is_gated = false;
  experts.num_experts = fields.need32({"num_experts"}, kExpertRange);
  experts.top_k = 2;  // the family routes to two
  experts.expert_width = encoder.dense_width;
  fields.require_complete();
  context.builder.embedding("model.shared");
  add_nllb_stack(context, encoder, experts);
  experts.expert_width = decoder.dense_width;
  add_nllb_stack(context, decoder, experts);
  close_encoder_decoder(context);
}

}  // namespace moe::model
