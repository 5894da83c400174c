#pragma once

// The pieces that config.json files of the families share. Internal to the config reader.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lib/model/config.hpp"
#include "lib/model/config_reader.hpp"

namespace moe::model {

// Ranges that hold for every family. Beyond them nothing real exists and sizes derived from them
// could overflow.
inline constexpr IntRange kWidthRange{1, std::int64_t{1} << 22};  // any matrix dimension
inline constexpr IntRange kLayerRange{1, 4096};
inline constexpr IntRange kHeadRange{1, 65536};
inline constexpr IntRange kHeadDimRange{1, 16384};
inline constexpr IntRange kExpertRange{1, 65536};
inline constexpr IntRange kVocabRange{1, std::int64_t{1} << 24};
inline constexpr IntRange kContextRange{1, std::int64_t{1} << 31};
inline constexpr IntRange kTokenIdRange{0, INT32_MAX};
inline constexpr NumberRange kEpsRange{0.0, 1.0, true};
inline constexpr NumberRange kFactorRange{0.0, 1e6, true};
// Experts over all layers: bounds what a loader allocates for views.
inline constexpr std::int64_t kMaxExpertsInModel = std::int64_t{1} << 18;

// vocab_size, hidden_size, num_hidden_layers, max_position_embeddings, rms_norm_eps, hidden_act,
// tie_word_embeddings, token ids, torch_dtype; fills config.layers with dense layers.
void read_common(ConfigReader& reader, ModelConfig& config);
// The part of it that does not depend on the names of the sizes: token ids, dtype, keys that do not
// matter; fills config.layers.
void read_token_ids_and_dtype(ConfigReader& reader, ModelConfig& config);

// num_attention_heads, num_key_value_heads, head_dim, sliding window of every layer excepted.
// Sets softmax_scale to head_dim^-0.5.
void read_gqa(ConfigReader& reader, ModelConfig& config);

struct RopeOptions {
  RopeStyle style = RopeStyle::kHalf;
  std::int32_t head_dim = 0;   // what partial_rotary_factor applies to
  std::string_view dim_key;    // the field that a wrong rotary width comes from
  bool allow_partial = false;  // partial_rotary_factor may differ from 1
  double default_partial = 1.0;
  bool allow_longrope = false;
  std::optional<double> default_theta;  // used when the file has none
};
// rope_theta + rope_scaling, and rope_parameters; a conflict between the two is an error.
void read_rope(ConfigReader& reader, ModelConfig& config, const RopeOptions& options);
// m of the MLA softmax scale: 1 without YaRN or without mscale_all_dim.
[[nodiscard]] double mla_mscale(ConfigReader& reader, const ModelConfig& config);

// layer_types and sliding_window. `window_is_used`: the family slides by default when
// sliding_window is set (all layers), else only where layer_types says so.
void read_windows(ConfigReader& reader, ModelConfig& config, bool window_is_used);
// layer_types alone: the layers that it lets slide get the window, and there must be one. False
// where the file has none.
bool read_layer_types(ConfigReader& reader, ModelConfig& config,
                      std::optional<std::int64_t> window);

// Number of experts, top_k and their relation.
void read_experts(ConfigReader& reader, ModelConfig& config);
// n_group, topk_group and their relation to the experts, into config.moe.router.
void read_groups(ConfigReader& reader, ModelConfig& config, std::int32_t min_experts_per_group);

void read_quantization(ConfigReader& reader, ModelConfig& config);

// One function a family.
void parse_mixtral(ConfigReader& reader, ModelConfig& config);
void parse_olmoe(ConfigReader& reader, ModelConfig& config);
void parse_granitemoe(ConfigReader& reader, ModelConfig& config);
void parse_phimoe(ConfigReader& reader, ModelConfig& config);
void parse_llama(ConfigReader& reader, ModelConfig& config);
void parse_dbrx(ConfigReader& reader, ModelConfig& config);
void parse_llama4(ConfigReader& reader, ModelConfig& config);
void parse_qwen2_moe(ConfigReader& reader, ModelConfig& config);
void parse_qwen3_moe(ConfigReader& reader, ModelConfig& config);
void parse_qwen3(ConfigReader& reader, ModelConfig& config);
void parse_deepseek_v2(ConfigReader& reader, ModelConfig& config);
void parse_deepseek_v3(ConfigReader& reader, ModelConfig& config);
void parse_glm4_moe(ConfigReader& reader, ModelConfig& config);
void parse_gpt_oss(ConfigReader& reader, ModelConfig& config);

}  // namespace moe::model
