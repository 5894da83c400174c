#pragma once

// Bytes of KV cache and recurrent state: per token, per request, and how many requests a pool
// holds, by the rules of the engine that manages it.

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/model/architecture.hpp"
#include "lib/planner/layout.hpp"

namespace moe::planner {

enum class KvManager : std::uint8_t {
  kHybrid,       // vLLM: window layers keep window + batch, rounded to blocks
  kUniform,      // every attention layer keeps the whole sequence
  kLlamaCpp,     // one window cache of window + micro-batch cells a sequence, padded to 256
  kSglangRatio,  // a separate pool for window layers, sized by a ratio of the full pool
};

// A cache dtype: bits of one element and what its scales add.
struct KvDtype {
  std::string name = "bf16";
  double bits = 16.0;       // GGUF types: scales included (q8_0: 8.5)
  double value_bits = 0.0;  // of the value tensor where it differs (llama.cpp); 0: as the key
  double scale_bits_per_head = 0.0;  // per token and head and tensor (int8 per token-head: 32)
  // FP8 latent with its scales and a 16-bit rope part in one slot (FlashMLA's layout): 656 bytes a
  // token of DeepSeek-V3, 584 of DeepSeek-V4.
  bool is_packed_latent = false;

  [[nodiscard]] double value_bits_or_same() const { return value_bits > 0.0 ? value_bits : bits; }
};
// auto (the activation dtype: bf16), fp16, fp32, fp8, fp8_ds_mla, int8, int4, q8_0, q4_0, ...
// Throws Error(kUsage) listing the names.
[[nodiscard]] KvDtype parse_kv_dtype(std::string_view name);

struct KvOptions {
  KvManager manager = KvManager::kHybrid;
  KvDtype dtype;
  std::int32_t block_tokens = 16;
  std::int64_t max_batched_tokens = 8192;  // tokens in flight of one step: window layers need them
  // kLlamaCpp: sequences, and whether they share one cache instead of one each.
  std::int64_t num_sequences = 1;
  bool is_unified = false;
  double swa_ratio = 0.8;  // kSglangRatio: window tokens per full token
  bool is_mla_expanded =
      false;  // an engine without MLA kernels stores full heads (older llama.cpp)
  bool pads_hybrid_pages = true;   // vLLM: attention blocks grow until a page holds a state
  std::int32_t draft_layers = 0;   // layers of a draft (MTP, EAGLE) with caches like the last layer
  std::int64_t source_tokens = 0;  // encoder-decoder: fixed length of the cross-attention cache
  std::int32_t activation_bits = 16;  // of convolution states
};

[[nodiscard]] KvManager parse_kv_manager(std::string_view name);

// Bytes that one more token adds in one layer on a rank, before block rounding; 0 without a
// growing cache.
[[nodiscard]] double layer_token_bytes(const model::MixerSpec& mixer, const Layout& layout,
                                       const KvOptions& options);
// Recurrent state of one sequence in one layer on a rank.
[[nodiscard]] std::int64_t layer_state_bytes(const model::MixerSpec& mixer, const Layout& layout,
                                             const KvOptions& options);

// Sum over layers of one stage; the whole model when pp is 1.
struct KvPerToken {
  double growing = 0.0;    // layers that see the whole sequence
  double windowed = 0.0;   // layers bounded by a window or chunk
  std::int64_t state = 0;  // fixed bytes per sequence
  // One number for a pool in which every layer keeps every token.
  [[nodiscard]] double uniform() const { return growing + windowed; }
};
[[nodiscard]] KvPerToken kv_per_token(const model::Architecture& architecture, const Layout& layout,
                                      const KvOptions& options, StageRange layers);

// Bytes that one request of `tokens` tokens occupies on a rank of the stage, rounded to blocks.
// Never falls when tokens grow.
[[nodiscard]] std::int64_t request_bytes(const model::Architecture& architecture,
                                         const Layout& layout, const KvOptions& options,
                                         StageRange layers, std::int64_t tokens);

}  // namespace moe::planner
