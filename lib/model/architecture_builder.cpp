#include "lib/model/architecture_builder.hpp"

#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"

namespace moe::model {
namespace {

constexpr std::int64_t wide(std::int32_t value) {
  return value;
}

}  // namespace

void ArchitectureBuilder::begin_layer(const LayerSpec& spec, std::string prefix) {
  layer_ = static_cast<std::int32_t>(architecture_.layers.size());
  architecture_.layers.push_back(spec);
  prefix_ = std::move(prefix);
}

void ArchitectureBuilder::end_layers() {
  layer_ = -1;
  prefix_.clear();
}

LayerSpec& ArchitectureBuilder::layer() {
  MOE_CHECK(layer_ >= 0);
  return architecture_.layers[static_cast<std::size_t>(layer_)];
}

void ArchitectureBuilder::add(WeightGroup group) {
  group.name.insert(0, prefix_);
  group.layer = layer_;
  architecture_.weights.push_back(std::move(group));
}

void ArchitectureBuilder::matrix(std::string_view name, Part part, std::int64_t rows,
                                 std::int64_t cols, Split split, SplitAxis axis,
                                 std::int64_t units) {
  WeightGroup group;
  group.name = name;
  group.part = part;
  group.rows = rows;
  group.cols = cols;
  group.split = split;
  group.axis = axis;
  group.units = units;
  group.is_linear = true;
  add(std::move(group));
}

void ArchitectureBuilder::vector(std::string_view name, Part part, std::int64_t size, Split split,
                                 std::int64_t units) {
  if (size == 0) return;
  WeightGroup group;
  group.name = name;
  group.part = part;
  group.cols = size;
  group.split = split;
  group.axis = SplitAxis::kCols;
  group.units = units;
  add(std::move(group));
}

void ArchitectureBuilder::embedding(std::string_view name) {
  WeightGroup group;
  group.name = name;
  group.part = Part::kEmbedding;
  group.rows = architecture_.vocab_size;
  group.cols = architecture_.hidden_size;
  group.split = Split::kVocab;
  group.units = architecture_.vocab_size;
  add(std::move(group));
}

void ArchitectureBuilder::head(std::string_view name) {
  if (architecture_.has_tied_head) return;
  WeightGroup group;
  group.name = name;
  group.part = Part::kHead;
  group.rows = architecture_.vocab_size;
  group.cols = architecture_.hidden_size;
  group.split = Split::kVocab;
  group.units = architecture_.vocab_size;
  add(std::move(group));
}

void ArchitectureBuilder::final_norm(std::string_view name, std::int64_t vectors) {
  norm(name, vectors);
}

void ArchitectureBuilder::norm(std::string_view name, std::int64_t vectors) {
  vector(name, Part::kNorm, vectors * architecture_.hidden_size);
}

void ArchitectureBuilder::projections(const MixerSpec& mixer, const AttentionExtras& extras,
                                      const std::string& base) {
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t heads = mixer.num_heads;
  const std::int64_t kv_heads = mixer.num_kv_heads;
  const std::int64_t q_width = heads * mixer.qk_head_dim;
  const std::int64_t k_width = kv_heads * mixer.qk_head_dim;
  const std::int64_t v_width = kv_heads * mixer.v_head_dim;
  const std::int64_t q_factor = extras.has_output_gate ? 2 : 1;
  matrix(base + ".q_proj", Part::kAttention, q_factor * q_width, hidden, Split::kHeads,
         SplitAxis::kRows, heads);
  matrix(base + ".k_proj", Part::kAttention, k_width, hidden, Split::kKvHeads, SplitAxis::kRows,
         kv_heads);
  if (!mixer.has_shared_kv) {
    matrix(base + ".v_proj", Part::kAttention, v_width, hidden, Split::kKvHeads, SplitAxis::kRows,
           kv_heads);
  }
  matrix(base + ".o_proj", Part::kAttention, hidden, heads * mixer.v_head_dim, Split::kHeads,
         SplitAxis::kCols, heads);
  if (extras.has_qkv_bias) {
    vector(base + ".q_proj.bias", Part::kAttention, q_width, Split::kHeads, heads);
    vector(base + ".k_proj.bias", Part::kAttention, k_width, Split::kKvHeads, kv_heads);
    vector(base + ".v_proj.bias", Part::kAttention, v_width, Split::kKvHeads, kv_heads);
  }
  if (extras.has_o_bias) vector(base + ".o_proj.bias", Part::kAttention, hidden);
  vector(base + ".q_norm", Part::kAttention, extras.q_norm);
  vector(base + ".k_norm", Part::kAttention, extras.k_norm);
  if (extras.has_sinks) vector(base + ".sinks", Part::kAttention, heads, Split::kHeads, heads);
}

void ArchitectureBuilder::gqa(const MixerSpec& mixer, const AttentionExtras& extras,
                              std::string_view name) {
  layer().mixer = mixer;
  projections(mixer, extras, std::string(name));
}

void ArchitectureBuilder::cross_attention(const MixerSpec& mixer, const AttentionExtras& extras,
                                          std::string_view name) {
  layer().mixer.has_cross_attention = true;
  projections(mixer, extras, std::string(name));
}

void ArchitectureBuilder::mla(const MixerSpec& mixer) {
  layer().mixer = mixer;
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t heads = mixer.num_heads;
  const std::int64_t q_width = heads * mixer.qk_head_dim;
  if (mixer.q_lora_rank > 0) {
    matrix("self_attn.q_a_proj", Part::kAttention, mixer.q_lora_rank, hidden);
    vector("self_attn.q_a_layernorm", Part::kAttention, mixer.q_lora_rank);
    matrix("self_attn.q_b_proj", Part::kAttention, q_width, mixer.q_lora_rank, Split::kHeads,
           SplitAxis::kRows, heads);
  } else {
    matrix("self_attn.q_proj", Part::kAttention, q_width, hidden, Split::kHeads, SplitAxis::kRows,
           heads);
  }
  matrix("self_attn.kv_a_proj_with_mqa", Part::kAttention,
         wide(mixer.kv_lora_rank) + mixer.qk_rope_head_dim, hidden);
  vector("self_attn.kv_a_layernorm", Part::kAttention, mixer.kv_lora_rank);
  matrix("self_attn.kv_b_proj", Part::kAttention,
         heads * (wide(mixer.qk_nope_head_dim) + mixer.v_head_dim), mixer.kv_lora_rank,
         Split::kHeads, SplitAxis::kRows, heads);
  matrix("self_attn.o_proj", Part::kAttention, hidden, heads * mixer.v_head_dim, Split::kHeads,
         SplitAxis::kCols, heads);
}

// The lightning indexer of DeepSeek-V3.2: query from the low-rank query, one shared key with a
// LayerNorm, one weight per head. Replicated on every rank.
void ArchitectureBuilder::indexer_of(std::int32_t layer) {
  const std::int64_t hidden = architecture_.hidden_size;
  const MixerSpec& mixer = architecture_.layers[static_cast<std::size_t>(layer)].mixer;
  layer_ = layer;
  prefix_ = fmt::format("model.layers.{}.", layer);
  matrix("self_attn.indexer.wq_b", Part::kAttention, wide(mixer.index_heads) * mixer.index_head_dim,
         mixer.q_lora_rank);
  matrix("self_attn.indexer.wk", Part::kAttention, mixer.index_head_dim, hidden);
  vector("self_attn.indexer.k_norm", Part::kAttention, 2 * wide(mixer.index_head_dim));
  matrix("self_attn.indexer.weights_proj", Part::kAttention, mixer.index_heads, hidden);
  end_layers();
}

void ArchitectureBuilder::delta_net(const DeltaNetDims& dims, bool has_split_projections) {
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t keys = dims.key_heads * dims.key_dim;
  const std::int64_t values = dims.value_heads * dims.value_dim;
  const std::int64_t heads = dims.key_heads;
  MixerSpec& mixer = layer().mixer;
  mixer = {};
  mixer.kind = MixerKind::kDeltaNet;
  mixer.num_heads = static_cast<std::int32_t>(dims.value_heads);
  mixer.num_kv_heads = static_cast<std::int32_t>(dims.key_heads);
  mixer.qk_head_dim = static_cast<std::int32_t>(dims.key_dim);
  mixer.v_head_dim = static_cast<std::int32_t>(dims.value_dim);
  mixer.state.conv_elements = (2 * keys + values) * (dims.conv_kernel - 1);
  mixer.state.ssm_elements = dims.value_heads * dims.key_dim * dims.value_dim;
  mixer.state.ssm_bits = dims.state_bits;
  mixer.state.heads = dims.key_heads;
  const auto rows = [&](std::string_view name, std::int64_t size) {
    matrix(name, Part::kAttention, size, hidden, Split::kHeads, SplitAxis::kRows, heads);
  };
  if (has_split_projections) {
    rows("linear_attn.in_proj_qkv", 2 * keys + values);
    rows("linear_attn.in_proj_z", values);
    rows("linear_attn.in_proj_b", dims.value_heads);
    rows("linear_attn.in_proj_a", dims.value_heads);
  } else {
    rows("linear_attn.in_proj_qkvz", 2 * keys + 2 * values);
    rows("linear_attn.in_proj_ba", 2 * dims.value_heads);
  }
  vector("linear_attn.conv1d", Part::kAttention, (2 * keys + values) * dims.conv_kernel,
         Split::kHeads, heads);
  vector("linear_attn.A_log", Part::kAttention, dims.value_heads, Split::kHeads, heads);
  vector("linear_attn.dt_bias", Part::kAttention, dims.value_heads, Split::kHeads, heads);
  vector("linear_attn.norm", Part::kAttention, dims.value_dim);
  matrix("linear_attn.out_proj", Part::kAttention, hidden, values, Split::kHeads, SplitAxis::kCols,
         heads);
}

void ArchitectureBuilder::mamba1(const MambaDims& dims) {
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t inner = dims.inner;
  MixerSpec& mixer = layer().mixer;
  mixer = {};
  mixer.kind = MixerKind::kMamba1;
  mixer.state.conv_elements = inner * (dims.conv_kernel - 1);
  mixer.state.ssm_elements = inner * dims.state;
  mixer.state.ssm_bits = dims.state_bits;
  mixer.state.heads = inner;
  matrix("mamba.in_proj", Part::kAttention, 2 * inner, hidden, Split::kHeads, SplitAxis::kRows,
         inner);
  vector("mamba.conv1d", Part::kAttention, inner * dims.conv_kernel, Split::kHeads, inner);
  if (dims.has_conv_bias) {
    vector("mamba.conv1d.bias", Part::kAttention, inner, Split::kHeads, inner);
  }
  matrix("mamba.x_proj", Part::kAttention, dims.dt_rank + 2 * dims.state, inner, Split::kHeads,
         SplitAxis::kCols, inner);
  matrix("mamba.dt_proj", Part::kAttention, inner, dims.dt_rank, Split::kHeads, SplitAxis::kRows,
         inner);
  vector("mamba.dt_proj.bias", Part::kAttention, inner, Split::kHeads, inner);
  vector("mamba.A_log", Part::kAttention, inner * dims.state, Split::kHeads, inner);
  vector("mamba.D", Part::kAttention, inner, Split::kHeads, inner);
  matrix("mamba.out_proj", Part::kAttention, hidden, inner, Split::kHeads, SplitAxis::kCols, inner);
  if (dims.has_proj_bias) {
    vector("mamba.in_proj.bias", Part::kAttention, 2 * inner, Split::kHeads, inner);
    vector("mamba.out_proj.bias", Part::kAttention, hidden);
  }
  if (dims.has_inner_norms) {
    vector("mamba.layernorms", Part::kAttention, dims.dt_rank + 2 * dims.state);
  }
}

void ArchitectureBuilder::mamba2(const MambaDims& dims) {
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t inner = dims.inner;
  const std::int64_t conv = inner + 2 * dims.groups * dims.state;
  MixerSpec& mixer = layer().mixer;
  mixer = {};
  mixer.kind = MixerKind::kMamba2;
  mixer.num_heads = static_cast<std::int32_t>(dims.heads);
  mixer.state.conv_elements = conv * (dims.conv_kernel - 1);
  mixer.state.ssm_elements = inner * dims.state;
  mixer.state.ssm_bits = dims.state_bits;
  mixer.state.heads = dims.heads;
  matrix("mixer.in_proj", Part::kAttention, inner + conv + dims.heads, hidden, Split::kHeads,
         SplitAxis::kRows, dims.heads);
  vector("mixer.conv1d", Part::kAttention, conv * dims.conv_kernel, Split::kHeads, dims.heads);
  if (dims.has_conv_bias) {
    vector("mixer.conv1d.bias", Part::kAttention, conv, Split::kHeads, dims.heads);
  }
  for (const std::string_view name : {"mixer.A_log", "mixer.D", "mixer.dt_bias"}) {
    vector(name, Part::kAttention, dims.heads, Split::kHeads, dims.heads);
  }
  vector("mixer.norm", Part::kAttention, inner, Split::kHeads, dims.heads);
  matrix("mixer.out_proj", Part::kAttention, hidden, inner, Split::kHeads, SplitAxis::kCols,
         dims.heads);
  if (dims.has_proj_bias) {
    vector("mixer.in_proj.bias", Part::kAttention, inner + conv + dims.heads, Split::kHeads,
           dims.heads);
    vector("mixer.out_proj.bias", Part::kAttention, hidden);
  }
}

// Linear attention with a fixed decay per head: query, key, value, an output gate and the output
// projection, with a norm before the gate.
void ArchitectureBuilder::lightning(std::int32_t heads, std::int32_t head_dim) {
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t width = wide(heads) * head_dim;
  MixerSpec& mixer = layer().mixer;
  mixer = {};
  mixer.kind = MixerKind::kLightning;
  mixer.num_heads = mixer.num_kv_heads = heads;
  mixer.qk_head_dim = mixer.v_head_dim = head_dim;
  mixer.state.ssm_elements = width * head_dim;
  mixer.state.heads = heads;
  matrix("self_attn.qkv_proj", Part::kAttention, 3 * width, hidden, Split::kHeads, SplitAxis::kRows,
         heads);
  matrix("self_attn.output_gate", Part::kAttention, width, hidden, Split::kHeads, SplitAxis::kRows,
         heads);
  matrix("self_attn.out_proj", Part::kAttention, hidden, width, Split::kHeads, SplitAxis::kCols,
         heads);
  vector("self_attn.norm", Part::kAttention, width, Split::kHeads, heads);
}

void ArchitectureBuilder::dense(std::int32_t width, bool is_gated, std::string_view name,
                                bool has_bias) {
  FfnSpec& ffn = layer().ffn;
  if (ffn.kind != FfnKind::kMoe) ffn.kind = FfnKind::kDense;
  ffn.dense_width = width;
  if (ffn.kind == FfnKind::kDense) ffn.is_gated = is_gated;
  const std::string base(name);
  const std::int64_t hidden = architecture_.hidden_size;
  if (is_gated) {
    matrix(base + ".gate_proj", Part::kDense, width, hidden, Split::kWidth, SplitAxis::kRows,
           width);
  }
  matrix(base + ".up_proj", Part::kDense, width, hidden, Split::kWidth, SplitAxis::kRows, width);
  matrix(base + ".down_proj", Part::kDense, hidden, width, Split::kWidth, SplitAxis::kCols, width);
  if (has_bias) {
    vector(base + ".up_proj.bias", Part::kDense, width, Split::kWidth, width);
    vector(base + ".down_proj.bias", Part::kDense, hidden);
  }
}

void ArchitectureBuilder::moe(const FfnSpec& ffn, const MoeExtras& extras) {
  const std::int32_t dense_width = layer().ffn.dense_width;
  layer().ffn = ffn;
  if (ffn.dense_width == 0) layer().ffn.dense_width = dense_width;
  const std::int64_t hidden = architecture_.hidden_size;
  const std::int64_t experts = ffn.num_experts;
  const std::int64_t input = ffn.expert_input > 0 ? wide(ffn.expert_input) : hidden;
  layer().ffn.expert_input = static_cast<std::int32_t>(input);
  const std::string router(extras.router);
  const auto add_router = [&](std::string name, std::int64_t rows, std::int64_t cols,
                              std::int32_t bits) {
    WeightGroup group;
    group.name = std::move(name);
    group.part = Part::kRouter;
    group.rows = rows;
    group.cols = cols;
    group.fixed_bits = bits;
    add(std::move(group));
  };
  add_router(router, experts, hidden, extras.router_bits);
  if (extras.has_router_bias) add_router(router + ".bias", 1, experts, extras.router_bits);
  if (extras.has_correction_bias) add_router(router + ".e_score_correction_bias", 1, experts, 32);
  const auto add_expert = [&](std::string_view name, std::int64_t rows, std::int64_t cols,
                              SplitAxis axis, std::int64_t units, bool is_linear) {
    WeightGroup group;
    group.name = fmt::format("{}.{}", extras.experts, name);
    group.part = Part::kRoutedExperts;
    group.count = experts;
    group.rows = rows;
    group.cols = cols;
    group.split = Split::kExperts;
    group.axis = axis;
    group.units = units;
    group.is_linear = is_linear;
    add(std::move(group));
  };
  const std::int64_t width = ffn.expert_width;
  if (ffn.is_gated) add_expert("gate_proj", width, input, SplitAxis::kRows, width, true);
  add_expert("up_proj", width, input, SplitAxis::kRows, width, true);
  add_expert("down_proj", input, width, SplitAxis::kCols, width, true);
  if (extras.has_bias) {
    add_expert("up_proj.bias", 1, width, SplitAxis::kCols, width, false);
    add_expert("down_proj.bias", 1, input, SplitAxis::kCols, 1, false);
  }
  if (ffn.shared_width == 0) return;
  const std::string shared(extras.shared);
  const std::int64_t shared_width = ffn.shared_width;
  const auto add_shared = [&](std::string_view name, std::int64_t rows, std::int64_t cols,
                              SplitAxis axis) {
    matrix(shared + std::string(name), Part::kSharedExperts, rows, cols, Split::kWidth, axis,
           shared_width);
  };
  if (ffn.is_gated) add_shared(".gate_proj", shared_width, hidden, SplitAxis::kRows);
  add_shared(".up_proj", shared_width, hidden, SplitAxis::kRows);
  add_shared(".down_proj", hidden, shared_width, SplitAxis::kCols);
  if (extras.has_shared_gate) vector("mlp.shared_expert_gate", Part::kSharedExperts, hidden);
}

void ArchitectureBuilder::mtp(std::int32_t num, bool has_copies) {
  if (num <= 0) return;
  const auto last = static_cast<std::int32_t>(architecture_.layers.size()) - 1;
  const std::int64_t hidden = architecture_.hidden_size;
  for (std::int32_t module = 0; module < num; ++module) {
    const std::string prefix = fmt::format("model.layers.{}.", last + 1 + module);
    const auto place = [&](WeightGroup group) {
      group.layer = -1;
      architecture_.mtp_weights.push_back(std::move(group));
    };
    for (const WeightGroup& weight : architecture_.weights) {
      if (weight.layer != last) continue;
      WeightGroup copy = weight;
      const std::size_t at = copy.name.find(fmt::format("layers.{}.", last));
      if (at != std::string::npos) {
        copy.name = prefix + copy.name.substr(at + fmt::format("layers.{}.", last).size());
      }
      place(std::move(copy));
    }
    WeightGroup projection;
    projection.name = prefix + "eh_proj";
    projection.part = Part::kDense;
    projection.rows = hidden;
    projection.cols = 2 * hidden;
    place(projection);
    WeightGroup norms;
    norms.name = prefix + "norms";
    norms.part = Part::kNorm;
    norms.cols = 3 * hidden;
    place(norms);
    if (!has_copies) continue;
    for (const auto& [name, part] :
         {std::pair{"embed_tokens", Part::kEmbedding}, {"shared_head.head", Part::kHead}}) {
      WeightGroup copy;
      copy.name = prefix + name;
      copy.part = part;
      copy.rows = architecture_.vocab_size;
      copy.cols = hidden;
      copy.split = Split::kVocab;
      copy.units = architecture_.vocab_size;
      place(copy);
    }
  }
}

}  // namespace moe::model
