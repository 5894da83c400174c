#include "lib/model/gguf_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/text.hpp"
#include "lib/model/config_parts.hpp"

namespace moe::model {
namespace {

// What the architecture decides without a key.
struct GgufArchitecture {
  std::string_view name;
  Family family;        // with experts
  Family dense_family;  // without; the same: experts are required
  RopeStyle rope;       // "llama" files have the rows of q and k permuted for pairs
  QkNorm qk_norm;
  bool has_qkv_bias;
  bool renormalizes;  // unless expert_weights_norm says
};

constexpr std::array<GgufArchitecture, 6> kArchitectures = {{
    {"llama", Family::kMixtral, Family::kLlama, RopeStyle::kPairs, QkNorm::kNone, false, true},
    {"olmoe", Family::kOlmoe, Family::kOlmoe, RopeStyle::kHalf, QkNorm::kWholeProjection, false,
     false},
    {"qwen2moe", Family::kQwen2Moe, Family::kQwen2Moe, RopeStyle::kHalf, QkNorm::kNone, true,
     false},
    {"qwen3moe", Family::kQwen3Moe, Family::kQwen3Moe, RopeStyle::kHalf, QkNorm::kPerHead, false,
     true},
    {"qwen3", Family::kQwen3, Family::kQwen3, RopeStyle::kHalf, QkNorm::kPerHead, false, false},
    {"granitemoe", Family::kGraniteMoe, Family::kGraniteMoe, RopeStyle::kPairs, QkNorm::kNone,
     false, false},
}};

const GgufArchitecture& find_architecture(const GgufFile& file) {
  const std::string& name = file.header().architecture;
  std::vector<std::string_view> supported;
  for (const GgufArchitecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
    supported.push_back(architecture.name);
  }
  file.fail("general.architecture",
            fmt::format("\"{}\" is not supported; supported: {} (of other families, give the "
                        "safetensors checkpoint)",
                        name, fmt::join(supported, ", ")));
}

// Reads of "ARCHITECTURE.KEY" in ranges.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  [[nodiscard]] bool has(std::string_view key) const { return file_.has(full(key)); }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    file_.fail(full(key), what);
  }

