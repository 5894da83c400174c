#pragma once

// The pieces that the keys of several architectures share. Internal to the reader of GGUF keys.

#include "lib/model/config.hpp"
#include "lib/model/gguf_keys.hpp"

namespace moe::model {

// Number of experts, experts per token, their width, scale and renormalisation.
void read_gguf_expert_counts(const GgufKeys& keys, bool renormalizes, ModelConfig& config);
// rope.*; `dim_limit` is the width of what may be rotated and the default of rope.dimension_count.
void read_gguf_rope(const GgufKeys& keys, std::int32_t dim_limit, ModelConfig& config);
// Of the first part of the name, by the presence of the tensor in the first layer.
[[nodiscard]] bool has_gguf_layer_tensor(const GgufFile& file, std::string_view name);

// deepseek2: latent attention, as converters wrote it before and after the key and value parts of
// attn_kv_b became tensors of their own.
void read_gguf_mla(const GgufKeys& keys, ModelConfig& config);
// deepseek2 and glm4moe: leading dense layers, shared experts, sigmoid scores with a correction
// bias, groups.
void read_gguf_deepseek_experts(const GgufKeys& keys, bool scores_default_to_sigmoid,
                                ModelConfig& config);
void read_gguf_gpt_oss(const GgufKeys& keys, ModelConfig& config);
void read_gguf_llama4(const GgufKeys& keys, ModelConfig& config);
void read_gguf_phimoe(const GgufKeys& keys, ModelConfig& config);
void read_gguf_granite(const GgufKeys& keys, ModelConfig& config);

}  // namespace moe::model
