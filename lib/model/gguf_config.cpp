#include "lib/model/gguf_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/text.hpp"
#include "lib/model/config_parts.hpp"
#include "lib/model/gguf_config_parts.hpp"

namespace moe::model {
namespace {

enum class GgufBias : std::uint8_t { kNone, kOptional, kRequired };

// What the architecture decides without a key.
struct GgufArchitecture {
  std::string_view name;
  Family family;        // with experts
  Family dense_family;  // without; the same: experts are required
  RopeStyle rope;       // "llama" and "granitemoe" have the rows of q and k permuted for pairs
  QkNorm qk_norm;
  GgufBias qkv_bias;
  bool renormalizes;  // unless expert_weights_norm says
};

constexpr std::array<GgufArchitecture, 12> kArchitectures = {{
    {"llama", Family::kMixtral, Family::kLlama, RopeStyle::kPairs, QkNorm::kNone,
     GgufBias::kOptional, true},
    {"olmoe", Family::kOlmoe, Family::kOlmoe, RopeStyle::kHalf, QkNorm::kWholeProjection,
     GgufBias::kNone, false},
    {"qwen2moe", Family::kQwen2Moe, Family::kQwen2Moe, RopeStyle::kHalf, QkNorm::kNone,
     GgufBias::kRequired, false},
    {"qwen3moe", Family::kQwen3Moe, Family::kQwen3Moe, RopeStyle::kHalf, QkNorm::kPerHead,
     GgufBias::kNone, true},
    {"qwen3", Family::kQwen3, Family::kQwen3, RopeStyle::kHalf, QkNorm::kPerHead, GgufBias::kNone,
     false},
    {"granitemoe", Family::kGraniteMoe, Family::kGraniteMoe, RopeStyle::kPairs, QkNorm::kNone,
     GgufBias::kNone, false},
    {"deepseek2", Family::kDeepseekV2, Family::kDeepseekV2, RopeStyle::kPairs, QkNorm::kNone,
     GgufBias::kNone, false},
    {"glm4moe", Family::kGlm4Moe, Family::kGlm4Moe, RopeStyle::kHalf, QkNorm::kNone,
     GgufBias::kOptional, false},
    {"gpt-oss", Family::kGptOss, Family::kGptOss, RopeStyle::kHalf, QkNorm::kNone,
     GgufBias::kRequired, false},
    {"llama4", Family::kLlama4, Family::kLlama4, RopeStyle::kPairs, QkNorm::kNone,
     GgufBias::kOptional, false},
    {"dbrx", Family::kDbrx, Family::kDbrx, RopeStyle::kHalf, QkNorm::kNone, GgufBias::kNone, true},
    {"phimoe", Family::kPhimoe, Family::kPhimoe, RopeStyle::kHalf, QkNorm::kNone,
     GgufBias::kRequired, false},
}};

const GgufArchitecture& find_architecture(const GgufFile& file) {
  const std::string& name = file.header().architecture;
  std::vector<std::string_view> supported;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
    supported.push_back(architecture.name);
  }
  file.fail("general.architecture", fmt::format("\"{}\" is not supported; supported: {}", name,
                                                fmt::join(supported, ", ")));
}

void read_head_width(const GgufKeys& keys, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  const auto key_length = keys.optional_integer("attention.key_length", kHeadDimRange);
  if (!key_length && config.hidden_size % attention.num_heads != 0) {
    keys.fail("attention.key_length", fmt::format("missing, and embedding_length {} is not a "
                                                  "multiple of attention.head_count {}",
                                                  config.hidden_size, attention.num_heads));
  }
  attention.head_dim =
      static_cast<std::int32_t>(key_length.value_or(config.hidden_size / attention.num_heads));
  if (keys.optional_integer("attention.value_length", kHeadDimRange).value_or(attention.head_dim) !=
      attention.head_dim) {
    keys.fail("attention.value_length",
              "differs from attention.key_length, which this "
              "architecture does not know");
  }
  if (std::int64_t{attention.num_heads} * attention.head_dim > kWidthRange.high) {
    keys.fail("attention.head_count",
              fmt::format("{} heads of {} are more than {} together", attention.num_heads,
                          attention.head_dim, kWidthRange.high));
  }
}

void read_attention(const GgufKeys& keys, const GgufArchitecture& architecture,
                    ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  attention.num_heads = keys.required_uniform("attention.head_count", kHeadRange);
  attention.num_kv_heads =
      keys.uniform("attention.head_count_kv", kHeadRange).value_or(attention.num_heads);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    keys.fail("attention.head_count_kv",
              fmt::format("{} does not divide the {} attention heads (attention.head_count)",
                          attention.num_kv_heads, attention.num_heads));
  }
  read_head_width(keys, config);
  attention.softmax_scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  attention.qk_norm = architecture.qk_norm;
  attention.has_qkv_bias = architecture.qkv_bias == GgufBias::kRequired ||
                           (architecture.qkv_bias == GgufBias::kOptional &&
                            (has_gguf_layer_tensor(keys.file(), "attn_q.bias") ||
                             has_gguf_layer_tensor(keys.file(), "attn_qkv.bias")));
  attention.has_o_bias = architecture.qkv_bias == GgufBias::kOptional &&
                         has_gguf_layer_tensor(keys.file(), "attn_output.bias");
  // GLM-4.5 has norms of q and k, its smaller variant has none.
  if (config.family == Family::kGlm4Moe &&
      has_gguf_layer_tensor(keys.file(), "attn_q_norm.weight")) {
    attention.qk_norm = QkNorm::kPerHead;
  }
  attention.clip_qkv = keys.optional_number("attention.clamp_kqv", {0.0, 1e6}).value_or(0.0);
  if (const auto window = keys.optional_integer("attention.sliding_window", {0, INT32_MAX})) {
    for (LayerConfig& layer : config.layers) layer.window = static_cast<std::int32_t>(*window);
  }
  read_gguf_rope(keys, attention.head_dim, config);
}

