// From an architecture and a layout to the numbers of a step that do not depend on the batch.

#include <algorithm>
#include <cmath>
#include <string>

#include "lib/planner/step_time.hpp"
#include "lib/planner/weights.hpp"

namespace moe::planner {
namespace {

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.rfind(prefix, 0) == 0;
}

// Elements of a weight on the fullest rank.
double rank_elements(const RankShare& share) {
  return static_cast<double>(share.count) * static_cast<double>(share.rows) *
         static_cast<double>(share.cols);
}

bool is_attention_mixer(model::MixerKind kind) {
  return kind == model::MixerKind::kGqa || kind == model::MixerKind::kMla ||
         kind == model::MixerKind::kCompressed;
}

AttentionShape attention_shape(const model::MixerSpec& mixer, const Layout& layout,
                               const KvOptions& kv) {
  AttentionShape shape;
  shape.num_layers = 1.0;
  shape.token_bytes = layer_token_bytes(mixer, layout, kv);
  shape.is_latent = mixer.kind == model::MixerKind::kMla;
  const double heads =
      std::max(1.0, static_cast<double>(mixer.num_heads) / static_cast<double>(layout.tp));
  if (shape.is_latent) {
    shape.decode_flops = 2.0 * heads * (2.0 * mixer.kv_lora_rank + mixer.qk_rope_head_dim);
    shape.prefill_flops =
        2.0 * heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim);
  } else {
    shape.decode_flops = 2.0 * heads * (mixer.qk_head_dim + mixer.v_head_dim);
    shape.prefill_flops = shape.decode_flops;
  }
  if (mixer.compress_ratio > 1) {
    shape.decode_flops /= mixer.compress_ratio;
    shape.prefill_flops /= mixer.compress_ratio;
  }
  if (mixer.window > 0) shape.max_context = mixer.window;
  if (mixer.chunk > 0) shape.max_context = mixer.chunk;
  if (mixer.index_heads > 0) {
    shape.max_context = mixer.index_topk;
    shape.index_bytes = mixer.index_head_dim;  // one FP8 key a token
    shape.index_flops = 2.0 * mixer.index_heads * mixer.index_head_dim;
  }
  return shape;
}

bool same_attention(const AttentionShape& a, const AttentionShape& b) {
  return a.max_context == b.max_context && a.token_bytes == b.token_bytes &&
         a.decode_flops == b.decode_flops && a.prefill_flops == b.prefill_flops &&
         a.index_flops == b.index_flops && a.is_latent == b.is_latent;
}

bool same_moe(const MoeShape& a, const MoeShape& b) {
  return a.num_experts == b.num_experts && a.top_k == b.top_k &&
         a.local_experts == b.local_experts && a.expert_bytes == b.expert_bytes &&
         a.token_flops == b.token_flops;
}

void add_mixers(const model::Architecture& architecture, const Layout& layout, const KvOptions& kv,
                StepProfile& profile) {
  double num_latent = 0.0;
  double num_full = 0.0;
  for (const model::LayerSpec& layer : architecture.layers) {
    if (layer.is_encoder) continue;
    profile.num_layers += 1.0;
    const model::MixerSpec& mixer = layer.mixer;
    if (mixer.kind == model::MixerKind::kNone) continue;
    if (!is_attention_mixer(mixer.kind)) {
      profile.num_state_layers += 1.0;
      profile.state_bytes += static_cast<double>(layer_state_bytes(mixer, layout, kv));
      profile.num_products += 2.0;
      continue;
    }
    const AttentionShape shape = attention_shape(mixer, layout, kv);
    const auto it =
        std::find_if(profile.attention.begin(), profile.attention.end(),
                     [&](const AttentionShape& other) { return same_attention(shape, other); });
    if (it == profile.attention.end()) {
      profile.attention.push_back(shape);
    } else {
      it->num_layers += 1.0;
    }
    if (mixer.index_heads > 0) profile.num_indexed_layers += 1.0;
    num_full += 1.0;
    if (shape.is_latent) num_latent += 1.0;
    // Products that cannot be fused: latent attention goes down and up for queries and cache.
    profile.num_products += shape.is_latent ? 5.0 : 2.0;
  }
  profile.mixer = profile.num_state_layers > num_full ? "linear" : num_latent > 0.0 ? "mla" : "gqa";
}

