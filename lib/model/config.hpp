#pragma once

// What a config.json means, for every supported family: one validated struct of data. No other
// module knows the key names of a family. Field names follow the Hugging Face configs; units are
// elements unless the name says otherwise.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace moe::model {

enum class Family : std::uint8_t {
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kOlmoe,
  kDeepseekV2,
  kDeepseekV3,  // also kimi_k2
  kGptOss,
  kGlm4Moe,
  kGraniteMoe,
  kPhimoe,
  kDbrx,
  kLlama4,  // text
  kLlama,   // dense, a draft model
  kQwen3,   // dense, a draft model
};

// ---- router ----

enum class ScoreFunction : std::uint8_t {
  kSoftmax,  // over all experts, in f32
  kSigmoid,
  kLogits,         // select on the raw logit; weights are a softmax over the selected logits
  kLogitsSigmoid,  // select on the raw logit; the weight is its sigmoid (Llama-4)
  kSparsemixer,    // Phi-3.5-MoE, two rounds
};

enum class GroupRule : std::uint8_t {
  kNone,
  kMax,      // group score = largest score in the group (DeepSeek-V2)
  kTop2Sum,  // group score = sum of the two largest biased scores (DeepSeek-V3)
};

// Everything that turns router logits into experts and weights; written into every report.
struct RouterRule {
  ScoreFunction score = ScoreFunction::kSoftmax;
  bool has_correction_bias = false;  // added for the selection only, never to the weight
  GroupRule group_rule = GroupRule::kNone;
  std::int32_t num_groups = 1;       // n_group
  std::int32_t num_groups_kept = 1;  // topk_group
  bool renormalize = false;          // divide by the p-norm of the selected weights
  double renormalize_p = 1.0;        // 1: their sum (DBRX: moe_normalize_expert_weights)
  double renormalize_eps = 0.0;      // added to that sum (1e-20 for DeepSeek-V3)
  double scale = 1.0;                // routed_scaling_factor, applied last, always
  bool has_logit_bias = false;       // z = W x + b (gpt-oss)
  double sparsemixer_eps = 0.0;      // router_jitter_noise
};

// ---- attention ----

enum class RopeKind : std::uint8_t { kDefault, kLinear, kLlama3, kYarn, kLongrope };
enum class RopeStyle : std::uint8_t {
  kHalf,   // rotates (i, i + d/2)
  kPairs,  // rotates (2i, 2i + 1)
};

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  RopeStyle style = RopeStyle::kHalf;
  double theta = 10000.0;
  std::int32_t dim = 0;  // rotary dimensions of a head: the first `dim` (MLA: the rope part)
  double factor = 1.0;   // linear, llama3, yarn
  std::int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  double beta_fast = 32.0;           // yarn
  double beta_slow = 1.0;            // yarn
  bool truncate = true;              // yarn: floor and ceil of the ramp borders
  double attention_scaling = 1.0;    // multiplies cos and sin: already resolved for yarn and linear
  std::vector<double> short_factor;  // longrope, dim/2 entries
  std::vector<double> long_factor;   // longrope
  double short_mscale = 1.0;         // longrope: multiplies cos and sin
  double long_mscale = 1.0;
};

enum class QkNorm : std::uint8_t {
  kNone,
  kPerHead,          // RMS over head_dim, before RoPE (Qwen3, GLM-4.5)
  kWholeProjection,  // RMS over all heads at once, before RoPE (OLMoE)
  kUnitAfterRope,    // RMS over head_dim without a weight, after RoPE, where there is one (Llama-4)
};

struct MlaConfig {
  std::int32_t q_lora_rank = 0;  // 0: no q compression
  std::int32_t kv_lora_rank = 0;
  std::int32_t qk_nope_head_dim = 0;
  std::int32_t qk_rope_head_dim = 0;
  std::int32_t v_head_dim = 0;
  double latent_norm_eps = 1e-6;  // of q_a_layernorm and kv_a_layernorm, whatever rms_norm_eps says
};

struct AttentionConfig {
  bool is_mla = false;
  MlaConfig mla;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;  // GQA; for MLA qk_nope_head_dim + qk_rope_head_dim
  bool has_qkv_bias = false;
  bool has_o_bias = false;
  bool has_sinks = false;  // one extra logit per head (gpt-oss)
  QkNorm qk_norm = QkNorm::kNone;
  bool has_fused_qkv = false;  // one tensor of q, k and v, one after another (DBRX)
  double clip_qkv = 0.0;       // clamp to +-clip after the norm; 0: none
  // Layers without RoPE multiply q by 1 + scale * ln(1 + floor((position + 1) / floor)); 0: none.
  double temperature_scale = 0.0;
  double temperature_floor = 0.0;
  double softmax_scale = 1.0;  // resolved: 1/sqrt(d), the YaRN m^2 of MLA, Granite's multiplier
  RopeConfig rope;
};