// Llama 3.1 and later: what each frequency is divided by, worked out by the converter. The same as
// LongRoPE with one set of factors.
void read_frequency_factors(const GgufFile& file, ModelConfig& config) {
  constexpr std::string_view kName = "rope_freqs.weight";
  if (file.find(kName) == nullptr) return;
  RopeConfig& rope = config.attention.rope;
  if (rope.kind != RopeKind::kDefault) {
    file.fail(fmt::format("tensor \"{}\"", kName),
              "is not supported together with rope.scaling.type");
  }
  rope.kind = RopeKind::kLongrope;
  rope.original_max_position_embeddings = config.max_position_embeddings;  // never beyond
  rope.short_factor = read_gguf_factors(file, kName, rope.dim / 2);
  rope.long_factor = rope.short_factor;
}

// 1: softmax over all, 2: sigmoid, 3: softmax over the selected (the same as 1 renormalised).
void check_softmax_gating(const GgufKeys& keys) {
  const auto gating = keys.optional_integer("expert_gating_func", {0, 255});
  if (gating && *gating != 1) {
    keys.fail(
        "expert_gating_func",
        fmt::format("{} is not supported for this architecture, expected 1 (softmax)", *gating));
  }
}

void read_plain_experts(const GgufKeys& keys, const GgufArchitecture& architecture,
                        ModelConfig& config) {
  check_softmax_gating(keys);
  read_gguf_expert_counts(keys, architecture.renormalizes, config);
  if (keys.optional_integer("expert_group_count", {0, kExpertRange.high}).value_or(0) > 1) {
    keys.fail("expert_group_count", "groups of experts are not supported for this architecture");
  }
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
  if (config.family == Family::kQwen2Moe) {
    config.moe.has_shared_gate = true;
    config.moe.shared_intermediate_size =
        keys.integer32("expert_shared_feed_forward_length", kWidthRange);
  }
  if (config.family == Family::kGraniteMoe) read_gguf_granite(keys, config);
}

void read_feed_forward(const GgufKeys& keys, const GgufArchitecture& architecture,
                       ModelConfig& config) {
  const std::int64_t num_experts =
      keys.optional_integer("expert_count", {0, kExpertRange.high}).value_or(0);
  if (num_experts == 0) {
    if (architecture.dense_family == architecture.family && architecture.family != Family::kQwen3) {
      keys.fail("expert_count", "missing; expected an integer of at least 1");
    }
    config.family = architecture.dense_family;
    config.intermediate_size = keys.required_uniform("feed_forward_length", kWidthRange);
    return;
  }
  switch (architecture.family) {
    case Family::kQwen3:
      keys.fail("expert_count", "this architecture has no experts; expected qwen3moe");
    case Family::kDeepseekV2:
      return read_gguf_deepseek_experts(keys, false, config);
    case Family::kGlm4Moe:
      return read_gguf_deepseek_experts(keys, true, config);
    case Family::kGptOss:
      return read_gguf_gpt_oss(keys, config);
    case Family::kLlama4:
      return read_gguf_llama4(keys, config);
    case Family::kPhimoe:
      return read_gguf_phimoe(keys, config);
    default:
      return read_plain_experts(keys, architecture, config);
  }
}

void read_tokens(const GgufFile& file, ModelConfig& config) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) file.fail("tensor \"token_embd.weight\"", "missing");
  const std::int64_t rows = embedding->dims.size() == 2 ? embedding->dims[1] : 0;
  if (rows < kVocabRange.low || rows > kVocabRange.high) {
    file.fail("tensor \"token_embd.weight\"",
              fmt::format("{} rows, expected {} to {}", rows, kVocabRange.low, kVocabRange.high));
  }
  config.vocab_size = static_cast<std::int32_t>(rows);
  const auto id = [&](std::string_view key) {
    const auto value = file.integer(key);
    if (value && (*value < 0 || *value > INT32_MAX)) {
      file.fail(key, fmt::format("{} is no token id", *value));
    }
    return value;
  };
  config.bos_token_id = static_cast<std::int32_t>(id("tokenizer.ggml.bos_token_id").value_or(-1));
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const auto value = id(key)) {
      const auto token = static_cast<std::int32_t>(*value);
      if (std::ranges::find(config.eos_token_ids, token) == config.eos_token_ids.end()) {
        config.eos_token_ids.push_back(token);
      }
    }
  }
}

