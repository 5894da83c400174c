#include "lib/planner/kv.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"

namespace moe::planner {
namespace {

using model::LayerSpec;
using model::MixerKind;
using model::MixerSpec;

constexpr std::int64_t kLlamaCppPadding = 256;  // cells, with flash attention
// An FP8 entry of the sparse-attention indexer carries one FP32 scale.
constexpr std::int32_t kIndexScaleBytes = 4;

std::int64_t local_kv_heads(const MixerSpec& mixer, const Layout& layout) {
  return std::max<std::int64_t>(1, div_ceil(mixer.num_kv_heads, layout.tp));
}

double heads_bytes(const KvDtype& dtype, double heads, double key_dim, double value_dim) {
  const double tensors = value_dim > 0.0 ? 2.0 : 1.0;
  return (heads * (key_dim * dtype.bits + value_dim * dtype.value_bits_or_same()) +
          heads * tensors * dtype.scale_bits_per_head) /
         8.0;
}

double latent_bytes(const MixerSpec& mixer, const KvDtype& dtype) {
  if (dtype.is_packed_latent) {
    return static_cast<double>(mixer.kv_lora_rank + 4 * div_ceil(mixer.kv_lora_rank, 128) +
                               2 * mixer.qk_rope_head_dim);
  }
  return (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * dtype.bits / 8.0;
}

double index_bytes(const MixerSpec& mixer) {
  return mixer.index_heads > 0 ? mixer.index_head_dim + kIndexScaleBytes : 0.0;
}

// One entry of DeepSeek-V4's cache, of a token or of a compressed group.
double entry_bytes(const MixerSpec& mixer, const KvDtype& dtype) {
  if (dtype.is_packed_latent) {
    const std::int64_t plain = mixer.qk_head_dim - mixer.qk_rope_head_dim;
    return static_cast<double>(plain + 2 * mixer.qk_rope_head_dim + div_ceil(plain, 64) + 1);
  }
  return mixer.qk_head_dim * dtype.bits / 8.0;
}

bool has_cache(const MixerSpec& mixer) {
  return mixer.kind == MixerKind::kGqa || mixer.kind == MixerKind::kMla ||
         mixer.kind == MixerKind::kCompressed;
}

bool is_bounded(const MixerSpec& mixer) {
  return mixer.window > 0 || mixer.chunk > 0;
}

// Tokens that a bounded layer keeps of a request of `tokens`.
std::int64_t bounded_tokens(const MixerSpec& mixer, const KvOptions& options, std::int64_t tokens,
                            std::int64_t block) {
  const std::int64_t limit = mixer.window > 0 ? mixer.window : mixer.chunk;
  switch (options.manager) {
    case KvManager::kHybrid: {
      // A chunked layer starts a new block at a chunk; a window may begin inside of one.
      const std::int64_t reach = mixer.window > 0 ? limit - 1 + options.max_batched_tokens
                                                  : limit + options.max_batched_tokens;
      const std::int64_t blocks =
          div_ceil(std::min(reach, tokens), block) + (mixer.window > 0 ? 1 : 0);
      return blocks * block;
    }
    case KvManager::kUniform:
      return align_up(tokens, block);
    case KvManager::kLlamaCpp: {
      const std::int64_t sequences = options.is_unified ? options.num_sequences : 1;
      const std::int64_t cells =
          align_up(limit * sequences + options.max_batched_tokens, kLlamaCppPadding);
      return std::min(align_up(tokens, kLlamaCppPadding), cells);
    }
    case KvManager::kSglangRatio:
      return align_up(
          static_cast<std::int64_t>(std::ceil(static_cast<double>(tokens) * options.swa_ratio)),
          block);
  }
  MOE_CHECK(false);
}

// vLLM: the tokens of an attention block grow until its page holds the state of a recurrent layer.
std::int64_t hybrid_block(const model::Architecture& architecture, const Layout& layout,
                          const KvOptions& options) {
  std::int64_t block = options.block_tokens;
  if (!options.pads_hybrid_pages || options.manager != KvManager::kHybrid) return block;
  std::int64_t state = 0;
  double token = 0.0;
  for (const LayerSpec& layer : architecture.layers) {
    if (layer.is_encoder) continue;
    if (layer.mixer.kind != MixerKind::kCompressed) {
      state = std::max(state, layer_state_bytes(layer.mixer, layout, options));
    }
    if (has_cache(layer.mixer)) {
      token = std::max(token, layer_token_bytes(layer.mixer, layout, options));
    }
  }
  if (state == 0 || token <= 0.0) return block;
  const auto tokens = static_cast<std::int64_t>(std::ceil(static_cast<double>(state) / token));
  return std::max(block, align_up(tokens, block));
}

double layer_request_bytes(const LayerSpec& layer, const Layout& layout, const KvOptions& options,
                           std::int64_t tokens, std::int64_t block) {
  const MixerSpec& mixer = layer.mixer;
  const std::int64_t padded = options.manager == KvManager::kLlamaCpp
                                  ? align_up(tokens, kLlamaCppPadding)
                                  : align_up(tokens, block);
  double bytes = static_cast<double>(layer_state_bytes(mixer, layout, options));
  if (mixer.kind == MixerKind::kCompressed) {
    const std::int64_t window = align_up(std::min<std::int64_t>(mixer.window, tokens), block);
    bytes += static_cast<double>(window) * entry_bytes(mixer, options.dtype);
    bytes += static_cast<double>(padded) * layer_token_bytes(mixer, layout, options);
  } else if (has_cache(mixer)) {
    const std::int64_t kept =
        is_bounded(mixer) ? bounded_tokens(mixer, options, tokens, block) : padded;
    bytes += static_cast<double>(kept) * layer_token_bytes(mixer, layout, options);
  }
  if (mixer.has_cross_attention) {
    bytes += static_cast<double>(options.source_tokens) *
             heads_bytes(options.dtype, static_cast<double>(local_kv_heads(mixer, layout)),
                         mixer.qk_head_dim, mixer.v_head_dim);
  }
  return bytes;
}

}  // namespace

KvDtype parse_kv_dtype(std::string_view name) {
  struct Named {
    std::string_view name;
    double bits;
    double scale_bits;
    bool is_packed;
  };
  static constexpr auto kTypes = std::to_array<Named>({
      {"auto", 16, 0, false},    {"bf16", 16, 0, false},    {"bfloat16", 16, 0, false},
      {"fp16", 16, 0, false},    {"float16", 16, 0, false}, {"f16", 16, 0, false},
      {"fp32", 32, 0, false},    {"f32", 32, 0, false},     {"fp8", 8, 0, false},
      {"fp8_e5m2", 8, 0, false}, {"fp8_e4m3", 8, 0, false}, {"fp8_ds_mla", 8, 0, true},
      {"int8", 8, 32, false},    {"int4", 4, 32, false},    {"q8_0", 8.5, 0, false},
      {"q5_1", 6, 0, false},     {"q5_0", 5.5, 0, false},   {"q4_1", 5, 0, false},
      {"q4_0", 4.5, 0, false},
  });
  std::string known;
  for (const Named& type : kTypes) {
    if (type.name == name) {
      KvDtype dtype;
      dtype.name = name == "auto" ? "bf16" : std::string(name);
      dtype.bits = type.bits;
      dtype.scale_bits_per_head = type.scale_bits;
      dtype.is_packed_latent = type.is_packed;
      return dtype;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
  }
  throw Error(ErrorCode::kUsage,
              fmt::format("cache dtype \"{}\" is not known; known: {}", printable(name), known));
}

KvManager parse_kv_manager(std::string_view name) {
  if (name == "hybrid") return KvManager::kHybrid;
  if (name == "uniform") return KvManager::kUniform;
  if (name == "llamacpp") return KvManager::kLlamaCpp;
  if (name == "sglang-ratio") return KvManager::kSglangRatio;
  throw Error(ErrorCode::kUsage,
              fmt::format("cache manager \"{}\" is not known; known: hybrid, uniform, llamacpp, "
                          "sglang-ratio",
                          printable(name)));
}

double layer_token_bytes(const MixerSpec& mixer, const Layout& layout, const KvOptions& options) {
  switch (mixer.kind) {
    case MixerKind::kGqa:
      return heads_bytes(options.dtype, static_cast<double>(local_kv_heads(mixer, layout)),
                         mixer.qk_head_dim, mixer.has_shared_kv ? 0.0 : mixer.v_head_dim);
    case MixerKind::kMla:
      if (options.is_mla_expanded) {
        return heads_bytes(options.dtype, static_cast<double>(div_ceil(mixer.num_heads, layout.tp)),
                           mixer.qk_head_dim, mixer.v_head_dim);
      }
      return latent_bytes(mixer, options.dtype) + index_bytes(mixer);
    case MixerKind::kCompressed:
      if (mixer.compress_ratio == 0) return 0.0;
      return (entry_bytes(mixer, options.dtype) + index_bytes(mixer)) / mixer.compress_ratio;
    case MixerKind::kNone:
    case MixerKind::kDeltaNet:
    case MixerKind::kMamba1:
    case MixerKind::kMamba2:
    case MixerKind::kLightning:
      return 0.0;
  }
  MOE_CHECK(false);
}

std::int64_t layer_state_bytes(const MixerSpec& mixer, const Layout& layout,
                               const KvOptions& options) {
  const model::StateSpec& state = mixer.state;
  const std::int64_t bits =
      state.conv_elements * options.activation_bits + state.ssm_elements * state.ssm_bits;
  if (bits == 0) return 0;
  const std::int64_t local = div_ceil(state.heads, layout.tp);
  return div_ceil(bits / 8 * local, state.heads);
}

KvPerToken kv_per_token(const model::Architecture& architecture, const Layout& layout,
                        const KvOptions& options, StageRange layers) {
  KvPerToken sum;
  for (std::int32_t at = layers.begin; at < layers.end; ++at) {
    const LayerSpec& layer = architecture.layers[static_cast<std::size_t>(at)];
    if (layer.is_encoder) continue;
    const double bytes = layer_token_bytes(layer.mixer, layout, options);
    const bool is_windowed = layer.mixer.kind != MixerKind::kCompressed && is_bounded(layer.mixer);
    (is_windowed ? sum.windowed : sum.growing) += bytes;
    sum.state += layer_state_bytes(layer.mixer, layout, options);
  }
  return sum;
}

std::int64_t request_bytes(const model::Architecture& architecture, const Layout& layout,
                           const KvOptions& options, StageRange layers, std::int64_t tokens) {
  MOE_CHECK(tokens >= 0 && options.block_tokens > 0);
  const std::int64_t block = hybrid_block(architecture, layout, options);
  double bytes = 0.0;
  for (std::int32_t at = layers.begin; at < layers.end; ++at) {
    const LayerSpec& layer = architecture.layers[static_cast<std::size_t>(at)];
    if (layer.is_encoder) continue;
    bytes += layer_request_bytes(layer, layout, options, tokens, block);
  }
  const auto num_layers = static_cast<std::int32_t>(architecture.layers.size());
  if (options.draft_layers > 0 && layers.end == num_layers) {
    bytes += options.draft_layers *
             layer_request_bytes(architecture.layers.back(), layout, options, tokens, block);
  }
  return static_cast<std::int64_t>(std::ceil(bytes));
}

}  // namespace moe::planner
