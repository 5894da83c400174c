// config.json: what is read, what is refused, and the numbers that are resolved from it.

#include "lib/model/config.hpp"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

const fs::path kTinyCheckpoints = fs::path(MOE_SOURCE_DIR) / "scenarios/checkpoints";

// The config of a tiny checkpoint with changes; null removes a key.
std::string changed(const std::string& name, const ordered_json& changes) {
  auto config = ordered_json::parse(test::read_file(kTinyCheckpoints / name / "config.json"));
  config.merge_patch(changes);
  return config.dump();
}

ModelConfig parse(const std::string& name, const ordered_json& changes = ordered_json::object()) {
  return parse_config(changed(name, changes), "config.json");
}

std::string config_refusal(const std::string& name, const ordered_json& changes) {
  try {
    (void)parse(name, changes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
    return error.what();
  }
  return "accepted";
}

struct Refused {
  const char* checkpoint;
  ordered_json changes;
  const char* mention;
};

TEST(Config, ImpossibleValuesAreRefusedByName) {
  const std::vector<Refused> cases = {
      {"mixtral-a", {{"vocab_size", 0}}, "vocab_size"},
      {"mixtral-a", {{"vocab_size", nullptr}}, "vocab_size"},
      {"mixtral-a", {{"hidden_size", true}}, "hidden_size"},
      {"mixtral-a", {{"hidden_size", -64}}, "hidden_size"},
      {"mixtral-a", {{"hidden_size", 18446744073709551615ULL}}, "hidden_size"},
      {"mixtral-a", {{"num_hidden_layers", 100000}}, "num_hidden_layers"},
      {"mixtral-a", {{"num_attention_heads", nullptr}}, "num_attention_heads"},
      {"mixtral-a", {{"num_attention_heads", 0}}, "num_attention_heads"},
      {"mixtral-a", {{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {"mixtral-a", {{"num_attention_heads", 6}}, "head_dim"},
      {"mixtral-a", {{"head_dim", 15}}, "head_dim"},
      {"mixtral-a", {{"head_dim", 0}}, "head_dim"},
      {"mixtral-a", {{"num_attention_heads", 65536}, {"head_dim", 16384}}, "num_attention_heads"},
      {"mixtral-a", {{"rms_norm_eps", 0}}, "rms_norm_eps"},
      {"dbrx-a", {{"attn_config", nullptr}}, "attn_config"},
      {"dbrx-a", {{"attn_config", {{"kv_n_heads", 3}}}}, "kv_n_heads"},
      {"dbrx-a", {{"ffn_config", {{"moe_top_k", 9}}}}, "moe_top_k"},
      {"dbrx-a", {{"ffn_config", {{"ffn_act_fn", {{"name", "gelu"}}}}}}, "ffn_act_fn.name"},
      {"dbrx-a", {{"rope_parameters", {{"rope_theta", 10000.0}}}}, "rope_theta"},
      {"dbrx-a", {{"n_heads", 5}}, "n_heads"},
      {"dbrx-a", {{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {"llama4-a", {{"attn_temperature_tuning", -1}}, "attn_temperature_tuning"},
      {"llama4-a", {{"attn_temperature_tuning", "yes"}}, "attn_temperature_tuning"},
      {"gptoss-a", {{"rope_scaling", nullptr}}, "rope_scaling"},
      {"llama4-a", {{"no_rope_layers", {1, 1}}}, "no_rope_layers"},
      {"llama4-a", {{"use_qk_norm", nullptr}}, "use_qk_norm"},
      {"llama4-a", {{"interleave_moe_layer_step", 5}}, "interleave_moe_layer_step"},
      {"llama4-a", {{"attention_chunk_size", 0}}, "attention_chunk_size"},
      {"mixtral-a", {{"rms_norm_eps", "1e-5"}}, "rms_norm_eps"},
      {"mixtral-a", {{"rms_norm_eps", nullptr}}, "rms_norm_eps"},
      {"mixtral-a", {{"rope_theta", -1}}, "rope_theta"},
      {"mixtral-a", {{"rope_theta", nullptr}}, "rope_theta"},
      {"mixtral-a", {{"max_position_embeddings", 0}}, "max_position_embeddings"},
      {"mixtral-a", {{"sliding_window", -8}}, "sliding_window"},
      {"mixtral-a", {{"num_local_experts", 0}}, "num_local_experts"},
      {"mixtral-a", {{"num_experts", 9}}, "num_experts"},
      {"mixtral-a", {{"num_experts_per_tok", 9}}, "num_experts_per_tok"},
      {"mixtral-a", {{"moe_top_k", 3}}, "moe_top_k"},
      {"mixtral-a", {{"num_local_experts", 65536}, {"num_hidden_layers", 4096}}, "num_experts"},
      {"mixtral-a", {{"eos_token_id", -1}}, "eos_token_id"},
      {"mixtral-a", {{"eos_token_id", {1, "2"}}}, "eos_token_id"},
      {"mixtral-a", {{"hidden_act", "gelu"}}, "gelu"},
      {"mixtral-a", {{"tie_word_embeddings", 1}}, "tie_word_embeddings"},
      {"mixtral-a", {{"layer_types", {"full_attention"}}}, "layer_types"},
      {"mixtral-a",
       {{"layer_types", {"full_attention", "chunked_attention"}}},
       "chunked_attention"},
      {"mixtral-a", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {"qwen3moe-a", {{"norm_topk_prob", nullptr}}, "norm_topk_prob"},
      {"qwen3moe-a", {{"norm_topk_prob", "true"}}, "norm_topk_prob"},
      {"qwen3moe-a", {{"use_qk_norm", false}}, "use_qk_norm"},
      {"qwen3moe-a", {{"decoder_sparse_step", 0}}, "decoder_sparse_step"},
      {"qwen3moe-a", {{"mlp_only_layers", {3}}}, "mlp_only_layers"},
      {"qwen3moe-a", {{"moe_intermediate_size", nullptr}}, "moe_intermediate_size"},
      {"qwen3moe-a", {{"use_sliding_window", true}, {"sliding_window", 8}}, "use_sliding_window"},
      {"qwen3-dense-a", {{"use_sliding_window", true}, {"sliding_window", 0}}, "sliding_window"},
      {"qwen3-dense-a",
       {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", nullptr}},
       "max_window_layers"},
      // layer_types and use_sliding_window contradict each other.
      {"qwen3-dense-a",
       {{"sliding_window", 8}, {"layer_types", {"full_attention", "sliding_attention"}}},
       "layer_types"},
      {"qwen3moe-a", {{"num_key_value_heads", nullptr}}, "num_key_value_heads"},
      {"qwen3moe-a", {{"shared_expert_intermediate_size", 64}}, "shared_expert_intermediate_size"},
      {"qwen2moe-a", {{"shared_expert_intermediate_size", nullptr}}, "shared_expert_intermediate"},
      {"qwen3moe-yarn", {{"rope_scaling", {{"factor", 0.5}}}}, "factor"},
      {"qwen3moe-yarn", {{"rope_scaling", {{"factor", nullptr}}}}, "factor"},
      {"qwen3moe-yarn", {{"rope_scaling", {{"beta_fast", 1}, {"beta_slow", 2}}}}, "beta_fast"},
      {"qwen3moe-yarn",
       {{"rope_scaling", {{"original_max_position_embeddings", nullptr}}}},
       "original_max_position_embeddings"},
      {"qwen3moe-yarn", {{"rope_scaling", {{"type", "linear"}}}}, "rope_type"},
      {"qwen3moe-yarn", {{"rope_scaling", {{"rope_type", "dynamic"}}}}, "dynamic"},
      {"dsv3-a", {{"rope_scaling", {{"type", nullptr}}}}, "rope_type"},
      {"qwen3moe-yarn", {{"rope_parameters", {{"factor", 8}}}}, "factor"},
      {"v5-fused", {{"rope_theta", 5}}, "rope_theta"},
      {"v5-fused",
       {{"rope_parameters", {{"full_attention", ordered_json::object()}}}},
       "full_attention"},
      {"olmoe-a", {{"clip_qkv", 0}}, "clip_qkv"},
      {"dsv2-lite", {{"topk_method", nullptr}}, "topk_method"},
      {"dsv2-lite", {{"topk_method", "noaux_tc"}}, "noaux_tc"},
      {"dsv2-lite", {{"norm_topk_prob", true}}, "norm_topk_prob"},
      {"dsv2-lite", {{"routed_scaling_factor", nullptr}}, "routed_scaling_factor"},
      {"dsv2-group", {{"n_group", 3}}, "n_group"},
      {"dsv3-a", {{"n_group", 16}}, "n_group"},
      {"dsv3-a", {{"topk_group", 0}}, "topk_group"},
      {"dsv3-a", {{"topk_group", 1}, {"num_experts_per_tok", 5}}, "num_experts_per_tok"},
      {"dsv3-a", {{"scoring_func", "softmax"}}, "softmax"},
      {"dsv3-a", {{"attention_bias", true}}, "attention_bias"},
      {"dsv3-a", {{"num_key_value_heads", 2}}, "num_key_value_heads"},
      {"dsv3-a", {{"kv_lora_rank", nullptr}}, "kv_lora_rank"},
      {"dsv3-a", {{"first_k_dense_replace", nullptr}}, "first_k_dense_replace"},
      {"dsv3-a", {{"routed_scaling_factor", 0}}, "routed_scaling_factor"},
      {"dsv3-fp8",
       {{"quantization_config", {{"weight_block_size", nullptr}}}},
       "weight_block_size"},
      {"dsv3-fp8", {{"quantization_config", {{"weight_block_size", {128}}}}}, "weight_block_size"},
      {"dsv3-fp8", {{"quantization_config", {{"fmt", "e5m2"}}}}, "e5m2"},
      {"dsv3-fp8", {{"quantization_config", {{"activation_scheme", "static"}}}}, "static"},
      {"dsv3-fp8", {{"quantization_config", {{"quant_method", nullptr}}}}, "quant_method"},
      {"dsv3-fp8", {{"quantization_config", {{"quant_method", "mxfp4"}}}}, "mxfp4"},
      {"mixtral-a",
       {{"quantization_config", {{"quant_method", "quux"}}}},
       "quant_method \"quux\" is not supported; supported: fp8, mxfp4, gptq, awq"},
      {"gptq-v1", {{"quantization_config", {{"bits", 3}}}}, "quantization_config.bits"},
      {"gptq-v1", {{"quantization_config", {{"group_size", 0}}}}, "group_size"},
      {"gptq-v1", {{"quantization_config", {{"checkpoint_format", "marlin"}}}}, "marlin"},
      {"awq-a", {{"quantization_config", {{"version", "gemv"}}}}, "gemv"},
      {"awq-a", {{"quantization_config", {{"bits", 8}}}}, "quantization_config.bits"},
      {"ct-w4a16", {{"quantization_config", {{"format", "marlin-24"}}}}, "marlin-24"},
      {"ct-w4a16", {{"quantization_config", {{"quantization_status", "frozen"}}}}, "frozen"},
      {"ct-w4a16",
       {{"quantization_config",
         {{"config_groups", {{"group_0", {{"weights", {{"strategy", "block"}}}}}}}}}},
       "config_groups.group_0.weights.strategy"},
      {"ct-w4a16",
       {{"quantization_config",
         {{"config_groups", {{"group_0", {{"weights", {{"type", "float"}}}}}}}}}},
       "config_groups.group_0.weights.type"},
      {"ct-w8a8",
       {{"quantization_config",
         {{"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}}}}}}}}}},
       "int-quantized"},
      {"gptoss-mxfp4", {{"hidden_size", 80}}, "hidden_size"},
      {"gptoss-a", {{"sliding_window", nullptr}}, "sliding_window"},
      {"gptoss-a", {{"experts_per_token", 4}}, "experts_per_token"},
      {"granite-a", {{"logits_scaling", 0}}, "logits_scaling"},
      {"granite-a", {{"attention_multiplier", nullptr}}, "attention_multiplier"},
      {"phimoe-a", {{"num_experts_per_tok", 3}}, "num_experts_per_tok"},
      {"phimoe-a", {{"rope_scaling", {{"short_factor", {1.0, 2.0}}}}}, "short_factor"},
      {"phimoe-a", {{"rope_scaling", {{"long_mscale", nullptr}}}}, "long_mscale"},
      {"phimoe-a", {{"original_max_position_embeddings", 64}}, "original_max_position_embeddings"},
      {"llama-dense-a", {{"mlp_bias", true}}, "mlp_bias"},
      {"llama-dense-a", {{"rope_scaling", {{"high_freq_factor", 0.5}}}}, "high_freq_factor"},
      {"mixtral-a", {{"model_type", "jamba"}}, "jamba"},
      {"mixtral-a", {{"model_type", 5}}, "model_type"},
      {"mixtral-a",
       {{"model_type", "kimi_k25"}, {"text_config", {{"model_type", "kimi_k2"}}}},
       "multimodal wrapper of kimi_k2"},
  };
  for (const Refused& refused : cases) {
    EXPECT_THAT(config_refusal(refused.checkpoint, refused.changes), HasSubstr(refused.mention))
        << refused.checkpoint << " " << refused.changes;
  }
}

TEST(Config, AliasesThatAgreeAreFine) {
  EXPECT_EQ(parse("mixtral-a", {{"num_experts", 8}}).moe.num_experts, 8);
  EXPECT_EQ(parse("v5-fused", {{"rope_theta", 1000000}}).attention.rope.theta, 1e6);
}

TEST(Config, UnknownKeysGiveOneWarning) {
  const ModelConfig config = parse("mixtral-a", {{"frobnicate", 1}, {"zap", {{"a", 1}}}});
  EXPECT_THAT(config.warnings, ::testing::ElementsAre(HasSubstr("frobnicate, zap")));
  EXPECT_TRUE(parse("mixtral-a").warnings.empty());
}

TEST(Config, RouterRulesOfTheFamilies) {
  const RouterRule mixtral = parse("mixtral-a").moe.router;
  EXPECT_EQ(mixtral.score, ScoreFunction::kSoftmax);
  EXPECT_TRUE(mixtral.renormalize);
  EXPECT_FALSE(parse("olmoe-a", {{"norm_topk_prob", nullptr}}).moe.router.renormalize);
  EXPECT_FALSE(parse("qwen2moe-a", {{"norm_topk_prob", nullptr}}).moe.router.renormalize);
  EXPECT_EQ(parse("granite-a").moe.router.score, ScoreFunction::kLogits);

  const RouterRule dsv2 = parse("dsv2-group").moe.router;
  EXPECT_EQ(dsv2.group_rule, GroupRule::kMax);
  EXPECT_EQ(dsv2.scale, 16.0);
  EXPECT_FALSE(dsv2.renormalize);
  EXPECT_EQ(parse("dsv2-lite").moe.router.group_rule, GroupRule::kNone);

  const RouterRule dsv3 = parse("dsv3-a").moe.router;
  EXPECT_EQ(dsv3.score, ScoreFunction::kSigmoid);
  EXPECT_EQ(dsv3.group_rule, GroupRule::kTop2Sum);
  EXPECT_TRUE(dsv3.has_correction_bias);
  EXPECT_EQ(dsv3.renormalize_eps, 1e-20);
  EXPECT_FALSE(parse("glm45-b").moe.router.renormalize);
  EXPECT_EQ(parse("glm45-b").moe.router.scale, 1.5);

  const RouterRule gpt_oss = parse("gptoss-a").moe.router;
  EXPECT_EQ(gpt_oss.score, ScoreFunction::kLogits);
  EXPECT_TRUE(gpt_oss.has_logit_bias);
  EXPECT_EQ(parse("phimoe-a").moe.router.score, ScoreFunction::kSparsemixer);
  EXPECT_EQ(parse("phimoe-a").moe.router.sparsemixer_eps, 0.01);
}

TEST(Config, SparseLayers) {
  const auto sparse = [](const ModelConfig& config) {
    std::vector<bool> layers;
    for (const LayerConfig& layer : config.layers) layers.push_back(layer.is_moe);
    return layers;
  };
  // (L + 1) % 2 == 0 and not listed: layers 1 and 3, of which 3 is listed.
  EXPECT_THAT(sparse(parse("qwen2moe-a")), ::testing::ElementsAre(false, true, false, false));
  EXPECT_THAT(sparse(parse("qwen3moe-a")), ::testing::ElementsAre(true, false, true));
  EXPECT_THAT(sparse(parse("dsv3-a")), ::testing::ElementsAre(false, true, true));
  EXPECT_THAT(sparse(parse("dsv3-a", {{"moe_layer_freq", 2}})),
              ::testing::ElementsAre(false, false, true));
  EXPECT_THAT(sparse(parse("llama-dense-a")), ::testing::ElementsAre(false, false));
}

TEST(Config, Windows) {
  const auto windows = [](const ModelConfig& config) {
    std::vector<int> layers;
    for (const LayerConfig& layer : config.layers) layers.push_back(layer.window);
    return layers;
  };
  EXPECT_THAT(windows(parse("mixtral-a")), ::testing::Each(0));
  EXPECT_THAT(windows(parse("mixtral-b")), ::testing::ElementsAre(8, 8));
  EXPECT_THAT(windows(parse("gptoss-a")), ::testing::ElementsAre(8, 0, 8, 0));
  // Without layer_types the even layers slide.
  EXPECT_THAT(windows(parse("gptoss-a", {{"layer_types", nullptr}})),
              ::testing::ElementsAre(8, 0, 8, 0));
  // A window that use_sliding_window switches off; newer libraries write 0.
  EXPECT_THAT(windows(parse("qwen3moe-a", {{"sliding_window", 4}})), ::testing::Each(0));
  EXPECT_THAT(windows(parse("qwen2moe-a", {{"sliding_window", 0}})), ::testing::Each(0));
  EXPECT_THAT(windows(parse("qwen2moe-a",
                            {{"sliding_window", 0},
                             {"layer_types", std::vector<std::string>(4, "full_attention")}})),
              ::testing::Each(0));
  EXPECT_THAT(windows(parse(
                  "qwen3-dense-a",
                  {{"sliding_window", 4}, {"use_sliding_window", true}, {"max_window_layers", 1}})),
              ::testing::ElementsAre(0, 4));
  EXPECT_THAT(
      windows(parse("qwen3-dense-a", {{"sliding_window", 4},
                                      {"use_sliding_window", true},
                                      {"layer_types", {"full_attention", "sliding_attention"}}})),
      ::testing::ElementsAre(0, 4));
}

TEST(Config, RopeIsResolved) {
  const RopeConfig yarn = parse("qwen3moe-yarn").attention.rope;
  EXPECT_EQ(yarn.kind, RopeKind::kYarn);
  EXPECT_EQ(yarn.factor, 4.0);  // as written, not max_position / original = 3
  EXPECT_DOUBLE_EQ(yarn.attention_scaling, 0.1 * std::log(4.0) + 1.0);
  EXPECT_TRUE(yarn.truncate);
  EXPECT_FALSE(parse("gptoss-a").attention.rope.truncate);
  EXPECT_EQ(parse("qwen3moe-yarn", {{"rope_scaling", {{"attention_factor", 1.5}}}})
                .attention.rope.attention_scaling,
            1.5);

  const ModelConfig group = parse("dsv2-group");
  EXPECT_EQ(group.attention.rope.style, RopeStyle::kPairs);
  EXPECT_EQ(group.attention.rope.dim, 8);
  const double all_dim = 0.1 * 0.707 * std::log(4.0) + 1.0;
  EXPECT_DOUBLE_EQ(group.attention.rope.attention_scaling, (0.1 * std::log(4.0) + 1.0) / all_dim);
  EXPECT_DOUBLE_EQ(group.attention.softmax_scale, all_dim * all_dim / std::sqrt(24.0));
  EXPECT_EQ(group.attention.mla.latent_norm_eps, 1e-6);
  // The new spelling gives the same.
  EXPECT_DOUBLE_EQ(parse("v5-fused-dsv3").attention.softmax_scale,
                   parse("dsv3-a").attention.softmax_scale);

  EXPECT_EQ(parse("glm45-a").attention.rope.dim, 8);  // half of head_dim 16
  // Half is the family's rule, whether the file says so or not and in both spellings.
  EXPECT_EQ(parse("glm45-a", {{"partial_rotary_factor", nullptr}}).attention.rope.dim, 8);
  EXPECT_EQ(parse("glm45-a", {{"partial_rotary_factor", nullptr},
                              {"rope_theta", nullptr},
                              {"rope_scaling", nullptr},
                              {"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}}})
                .attention.rope.dim,
            8);
  EXPECT_EQ(parse("llama-dense-a").attention.rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(parse("llama-dense-a", {{"rope_theta", nullptr}}).attention.rope.theta, 10000.0);
  const RopeConfig longrope = parse("phimoe-a").attention.rope;
  EXPECT_EQ(longrope.kind, RopeKind::kLongrope);
  EXPECT_EQ(longrope.long_factor.size(), 8u);
  EXPECT_EQ(longrope.long_mscale, 1.25);
}

TEST(Config, KeyHeadsDefaultToQueryHeadsWhereTheFamilyIsOlderThanGrouping) {
  for (const char* name : {"llama-dense-a", "olmoe-a", "granite-a"}) {
    const ModelConfig config = parse(name, {{"num_key_value_heads", nullptr}});
    EXPECT_EQ(config.attention.num_kv_heads, config.attention.num_heads) << name;
  }
}

TEST(Config, GraniteMultipliers) {
  const ModelConfig config = parse("granite-a");
  EXPECT_EQ(config.embedding_multiplier, 12.0);
  EXPECT_EQ(config.attention.softmax_scale, 0.0625);
  EXPECT_EQ(config.residual_multiplier, 0.22);
  EXPECT_EQ(config.logits_divisor, 6.0);
}

TEST(Config, EndOfSequenceMayBeAList) {
  EXPECT_THAT(parse("mixtral-a", {{"eos_token_id", {2, 7}}}).eos_token_ids,
              ::testing::ElementsAre(2, 7));
  EXPECT_TRUE(parse("mixtral-a", {{"eos_token_id", nullptr}}).eos_token_ids.empty());
}

TEST(Config, GenerationConfigAddsEndOfSequenceIds) {
  const test::TempDir directory;
  fs::copy_file(kTinyCheckpoints / "mixtral-a" / "config.json", directory / "config.json");
  test::write_file(directory / "generation_config.json", R"({"eos_token_id":[5,2]})");
  EXPECT_THAT(read_config(directory.path()).eos_token_ids, ::testing::ElementsAre(2, 5));
  test::write_file(directory / "generation_config.json", R"({"eos_token_id":"x"})");
  EXPECT_THROW((void)read_config(directory.path()), Error);
}

TEST(Config, TextIsCheckedBeforeItIsParsed) {
  const std::string text = changed("mixtral-a", ordered_json::object());
  EXPECT_THROW((void)parse_config(text + std::string("\0x", 2), "config.json"), Error);
  EXPECT_THROW((void)parse_config(text + "\xff", "config.json"), Error);
  EXPECT_THROW((void)parse_config("", "config.json"), Error);
}

TEST(Config, RouterRulesReadAsWords) {
  EXPECT_EQ(describe_router(parse("tinymoe-qwen3").moe), "softmax over 16, top 4, renormalised");
  EXPECT_THAT(describe_router(parse("dsv3-a").moe),
              HasSubstr("within 2 of 4 groups by their two best"));
}

TEST(Config, Llama4LayersAlternate) {
  const ModelConfig config = parse("llama4-a", {{"no_rope_layers", ordered_json::array()}});
  ASSERT_EQ(config.layers.size(), 4U);
  EXPECT_FALSE(config.layers[0].is_moe);
  EXPECT_TRUE(config.layers[1].is_moe);
  EXPECT_TRUE(config.layers[2].has_rope);
  EXPECT_EQ(config.layers[2].chunk, 16);
  EXPECT_FALSE(config.layers[3].has_rope);
  EXPECT_EQ(config.layers[3].chunk, 0);
}

// A key that is there and null, which merging would remove.
ModelConfig parse_with_null(const std::string& name, const std::vector<std::string>& path) {
  auto config = ordered_json::parse(test::read_file(kTinyCheckpoints / name / "config.json"));
  ordered_json* object = &config;
  for (const std::string& key : path) object = &(*object)[key];
  *object = nullptr;
  return parse_config(config.dump(), "config.json");
}

TEST(Config, Llama4DefaultsOfAbsentKeys) {
  const auto chunk = [](const ModelConfig& config) { return config.layers[0].chunk; };
  EXPECT_EQ(chunk(parse("llama4-a", {{"attention_chunk_size", nullptr}})), 8192);
  EXPECT_EQ(chunk(parse_with_null("llama4-a", {"attention_chunk_size"})), 0);
  // The temperature was a number at first.
  const auto tuned = [](const ordered_json& value) {
    return parse("llama4-a", {{"attn_temperature_tuning", value}}).attention.temperature_scale !=
           0.0;
  };
  EXPECT_TRUE(tuned(4));
  EXPECT_FALSE(tuned(0));
  EXPECT_TRUE(tuned(true));
  EXPECT_FALSE(tuned(false));
  EXPECT_TRUE(tuned(nullptr));
}

TEST(Config, MultimodalLlama4IsItsTextModel) {
  const auto text = ordered_json::parse(test::read_file(kTinyCheckpoints / "llama4-a/config.json"));
  const ordered_json wrapper = {{"model_type", "llama4"}, {"text_config", text}};
  const ModelConfig config = parse_config(wrapper.dump(), "config.json");
  EXPECT_EQ(config.tensor_prefix, "language_model.");
  EXPECT_EQ(config.moe.num_experts, 4);
  EXPECT_TRUE(config.moe.weight_on_input);
}

// The published file has no moe_normalize_expert_weights, which means 1.
TEST(Config, DbrxDividesItsWeightsUnlessNullSaysNo) {
  const ordered_json absent = {{"ffn_config", {{"moe_normalize_expert_weights", nullptr}}}};
  EXPECT_TRUE(parse("dbrx-a", absent).moe.router.renormalize);
  EXPECT_EQ(parse("dbrx-a", absent).moe.router.renormalize_p, 1.0);
  EXPECT_FALSE(parse_with_null("dbrx-a", {"ffn_config", "moe_normalize_expert_weights"})
                   .moe.router.renormalize);
  const ordered_json two = {{"ffn_config", {{"moe_normalize_expert_weights", 2.0}}}};
  EXPECT_EQ(parse("dbrx-a", two).moe.router.renormalize_p, 2.0);
}

}  // namespace
}  // namespace moe::model
