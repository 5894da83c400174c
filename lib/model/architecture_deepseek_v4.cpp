// DeepSeek-V4: one shared key-value head, a short window plus compressed entries in most layers, a
// low-rank grouped output projection, hyper-connections. Shapes follow the reference inference code
// (Attention, Compressor, Indexer, Block), as read in public ports of it.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/model/architecture_families.hpp"

namespace moe::model {
namespace {

struct V4Dims {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t q_rank = 0;
  std::int64_t o_groups = 0;
  std::int64_t o_rank = 0;
  std::int64_t streams = 0;  // hc_mult
};

// Entries of ratio 4 overlap: their projections are twice as wide.
std::int64_t compressor_width(std::int32_t ratio, std::int64_t dim) {
  return (ratio == 4 ? 2 : 1) * dim;
}

void add_compressor(FamilyContext& context, const std::string& base, std::int64_t hidden,
                    std::int32_t ratio, std::int64_t dim) {
  ArchitectureBuilder& builder = context.builder;
  const std::int64_t width = compressor_width(ratio, dim);
  builder.vector(base + ".ape", Part::kAttention, ratio * width);
  for (const std::string_view name : {".wkv", ".wgate"}) {  // never quantised
    WeightGroup group;
    group.name = base + std::string(name);
    group.rows = width;
    group.cols = hidden;
    builder.add(group);
  }
  builder.vector(base + ".norm", Part::kAttention, dim);
}

// Two FP32 accumulators of one open group of tokens.
std::int64_t compressor_state(std::int32_t ratio, std::int64_t dim) {
  const std::int64_t overlap = ratio == 4 ? 2 : 1;
  return 2 * overlap * ratio * compressor_width(ratio, dim);
}

void add_attention(FamilyContext& context, const V4Dims& dims, MixerSpec mixer) {
  ArchitectureBuilder& builder = context.builder;
  const auto rows = SplitAxis::kRows;
  builder.vector("attn.attn_sink", Part::kAttention, dims.heads, Split::kHeads, dims.heads);
  builder.matrix("attn.wq_a", Part::kAttention, dims.q_rank, dims.hidden);
  builder.vector("attn.q_norm", Part::kAttention, dims.q_rank);
  builder.matrix("attn.wq_b", Part::kAttention, dims.heads * dims.head_dim, dims.q_rank,
                 Split::kHeads, rows, dims.heads);
  builder.matrix("attn.wkv", Part::kAttention, dims.head_dim, dims.hidden);
  builder.vector("attn.kv_norm", Part::kAttention, dims.head_dim);
  builder.matrix("attn.wo_a", Part::kAttention, dims.o_groups * dims.o_rank,
                 dims.heads * dims.head_dim / dims.o_groups, Split::kHeads, rows, dims.o_groups);
  builder.matrix("attn.wo_b", Part::kAttention, dims.hidden, dims.o_groups * dims.o_rank,
                 Split::kHeads, SplitAxis::kCols, dims.o_groups);
  const std::int32_t ratio = mixer.compress_ratio;
  if (ratio > 0) {
    add_compressor(context, "attn.compressor", dims.hidden, ratio, dims.head_dim);
    mixer.state.ssm_elements = compressor_state(ratio, dims.head_dim);
  }
  if (ratio == 4) {
    builder.matrix("attn.indexer.wq_b", Part::kAttention,
                   std::int64_t{mixer.index_heads} * mixer.index_head_dim, dims.q_rank);
    builder.matrix("attn.indexer.weights_proj", Part::kAttention, mixer.index_heads, dims.hidden);
    add_compressor(context, "attn.indexer.compressor", dims.hidden, ratio, mixer.index_head_dim);
    mixer.state.ssm_elements += compressor_state(ratio, mixer.index_head_dim);
  } else {
    mixer.index_heads = mixer.index_head_dim = mixer.index_topk = 0;
  }
  builder.layer().mixer = mixer;
}

// Mixing weights of the residual streams, before attention and before the experts; FP32.
void add_hyper_connections(FamilyContext& context, const V4Dims& dims) {
  const std::int64_t mix = (2 + dims.streams) * dims.streams;
  for (const std::string_view side : {"hc_attn", "hc_ffn"}) {
    WeightGroup group;
    group.name = fmt::format("{}_fn", side);
    group.part = Part::kNorm;
    group.rows = mix;
    group.cols = dims.streams * dims.hidden;
    group.fixed_bits = 32;
    context.builder.add(group);
    group.name = fmt::format("{}_base", side);
    group.rows = 1;
    group.cols = mix + 3;
    context.builder.add(group);
  }
}

V4Dims read_dims(ArchitectureFields& fields, std::int64_t hidden_size) {
  V4Dims dims;
  dims.hidden = hidden_size;
  dims.heads = fields.need({"num_attention_heads"}, kHeadRange);
  dims.head_dim = fields.need({"head_dim"}, kHeadDimRange);
  dims.q_rank = fields.need({"q_lora_rank"}, kWidthRange);
  dims.o_rank = fields.need({"o_lora_rank"}, kWidthRange);
  dims.o_groups = fields.need({"o_groups"}, kHeadRange);
  dims.streams = fields.need({"hc_mult"}, {1, 64});
  return dims;
}

// Of every layer, without its compression.
MixerSpec read_mixer(ArchitectureFields& fields, const V4Dims& dims) {
  MixerSpec mixer;
  mixer.kind = MixerKind::kCompressed;
  mixer.num_heads = static_cast<std::int32_t>(dims.heads);
  mixer.num_kv_heads = fields.need32({"num_key_value_heads"}, {1, 1});
  mixer.qk_head_dim = mixer.v_head_dim = static_cast<std::int32_t>(dims.head_dim);
  mixer.has_shared_kv = true;
  mixer.window = fields.need32({"sliding_window"}, {1, INT32_MAX});
  mixer.q_lora_rank = static_cast<std::int32_t>(dims.q_rank);
  mixer.qk_rope_head_dim = fields.need32({"qk_rope_head_dim"}, kHeadDimRange);
  mixer.index_heads = fields.need32({"index_n_heads"}, kHeadRange);
  mixer.index_head_dim = fields.need32({"index_head_dim"}, kHeadDimRange);
  mixer.index_topk = fields.need32({"index_topk"}, {1, INT32_MAX});
  return mixer;
}

}  // namespace

void build_deepseek_v4(FamilyContext& context) {
  ArchitectureFields& fields = context.fields;
  Architecture& architecture = context.architecture;
  architecture.vocab_size = fields.need({"vocab_size"}, kVocabRange);
  architecture.hidden_size = fields.need({"hidden_size"}, kWidthRange);
  architecture.max_position_embeddings =
      fields.integer_or({"max_position_embeddings"}, 0, {0, kContextRange.high});
  const std::int32_t num_layers = fields.need32({"num_hidden_layers"}, kLayerRange);
  const V4Dims dims = read_dims(fields, architecture.hidden_size);
  MixerSpec mixer = read_mixer(fields, dims);
  const auto ratios = fields.integers("compress_ratios", {0, 1 << 20});
  if (!ratios) fields.add_missing("compress_ratios");
  const std::int64_t hash_layers = fields.need({"num_hash_layers"}, {0, kLayerRange.high});
  FfnSpec ffn = read_experts(context);
  ffn.expert_width = fields.need32({"moe_intermediate_size"}, kWidthRange);
  ffn.shared_width = checked_width(fields, "n_shared_experts",
                                   fields.need({"n_shared_experts"}, {0, 4096}) * ffn.expert_width);
  fields.require_complete();
  if (std::ssize(*ratios) < num_layers) {
    fields.fail("compress_ratios",
                fmt::format("{} entries for {} layers", ratios->size(), num_layers));
  }
  if (dims.heads * dims.head_dim % dims.o_groups != 0) {
    fields.fail("o_groups", fmt::format("{} does not divide the {} attention outputs",
                                        dims.o_groups, dims.heads * dims.head_dim));
  }
  ArchitectureBuilder& builder = context.builder;
  builder.embedding("embed");
  for (std::int32_t layer = 0; layer < num_layers; ++layer) {
    builder.begin_layer({}, fmt::format("layers.{}.", layer));
    builder.norm("attn_norm");
    mixer.compress_ratio = static_cast<std::int32_t>((*ratios)[static_cast<std::size_t>(layer)]);
    add_attention(context, dims, mixer);
    add_hyper_connections(context, dims);
    builder.norm("ffn_norm");
    MoeExtras extras;
    extras.router = "ffn.gate";
    extras.experts = "ffn.experts.0";
    extras.shared = "ffn.shared_experts";
    extras.has_correction_bias = layer >= hash_layers;
    builder.moe(ffn, extras);
    if (layer < hash_layers) {  // a table from token to experts, 64-bit
      WeightGroup table;
      table.name = "ffn.gate.tid2eid";
      table.part = Part::kRouter;
      table.rows = architecture.vocab_size;
      table.cols = ffn.top_k;
      table.fixed_bits = 64;
      builder.add(table);
    }
  }
  builder.end_layers();
  builder.final_norm("norm");
  builder.head("head");
  architecture.notes.emplace_back(
      "shapes of this family follow its reference inference code; no published parameter count "
      "confirms them, and the multi-token-prediction module is not counted");
}

}  // namespace moe::model