void add_dense_flops(const std::string& format, double flops, bool is_head, StepProfile& profile) {
  auto it = std::find_if(profile.dense_flops.begin(), profile.dense_flops.end(),
                         [&](const DenseFlops& other) { return other.format == format; });
  if (it == profile.dense_flops.end()) {
    it = profile.dense_flops.insert(it, DenseFlops{.format = format});
  }
  it->decode += flops;
  if (!is_head) it->prefill += flops;
}

void add_weights(const model::Architecture& architecture, const Layout& layout,
                 StepProfile& profile) {
  std::vector<MoeShape> layers(architecture.layers.size());
  double best_dense = 0.0;
  for (const model::WeightGroup& group : architecture.weights) {
    if (group.part == model::Part::kEmbedding && !architecture.has_tied_head) continue;
    if (group.layer >= 0 && architecture.layers[static_cast<std::size_t>(group.layer)].is_encoder) {
      continue;
    }
    const RankShare share = rank_share(group, layout);
    const double elements = rank_elements(share);
    if (group.part == model::Part::kRoutedExperts && group.layer >= 0) {
      MoeShape& shape = layers[static_cast<std::size_t>(group.layer)];
      shape.local_experts = std::max(shape.local_experts, static_cast<double>(share.count));
      if (share.count > 0) {
        shape.expert_bytes += static_cast<double>(share.bytes) / static_cast<double>(share.count);
        shape.token_flops += 2.0 * elements / static_cast<double>(share.count);
      }
      if (group.is_linear) profile.expert_format = group.format.name;
      continue;
    }
    profile.dense_bytes += static_cast<double>(share.bytes);
    if (group.rows <= 1) continue;
    const bool is_head = group.part == model::Part::kHead || group.part == model::Part::kEmbedding;
    add_dense_flops(group.format.name, 2.0 * elements, is_head, profile);
    if (group.part == model::Part::kAttention && elements > best_dense) {
      best_dense = elements;
      profile.dense_format = group.format.name;
    }
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const model::FfnSpec& ffn = architecture.layers[i].ffn;
    if (ffn.kind != model::FfnKind::kMoe || architecture.layers[i].is_encoder) continue;
    MoeShape shape = layers[i];
    shape.num_layers = 1.0;
    shape.num_experts = ffn.num_experts;
    shape.top_k = ffn.top_k;
    const auto it = std::find_if(profile.moe.begin(), profile.moe.end(),
                                 [&](const MoeShape& other) { return same_moe(shape, other); });
    if (it == profile.moe.end()) {
      profile.moe.push_back(shape);
    } else {
      it->num_layers += 1.0;
    }
  }
}

}  // namespace

std::string precision_class(const model::WeightFormat& format) {
  if (format.name == "mxfp4" || format.name == "nvfp4") return "fp4";
  if (starts_with(format.name, "fp8")) return "fp8";
  if (format.bits <= 5.5) return "int4";
  if (format.bits < 15.0) return "int8";
  return "bf16";
}

StepProfile make_step_profile(const model::Architecture& architecture, const Layout& layout,
                              const KvOptions& kv) {
  StepProfile profile;
  profile.hidden_size = static_cast<double>(architecture.hidden_size);
  add_mixers(architecture, layout, kv, profile);
  add_weights(architecture, layout, profile);
  if (profile.expert_format.empty()) profile.expert_format = architecture.quant.linear.name;
  if (profile.dense_format.empty()) profile.dense_format = architecture.quant.dense.name;
  profile.precision = precision_class(architecture.quant.expert);
  return profile;
}

}  // namespace moe::planner
