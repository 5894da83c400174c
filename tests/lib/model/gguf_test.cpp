// A GGUF file as a model and as a tokenizer: what its keys mean, what is refused, and the tokenizer
// against the rows that the reference library gave for the same vocabulary as tokenizer.json.

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/model/coded_matrix.hpp"
#include "lib/model/gguf_binder.hpp"
#include "lib/model/gguf_config.hpp"
#include "lib/model/gguf_file.hpp"
#include "lib/model/gguf_tokenizer.hpp"
#include "lib/model/tensor_files.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path kGgufCheckpoints = fs::path(MOE_SOURCE_DIR) / "scenarios/checkpoints";

fs::path gguf_of(const std::string& name) {
  return kGgufCheckpoints / name / "model.gguf";
}

// The file with the first occurrence of some bytes replaced by others of the same length.
std::string edited(const std::string& name, const std::string& from, const std::string& to) {
  std::string bytes = test::read_file(gguf_of(name));
  EXPECT_EQ(from.size(), to.size());
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) bytes.replace(at, from.size(), to);
  return bytes;
}

// "" when it is accepted.
std::string gguf_refusal(const std::string& bytes) {
  try {
    const auto file =
        std::make_shared<const GgufFile>(std::as_bytes(std::span(bytes)), "model.gguf");
    (void)bind_gguf(file, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "";
}

TEST(Gguf, LlamaFilesRotatePairs) {
  const ModelConfig config = read_gguf_config(GgufFile(gguf_of("mixtral-gguf-q8_0")));
  EXPECT_EQ(config.family, Family::kMixtral);
  EXPECT_EQ(config.attention.rope.style, RopeStyle::kPairs);
  EXPECT_TRUE(config.moe.router.renormalize);
  EXPECT_EQ(config.moe.num_experts, 5);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_THAT(config.eos_token_ids, ::testing::ElementsAre(2));
}

// No key says so; it is a rule of the architecture.
TEST(Gguf, Qwen3MoeRotatesHalvesAndRenormalises) {
  const ModelConfig config = read_gguf_config(GgufFile(gguf_of("qwen3moe-gguf-q4_k")));
  EXPECT_EQ(config.family, Family::kQwen3Moe);
  EXPECT_EQ(config.attention.rope.style, RopeStyle::kHalf);
  EXPECT_EQ(config.attention.qk_norm, QkNorm::kPerHead);
  EXPECT_TRUE(config.moe.router.renormalize);
  EXPECT_EQ(config.moe.expert_intermediate_size, 256);
}

ModelConfig config_of(const char* name) {
  return read_gguf_config(
      GgufFile(fs::path(MOE_SOURCE_DIR) / "tests/data/gguf" / (std::string(name) + ".gguf")));
}

TEST(Gguf, DeepseekFilesOfBothKindsHaveTheSameAttention) {
  const ModelConfig apart = config_of("dsv2-lite");  // attn_k_b, key_length_mla
  const ModelConfig whole = config_of("dsv3-a");     // attn_kv_b, key_length
  for (const ModelConfig& config : {apart, whole}) {
    EXPECT_TRUE(config.attention.is_mla);
    EXPECT_EQ(config.attention.num_kv_heads, 4);
    EXPECT_EQ(config.attention.mla.qk_nope_head_dim, 16);
    EXPECT_EQ(config.attention.mla.qk_rope_head_dim, 8);
    EXPECT_EQ(config.attention.mla.v_head_dim, 12);
    EXPECT_EQ(config.attention.rope.style, RopeStyle::kPairs);
    EXPECT_DOUBLE_EQ(config.attention.rope.attention_scaling, 1.0);
    EXPECT_FALSE(config.layers[0].is_moe);
    EXPECT_TRUE(config.layers[1].is_moe);
  }
  EXPECT_EQ(apart.family, Family::kDeepseekV2);
  EXPECT_EQ(apart.moe.router.score, ScoreFunction::kSoftmax);  // no expert_gating_func
  EXPECT_FALSE(apart.moe.router.renormalize);
  EXPECT_EQ(whole.family, Family::kDeepseekV3);
  EXPECT_EQ(whole.moe.router.score, ScoreFunction::kSigmoid);
  EXPECT_EQ(whole.moe.router.group_rule, GroupRule::kTop2Sum);
  EXPECT_EQ(whole.moe.router.num_groups_kept, 2);
  EXPECT_TRUE(whole.moe.router.has_correction_bias);
  EXPECT_TRUE(whole.moe.router.renormalize);
  // The norms of the latents keep 1e-6 whatever the key of the others says.
  EXPECT_FLOAT_EQ(static_cast<float>(whole.norm_eps), 1e-5F);
  EXPECT_DOUBLE_EQ(whole.attention.mla.latent_norm_eps, 1e-6);
}

// No key says so; they are rules of the architectures.
TEST(Gguf, RulesWithoutAKeyAreThoseOfTheModels) {
  const ModelConfig gpt_oss = config_of("gptoss-mxfp4");
  EXPECT_FALSE(gpt_oss.attention.rope.truncate);
  EXPECT_TRUE(gpt_oss.attention.has_sinks);
  EXPECT_EQ(gpt_oss.layers[0].window, 8);
  EXPECT_EQ(gpt_oss.layers[1].window, 0);
  EXPECT_DOUBLE_EQ(gpt_oss.swiglu_limit, 7.0);
  const ModelConfig llama4 = config_of("llama4-a");
  EXPECT_TRUE(llama4.moe.weight_on_input);
  EXPECT_EQ(llama4.attention.qk_norm, QkNorm::kUnitAfterRope);
  EXPECT_TRUE(llama4.layers[2].has_rope);
  EXPECT_FALSE(llama4.layers[3].has_rope);
  EXPECT_EQ(llama4.layers[3].chunk, 0);
  const ModelConfig phimoe = config_of("phimoe-a");
  EXPECT_EQ(phimoe.moe.router.score, ScoreFunction::kSparsemixer);
  EXPECT_EQ(phimoe.norm, NormKind::kLayerNormWithBias);
  EXPECT_THAT(phimoe.warnings, ::testing::Contains(HasSubstr("sparsemixer")));
  EXPECT_EQ(config_of("dbrx-a").norm, NormKind::kLayerNorm);
  EXPECT_EQ(config_of("glm45-a").attention.rope.dim, 8);  // of a head of 16
}

TEST(Gguf, BothPartsOfTheLatentProjectionAreNeeded) {
  std::string bytes = test::read_file(fs::path(MOE_SOURCE_DIR) / "tests/data/gguf/dsv2-lite.gguf");
  EXPECT_EQ(gguf_refusal(bytes), "");
  // Without its value part the latent projection is not whole.
  const std::string name = "blk.1.attn_v_b.weight";
  bytes.replace(bytes.find(name), name.size(), "blk.1.attn_v_x.weight");
  EXPECT_THAT(gguf_refusal(bytes), HasSubstr(name));
}

TEST(Gguf, TensorsKeepTheirBlockTypes) {
  const BoundModel model = bind_checkpoint(kGgufCheckpoints / "qwen3moe-gguf-q4_k_m");
  const LayerView& layer = model.layers.front();
  EXPECT_EQ(storage_name(layer.experts.front().gate), "Q4_K");
  EXPECT_EQ(storage_name(layer.experts.front().down), "Q6_K");
  EXPECT_EQ(storage_name(layer.router), "F32");
  EXPECT_TRUE(model.is_mapped());
}

TEST(Gguf, AFileAndItsFolderAreTheSameModel) {
  EXPECT_EQ(bind_checkpoint(gguf_of("mixtral-gguf-q4_0")).file_bytes,
            bind_checkpoint(kGgufCheckpoints / "mixtral-gguf-q4_0").file_bytes);
}

TEST(Gguf, SeveralFilesOfAFolderAreNotChosenFrom) {
  const test::TempDir directory;
  fs::copy(gguf_of("mixtral-gguf-q4_0"), directory.path() / "a.gguf");
  fs::copy(gguf_of("mixtral-gguf-q4_0"), directory.path() / "b.gguf");
  try {
    (void)bind_checkpoint(directory.path());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("2 GGUF files"));
  }
}

TEST(Gguf, RefusesByNameWhatItDoesNotKnow) {
  const std::string name = "mixtral-gguf-q4_0";
  EXPECT_EQ(gguf_refusal(test::read_file(gguf_of(name))), "");
  // A tensor by another name is missing under its own.
  EXPECT_THAT(gguf_refusal(edited(name, "blk.0.attn_norm", "blk.0.attn_nurm")),
              HasSubstr("blk.0.attn_norm.weight"));
  // A key that a size comes from.
  EXPECT_THAT(gguf_refusal(edited(name, "llama.block_count", "llama.block_kount")),
              HasSubstr("llama.block_count"));
  EXPECT_THAT(gguf_refusal(edited(name, "llama.expert_used_count", "llama.expert_used_kount")),
              HasSubstr("llama.expert_used_count"));
}

// A type that the header reader knows and this reader does not: Q4_1 has other block sizes, so the
// offsets no longer fit either; the message names the tensor in any case.
TEST(Gguf, RefusesAnotherBlockType) {
  const std::string good = test::read_file(gguf_of("mixtral-gguf-f16"));
  const std::string tensor = "blk.0.attn_q.weight";
  std::string bytes = good;
  const std::size_t at = bytes.find(tensor) + tensor.size() + 4 + 2 * 8;
  ASSERT_EQ(bytes[at], 1);  // F16
  bytes[at] = 25;           // I16: the same bytes
  EXPECT_THAT(gguf_refusal(bytes), ::testing::AllOf(HasSubstr(tensor), HasSubstr("I16")));
}

TEST(Gguf, EveryPrefixIsRefused) {
  const std::string good = test::read_file(gguf_of("mixtral-gguf-q4_0"));
  for (std::size_t size = 0; size < good.size(); size += 997) {
    EXPECT_NE(gguf_refusal(good.substr(0, size)), "") << size;
  }
}

struct TokenizerCase {
  const char* checkpoint;
  const char* vectors;
};

class GgufTokenizer : public ::testing::TestWithParam<TokenizerCase> {};

TEST_P(GgufTokenizer, GivesTheIdsOfTheReference) {
  const auto tokenizer = load_gguf_tokenizer(GgufFile(gguf_of(GetParam().checkpoint)));
  ASSERT_TRUE(tokenizer.has_value());
  std::ifstream file(fs::path(MOE_SOURCE_DIR) / "tests/data/tokenizers" / GetParam().vectors /
                     "vectors.jsonl");
  int num_checked = 0;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row["kind"] != "encode") continue;
    const auto ids = row["ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>(), row["add_special_tokens"]), ids)
        << row["text"];
    EXPECT_EQ(tokenizer->decode(ids, true), row["decode_skip_special"].get<std::string>());
    ++num_checked;
  }
  EXPECT_GT(num_checked, 200);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GgufTokenizer,
                         ::testing::Values(TokenizerCase{"mixtral-gguf-q8_0", "checkpoint-spm"},
                                           TokenizerCase{"qwen3moe-gguf-q8_0",
                                                         "checkpoint-bytelevel"}),
                         [](const ::testing::TestParamInfo<TokenizerCase>& param) {
                           return std::string(param.param.vectors) == "checkpoint-spm" ? "Scores"
                                                                                       : "Merges";
                         });

TEST(GgufTokenizer, AnUnknownPreTokenizerIsRefused) {
  const std::string bytes = edited("qwen3moe-gguf-q4_0", "gpt-2", "gpt-x");
  const GgufFile file(std::as_bytes(std::span(bytes)), "model.gguf");
  try {
    (void)load_gguf_tokenizer(file);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tokenizer.ggml.pre"));
    EXPECT_THAT(error.what(), HasSubstr("gpt-x"));
  }
}

}  // namespace
}  // namespace moe::model