// block_count counts the layers of multi-token prediction, which follow the others.
void read_layers(const GgufKeys& keys, ModelConfig& config) {
  const std::int32_t blocks = keys.integer32("block_count", kLayerRange);
  config.num_nextn_predict_layers =
      static_cast<std::int32_t>(keys.optional_integer("nextn_predict_layers", {0, 64}).value_or(0));
  if (config.num_nextn_predict_layers >= blocks) {
    keys.fail("nextn_predict_layers", fmt::format("{} of {} layers (block_count)",
                                                  config.num_nextn_predict_layers, blocks));
  }
  config.num_hidden_layers = blocks - config.num_nextn_predict_layers;
  config.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), LayerConfig{});
  for (LayerConfig& layer : config.layers) layer.is_moe = false;
}

}  // namespace

bool has_gguf_layer_tensor(const GgufFile& file, std::string_view name) {
  return file.find("blk.0." + std::string(name)) != nullptr;
}

void read_gguf_rope(const GgufKeys& keys, std::int32_t dim_limit, ModelConfig& config) {
  RopeConfig& rope = config.attention.rope;
  rope.theta = keys.optional_number("rope.freq_base", {1.0, 1e12, true}).value_or(10000.0);
  rope.dim = static_cast<std::int32_t>(
      keys.optional_integer("rope.dimension_count", {2, dim_limit}).value_or(dim_limit));
  if (rope.dim % 2 != 0) {
    keys.fail("rope.dimension_count", fmt::format("{} is not an even number", rope.dim));
  }
  const std::string kind = keys.text("rope.scaling.type").value_or("none");
  if (kind == "linear") {
    rope.kind = RopeKind::kLinear;
    rope.factor = keys.number("rope.scaling.factor", kFactorRange);
  } else if (kind == "yarn") {
    rope.kind = RopeKind::kYarn;
    rope.factor = keys.number("rope.scaling.factor", {1.0, 1e6});
    rope.original_max_position_embeddings =
        keys.integer32("rope.scaling.original_context_length", kContextRange);
    rope.beta_fast = keys.optional_number("rope.scaling.yarn_beta_fast", kFactorRange).value_or(32);
    rope.beta_slow = keys.optional_number("rope.scaling.yarn_beta_slow", kFactorRange).value_or(1);
    rope.attention_scaling =
        keys.optional_number("rope.scaling.attn_factor", kFactorRange).value_or(1.0) *
        (0.1 * std::log(rope.factor) + 1.0);
  } else if (kind != "none") {
    keys.fail("rope.scaling.type", fmt::format("\"{}\" is not supported; supported: none, linear, "
                                               "yarn",
                                               printable(kind)));
  } else if (keys.has("rope.scale_linear")) {
    keys.fail("rope.scale_linear", "is not supported; expected rope.scaling.type");
  }
}

void read_gguf_expert_counts(const GgufKeys& keys, bool renormalizes, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.num_experts = keys.integer32("expert_count", kExpertRange);
  moe.top_k = keys.integer32("expert_used_count", {1, moe.num_experts});
  if (std::int64_t{moe.num_experts} * config.num_hidden_layers > kMaxExpertsInModel) {
    keys.fail("expert_count",
              fmt::format("{} experts in {} layers are more than {} together", moe.num_experts,
                          config.num_hidden_layers, kMaxExpertsInModel));
  }
  const auto expert_width = keys.uniform("expert_feed_forward_length", kWidthRange);
  moe.expert_intermediate_size =
      expert_width ? *expert_width : keys.required_uniform("feed_forward_length", kWidthRange);
  moe.router.renormalize = keys.boolean("expert_weights_norm").value_or(renormalizes);
  const double scale = keys.optional_number("expert_weights_scale", {0.0, 1e6}).value_or(1.0);
  moe.router.scale = scale == 0.0 ? 1.0 : scale;  // converters write 0 for none
}

ModelConfig read_gguf_config(const GgufFile& file) {
  const GgufArchitecture& architecture = find_architecture(file);
  const GgufKeys keys(file, architecture.name);
  ModelConfig config;
  config.family = architecture.family;
  config.model_type = architecture.name;
  config.quant.method = QuantMethod::kGguf;
  config.hidden_size = keys.integer32("embedding_length", kWidthRange);
  config.max_position_embeddings = keys.integer32("context_length", kContextRange);
  read_layers(keys, config);
  config.attention.rope.style = architecture.rope;
  if (config.family == Family::kDbrx) {
    config.norm = NormKind::kLayerNorm;
    config.norm_eps = keys.number("attention.layer_norm_epsilon", kEpsRange);
  } else {
    config.norm_eps = keys.number("attention.layer_norm_rms_epsilon", kEpsRange);
  }
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  read_tokens(file, config);
  if (config.family == Family::kDeepseekV2) {
    read_gguf_mla(keys, config);
  } else {
    read_attention(keys, architecture, config);
    read_frequency_factors(file, config);
  }
  read_feed_forward(keys, architecture, config);
  return config;
}

}  // namespace moe::model
