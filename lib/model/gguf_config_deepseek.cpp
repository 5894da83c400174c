// DeepSeek-V2, DeepSeek-V3 and what is built like them (deepseek2), and GLM-4.5 (glm4moe), whose
// router is DeepSeek-V3's.

#include <cmath>

#include <fmt/format.h>

#include "lib/model/config_parts.hpp"
#include "lib/model/gguf_config_parts.hpp"

namespace moe::model {
namespace {

constexpr std::int64_t kGatingSoftmax = 1;
constexpr std::int64_t kGatingSigmoid = 2;

void read_groups_of_keys(const GgufKeys& keys, ModelConfig& config) {
  RouterRule& router = config.moe.router;
  const std::int32_t num_experts = config.moe.num_experts;
  const auto groups = keys.optional_integer("expert_group_count", {0, kExpertRange.high});
  if (groups.value_or(0) <= 1) return;
  router.num_groups = static_cast<std::int32_t>(*groups);
  router.num_groups_kept = keys.integer32("expert_group_used_count", {1, router.num_groups});
  const bool is_sigmoid = router.score == ScoreFunction::kSigmoid;
  // By the two best of a group, or by the best one (DeepSeek-V2).
  router.group_rule = is_sigmoid ? GroupRule::kTop2Sum : GroupRule::kMax;
  if (num_experts % router.num_groups != 0) {
    keys.fail("expert_group_count",
              fmt::format("{} groups do not divide {} experts", router.num_groups, num_experts));
  }
  const std::int32_t per_group = num_experts / router.num_groups;
  if (is_sigmoid && per_group < 2) {
    keys.fail("expert_group_count", fmt::format("{} groups of {} experts have {} each, need at "
                                                "least 2",
                                                router.num_groups, num_experts, per_group));
  }
  if (config.moe.top_k > router.num_groups_kept * per_group) {
    keys.fail(
        "expert_used_count",
        fmt::format("{} experts per token, but the {} groups kept (expert_group_used_count) "
                    "hold {}",
                    config.moe.top_k, router.num_groups_kept, router.num_groups_kept * per_group));
  }
  if (!is_sigmoid) {
    config.warnings.push_back(
        "groups of experts are scored by their best expert, as DeepSeek-V2 does; llama.cpp takes "
        "the two best of every architecture");
  }
}

}  // namespace

void read_gguf_mla(const GgufKeys& keys, ModelConfig& config) {
  AttentionConfig& attention = config.attention;
  MlaConfig& mla = attention.mla;
  attention.is_mla = true;
  attention.num_heads = keys.required_uniform("attention.head_count", kHeadRange);
  // 1 in newer files, which count the latent as the one key head; else that of the heads.
  const auto kv_heads = keys.uniform("attention.head_count_kv", kHeadRange);
  if (kv_heads && *kv_heads != 1 && *kv_heads != attention.num_heads) {
    keys.fail("attention.head_count_kv",
              fmt::format("{}; latent attention has 1 or attention.head_count {}", *kv_heads,
                          attention.num_heads));
  }
  attention.num_kv_heads = attention.num_heads;
  mla.q_lora_rank = static_cast<std::int32_t>(
      keys.optional_integer("attention.q_lora_rank", {0, kWidthRange.high}).value_or(0));
  mla.kv_lora_rank = keys.integer32("attention.kv_lora_rank", kWidthRange);
  // key_length is that of the latent once key_length_mla is there.
  const bool is_new = keys.has("attention.key_length_mla");
  attention.head_dim =
      keys.integer32(is_new ? "attention.key_length_mla" : "attention.key_length", kHeadDimRange);
  mla.v_head_dim = keys.integer32(is_new ? "attention.value_length_mla" : "attention.value_length",
                                  kHeadDimRange);
  mla.qk_rope_head_dim =
      keys.integer32("rope.dimension_count", {2, std::int64_t{attention.head_dim} - 1});
  mla.qk_nope_head_dim = attention.head_dim - mla.qk_rope_head_dim;
  if (std::int64_t{attention.num_heads} * (attention.head_dim + mla.v_head_dim) >
      kWidthRange.high) {
    keys.fail("attention.head_count", fmt::format("{} heads of {} are too many together",
                                                  attention.num_heads, attention.head_dim));
  }
  read_gguf_rope(keys, mla.qk_rope_head_dim, config);
  double m = 1.0;
  if (attention.rope.kind == RopeKind::kYarn) {
    // 0.1 mscale_all_dim. Its presence says that mscale is the same, so that cos and sin keep
    // their size and the scores take the whole temperature.
    const double multiplier =
        keys.optional_number("rope.scaling.yarn_log_multiplier", {0.0, 1e3}).value_or(0.0);
    const double attn_factor =
        keys.optional_number("rope.scaling.attn_factor", kFactorRange).value_or(1.0);
    m = multiplier * std::log(attention.rope.factor) + 1.0;
    if (multiplier > 0.0) attention.rope.attention_scaling = attn_factor;
  }
  attention.softmax_scale = m * m / std::sqrt(static_cast<double>(attention.head_dim));
}

void read_gguf_deepseek_experts(const GgufKeys& keys, bool scores_default_to_sigmoid,
                                ModelConfig& config) {
  read_gguf_expert_counts(keys, false, config);
  MoeConfig& moe = config.moe;
  RouterRule& router = moe.router;
  const std::int64_t gating = keys.optional_integer("expert_gating_func", {0, 255}).value_or(0);
  if (gating != 0 && gating != kGatingSoftmax && gating != kGatingSigmoid) {
    keys.fail("expert_gating_func",
              fmt::format("{} is not supported, expected 1 (softmax) or 2 (sigmoid)", gating));
  }
  const bool is_sigmoid = gating == kGatingSigmoid || (gating == 0 && scores_default_to_sigmoid);
  const auto dense =
      keys.optional_integer("leading_dense_block_count", {0, config.num_hidden_layers});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    config.layers[static_cast<std::size_t>(layer)].is_moe = layer >= dense.value_or(0);
  }
  if (dense.value_or(0) > 0) {
    config.intermediate_size = keys.required_uniform("feed_forward_length", kWidthRange);
  }
  const std::int64_t shared_width =
      keys.optional_integer("expert_shared_count", {0, 4096}).value_or(0) *
      moe.expert_intermediate_size;
  if (shared_width > kWidthRange.high) {
    keys.fail("expert_shared_count", "the shared experts are too wide together");
  }
  moe.shared_intermediate_size = static_cast<std::int32_t>(shared_width);
  if (is_sigmoid) {
    router.score = ScoreFunction::kSigmoid;
    if (config.family == Family::kDeepseekV2) config.family = Family::kDeepseekV3;
    const std::string bias =
        fmt::format("blk.{}.exp_probs_b.bias",
                    std::min<std::int64_t>(dense.value_or(0), config.num_hidden_layers - 1));
    router.has_correction_bias = keys.file().find(bias) != nullptr;
    router.renormalize_eps = 1e-20;
  } else if (router.renormalize) {
    // Implementations of the family disagree on it, and no release has it.
    keys.fail("expert_weights_norm",
              "weights of softmax scores are not renormalised in this "
              "architecture, expected false");
  }
  read_groups_of_keys(keys, config);
}

}  // namespace moe::model