// ---- feed-forward ----

enum class Activation : std::uint8_t {
  kSiluGlu,    // silu(gate) * up
  kGptOssGlu,  // min(g, limit) * sigmoid(alpha * min(g, limit)) * (clamp(u, +-limit) + 1)
};

struct MoeConfig {
  std::int32_t num_experts = 0;  // 0: a dense model
  std::int32_t top_k = 0;
  std::int32_t expert_intermediate_size = 0;
  std::int32_t shared_intermediate_size =
      0;                         // 0: no shared expert; DeepSeek: n_shared * moe_intermediate_size
  bool has_shared_gate = false;  // sigmoid(w . x) multiplies the shared expert (Qwen2-MoE)
  bool has_expert_bias = false;  // gate, up and down biases (gpt-oss)
  bool weight_on_input = false;  // the weight multiplies what the expert reads (Llama-4)
  RouterRule router;
};

struct LayerConfig {
  bool is_moe = true;
  std::int32_t window = 0;  // sliding window W: query i sees keys j with 0 <= i - j < W; 0: all
  std::int32_t chunk = 0;   // query i sees keys j <= i of its chunk, i / C == j / C; 0: all
  bool has_rope = true;
};

// ---- quantisation ----

enum class QuantMethod : std::uint8_t {
  kNone,
  kFp8Block,  // also compressed-tensors: float-quantized
  kMxfp4,
  kGptq,
  kAwq,
  kPackedInt,  // compressed-tensors: pack-quantized
  kInt8,       // compressed-tensors: int-quantized
  kGguf,       // each tensor of a GGUF file says how it is stored
};

struct QuantConfig {
  QuantMethod method = QuantMethod::kNone;
  // FP8: rows and columns that share a scale (weight_block_size, out then in); 0: all of them.
  std::int32_t block_rows = 128;
  std::int32_t block_cols = 128;
  std::string fp8_scale_suffix = "_scale_inv";
  std::vector<std::string> modules_not_converted;
  // The four integer methods.
  std::int32_t bits = 0;
  std::int32_t group_size = 0;  // columns that share a scale; 0: a whole row; -1: a whole matrix
  bool is_symmetric = true;
  bool zeros_are_stored_less_one = false;  // GPTQ before version 2
};

enum class NormKind : std::uint8_t { kRms, kLayerNorm, kLayerNormWithBias };

struct ModelConfig {
  Family family = Family::kMixtral;
  std::string model_type;
  std::string tensor_prefix;  // before the name of every tensor ("language_model.")
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t num_hidden_layers = 0;
  std::int32_t intermediate_size = 0;  // of the dense layers
  std::int64_t max_position_embeddings = 0;
  double norm_eps = 1e-6;
  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSiluGlu;
  double swiglu_limit = 7.0;    // kGptOssGlu
  double swiglu_alpha = 1.702;  // kGptOssGlu
  bool tie_word_embeddings = false;
  bool has_lm_head_bias = false;
  AttentionConfig attention;
  MoeConfig moe;
  std::vector<LayerConfig> layers;            // num_hidden_layers entries
  std::int32_t num_nextn_predict_layers = 0;  // extra layers in the files whose tensors are ignored
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_divisor = 1.0;
  QuantConfig quant;
  std::string torch_dtype;                  // what the file says, information only
  std::vector<std::int32_t> eos_token_ids;  // config.json and generation_config.json together
  std::int32_t bos_token_id = -1;
  std::vector<std::string> warnings;  // unknown keys and the like, one line each

  [[nodiscard]] bool is_moe() const { return moe.num_experts > 0; }
  // Whether any layer routes: every layer of a model of an MoE family may be dense.
  [[nodiscard]] bool has_moe_layers() const {
    return is_moe() && std::ranges::any_of(layers, &LayerConfig::is_moe);
  }
};

// Reads and validates. `file` is named in every message. Throws Error(kInput): the field, what was
// expected, what was found. Never guesses: an unknown model_type, an unknown value of a known
// field, or a missing required field is refused.
[[nodiscard]] ModelConfig parse_config(std::string_view json_text,
                                       const std::filesystem::path& file);

// DIR/config.json and, where it exists, DIR/generation_config.json (end-of-sequence ids).
[[nodiscard]] ModelConfig read_config(const std::filesystem::path& directory);

[[nodiscard]] std::string_view family_name(Family family);
// One line in words, for reports: "softmax over 16, top 4, renormalised".
[[nodiscard]] std::string describe_router(const MoeConfig& moe);

}  // namespace moe::model