  [[nodiscard]] std::optional<std::int64_t> optional_integer(std::string_view key,
                                                             IntRange range) const {
    const auto value = file_.integer(full(key));
    if (value && (*value < range.low || *value > range.high)) {
      fail(key, fmt::format("expected an integer from {} to {}, found {}", range.low, range.high,
                            *value));
    }
    return value;
  }
  [[nodiscard]] std::int32_t integer32(std::string_view key, IntRange range) const {
    range.high = std::min<std::int64_t>(range.high, INT32_MAX);
    const auto value = optional_integer(key, range);
    if (!value) {
      fail(key, fmt::format("missing; expected an integer from {} to {}", range.low, range.high));
    }
    return static_cast<std::int32_t>(*value);
  }
  // One value for all layers: a number, or a list of equal ones.
  [[nodiscard]] std::optional<std::int32_t> uniform(std::string_view key, IntRange range) const {
    const auto values = file_.numbers(full(key));
    if (!values) return std::nullopt;
    if (values->empty()) fail(key, "is an empty list");
    for (const double value : *values) {
      if (value != values->front()) fail(key, "values that differ by layer are not supported");
    }
    const double value = values->front();
    if (!(value >= static_cast<double>(range.low) && value <= static_cast<double>(range.high)) ||
        value != std::floor(value)) {
      fail(key, fmt::format("expected an integer from {} to {}, found {}", range.low, range.high,
                            value));
    }
    return static_cast<std::int32_t>(value);
  }
  [[nodiscard]] std::optional<double> optional_number(std::string_view key,
                                                      NumberRange range) const {
    const auto value = file_.number(full(key));
    if (value &&
        !((range.low_is_open ? *value > range.low : *value >= range.low) && *value <= range.high)) {
      fail(key,
           fmt::format("expected a number from {} to {}, found {}", range.low, range.high, *value));
    }
    return value;
  }
  [[nodiscard]] double number(std::string_view key, NumberRange range) const {
    const auto value = optional_number(key, range);
    if (!value) fail(key, "missing; expected a number");
    return *value;
  }
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const {
    return file_.text(full(key));
  }
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const {
    return file_.boolean(full(key));
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

void read_attention(const Keys& keys, const GgufArchitecture& architecture, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  const auto heads = keys.uniform("attention.head_count", kHeadRange);
  if (!heads) keys.fail("attention.head_count", "missing; expected an integer");
  attention.num_heads = *heads;
  attention.num_kv_heads = keys.uniform("attention.head_count_kv", kHeadRange).value_or(*heads);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    keys.fail("attention.head_count_kv",
              fmt::format("{} does not divide the {} attention heads (attention.head_count)",
                          attention.num_kv_heads, attention.num_heads));
  }
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
  attention.softmax_scale = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  attention.qk_norm = architecture.qk_norm;
  attention.has_qkv_bias = architecture.has_qkv_bias;
  attention.clip_qkv = keys.optional_number("attention.clamp_kqv", {0.0, 1e6}).value_or(0.0);
  if (const auto window = keys.optional_integer("attention.sliding_window", {0, INT32_MAX})) {
    for (LayerConfig& layer : config.layers) layer.window = static_cast<std::int32_t>(*window);
  }
}

void read_rope(const Keys& keys, const GgufArchitecture& architecture, ModelConfig& config) {
  RopeConfig& rope = config.attention.rope;
  rope.style = architecture.rope;
  rope.theta = keys.optional_number("rope.freq_base", {1.0, 1e12, true}).value_or(10000.0);
  rope.dim = static_cast<std::int32_t>(
      keys.optional_integer("rope.dimension_count", {2, config.attention.head_dim})
          .value_or(config.attention.head_dim));
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

// Llama 3.1 and later: what each frequency is divided by, worked out by the converter. The same as
// LongRoPE with one set of factors.
void read_frequency_factors(const GgufFile& file, ModelConfig& config) {
  constexpr std::string_view kName = "rope_freqs.weight";
  const GgufTensor* tensor = file.find(kName);
  if (tensor == nullptr) return;
  const std::string label = fmt::format("tensor \"{}\"", kName);
  RopeConfig& rope = config.attention.rope;
  const std::vector<std::int64_t> expected = {rope.dim / 2};
  if (tensor->type_id != 0 || tensor->dims != expected) {
    file.fail(label, fmt::format("expected {} numbers of type F32", rope.dim / 2));
  }
  if (rope.kind != RopeKind::kDefault) {
    file.fail(label, "is not supported together with rope.scaling.type");
  }
  rope.kind = RopeKind::kLongrope;
  rope.original_max_position_embeddings = config.max_position_embeddings;  // never beyond
  const std::span<const std::byte> bytes = file.bytes(*tensor);
  for (std::int64_t i = 0; i < expected.front(); ++i) {
    float factor = 0.0F;
    std::memcpy(&factor, bytes.data() + i * static_cast<std::int64_t>(sizeof(factor)),
                sizeof(factor));
    if (!(factor > 0.0F) || !std::isfinite(factor)) {
      file.fail(label, fmt::format("element {} is {}, expected a positive number", i,
                                   static_cast<double>(factor)));
    }
    rope.short_factor.push_back(static_cast<double>(factor));
  }
  rope.long_factor = rope.short_factor;
}

// 1: softmax over all, 2: sigmoid, 3: softmax over the selected (the same as 1 renormalised).
void check_gating(const Keys& keys) {
  const auto gating = keys.optional_integer("expert_gating_func", {0, 255});
  if (gating && *gating != 1) {
    keys.fail(
        "expert_gating_func",
        fmt::format("{} is not supported for this architecture, expected 1 (softmax)", *gating));
  }
}

void read_experts(const Keys& keys, const GgufArchitecture& architecture, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.num_experts = static_cast<std::int32_t>(
      keys.optional_integer("expert_count", {0, kExpertRange.high}).value_or(0));
  if (moe.num_experts == 0) {
    if (architecture.dense_family == architecture.family && architecture.family != Family::kQwen3) {
      keys.fail("expert_count", "missing; expected an integer of at least 1");
    }
    config.family = architecture.dense_family;
    config.intermediate_size = keys.integer32("feed_forward_length", kWidthRange);
    return;
  }
  if (config.family == Family::kQwen3) {
    keys.fail("expert_count", "this architecture has no experts; expected qwen3moe");
  }
  moe.top_k = keys.integer32("expert_used_count", {1, moe.num_experts});
  if (std::int64_t{moe.num_experts} * config.num_hidden_layers > kMaxExpertsInModel) {
    keys.fail("expert_count",
              fmt::format("{} experts in {} layers are more than {} together", moe.num_experts,
                          config.num_hidden_layers, kMaxExpertsInModel));
  }
  const auto expert_width = keys.optional_integer("expert_feed_forward_length", kWidthRange);
  moe.expert_intermediate_size = static_cast<std::int32_t>(
      expert_width ? *expert_width : keys.integer32("feed_forward_length", kWidthRange));
  check_gating(keys);
  RouterRule& router = moe.router;
  router.renormalize = keys.boolean("expert_weights_norm").value_or(architecture.renormalizes);
  const double scale = keys.optional_number("expert_weights_scale", {0.0, 1e6}).value_or(1.0);
  router.scale = scale == 0.0 ? 1.0 : scale;  // converters write 0 for none
  if (keys.optional_integer("expert_group_count", {0, kExpertRange.high}).value_or(0) > 1) {
    keys.fail("expert_group_count", "groups of experts are not supported for this architecture");
  }
  for (LayerConfig& layer : config.layers) layer.is_moe = true;
  if (config.family == Family::kQwen2Moe) {
    moe.has_shared_gate = true;
    moe.shared_intermediate_size = keys.integer32("expert_shared_feed_forward_length", kWidthRange);
  }
  if (config.family == Family::kGraniteMoe) router.score = ScoreFunction::kLogits;
}

void read_granite(const Keys& keys, ModelConfig& config) {
  constexpr NumberRange kMultiplierRange{0.0, 1e6, true};
  config.embedding_multiplier = keys.number("embedding_scale", kMultiplierRange);
  config.attention.softmax_scale = keys.number("attention.scale", kMultiplierRange);
  config.residual_multiplier = keys.number("residual_scale", kMultiplierRange);
  config.logits_divisor = keys.number("logit_scale", kMultiplierRange);
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

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file) {
  const GgufArchitecture& architecture = find_architecture(file);
  const Keys keys(file, architecture.name);
  if (file.integer("split.count").value_or(1) > 1) {
    file.fail("split.count",
              "a model in several files is not read; merge them first "
              "(llama-gguf-split --merge)");
  }
  ModelConfig config;
  config.family = architecture.family;
  config.model_type = architecture.name;
  config.quant.method = QuantMethod::kGguf;
  config.hidden_size = keys.integer32("embedding_length", kWidthRange);
  config.num_hidden_layers = keys.integer32("block_count", kLayerRange);
  config.max_position_embeddings = keys.integer32("context_length", kContextRange);
  config.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), LayerConfig{});
  for (LayerConfig& layer : config.layers) layer.is_moe = false;
  config.norm_eps = keys.number("attention.layer_norm_rms_epsilon", kEpsRange);
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  read_tokens(file, config);
  read_attention(keys, architecture, config);
  read_rope(keys, architecture, config);
  read_frequency_factors(file, config);
  read_experts(keys, architecture, config);
  if (config.family == Family::kGraniteMoe) read_granite(keys, config);
  return config;
}

}  // namespace moe::model
