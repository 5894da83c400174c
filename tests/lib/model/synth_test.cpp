// Random checkpoints: they bind, repeat, have the statistics that they promise, and route with the
// popularity that was asked for.

#include "lib/model/synth.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/rng.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/synth_router.hpp"
#include "lib/model/tensor_files.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const fs::path kSynthInputs = fs::path(MOE_SOURCE_DIR) / "scenarios/checkpoints";

std::string config_text(const std::string& name,
                        const ordered_json& changes = ordered_json::object()) {
  auto config = ordered_json::parse(test::read_file(kSynthInputs / name / "config.json"));
  config.merge_patch(changes);
  return config.dump();
}

BoundModel make(const std::string& text, const fs::path& directory, const SynthOptions& options) {
  (void)synth_checkpoint(text, "config.json", directory, options);
  return bind_checkpoint(directory);
}

struct Moments {
  double mean = 0.0;
  double stdev = 0.0;
};

Moments moments(const MatrixView& view) {
  std::vector<float> row(static_cast<std::size_t>(view.cols));
  double sum = 0.0;
  double squares = 0.0;
  for (std::int64_t r = 0; r < view.rows; ++r) {
    read_matrix_row(view, r, row.data());
    for (const float value : row) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  const auto count = static_cast<double>(view.rows * view.cols);
  return {sum / count, std::sqrt(squares / count - sum / count * (sum / count))};
}

TEST(Synth, EveryFamilyBindsWithTheCountsOfItsConfig) {
  for (const char* name :
       {"mixtral-a", "qwen2moe-a", "qwen3moe-a", "qwen3moe-tied", "olmoe-a", "dsv2-group",
        "dsv3-mtp", "kimi-a", "dsv3-fp8", "gptoss-a", "gptoss-mxfp4", "glm45-a", "granite-a",
        "phimoe-a", "llama-dense-a", "qwen3-dense-a", "v5-fused"}) {
    for (const double skew : {0.0, 1.0}) {
      SCOPED_TRACE(name);
      const test::TempDir root;
      SynthOptions options;
      options.shard_bytes = 50'000;
      options.router_skew = skew;
      if (skew > 0.0 && !read_config(kSynthInputs / name).is_moe()) {
        EXPECT_THROW((void)make(config_text(name), root / "out", options), Error);
        continue;
      }
      const BoundModel model = make(config_text(name), root / "out", options);
      EXPECT_TRUE(model.warnings.empty());
      EXPECT_EQ(count_parameters(model).total, count_parameters(model.config).total);
      EXPECT_EQ(count_bytes(model).total, count_bytes(model.config, Dtype::kBf16).total);
      EXPECT_GT(model.files->files().size(), 1u);
      // The data begins at a multiple of 8 and wide types come first: everything is aligned.
      model.files->for_each([](const TensorRef& tensor) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) %
                      static_cast<std::uintptr_t>(dtype_bits(tensor.dtype) / 8),
                  0u);
      });
    }
  }
}

TEST(Synth, SameSeedSameBytesWhateverTheThreadsAndShards) {
  const test::TempDir root;
  const std::string text = config_text("qwen3moe-a", {{"moe_intermediate_size", 2048}});
  ThreadPool pool(3);
  SynthOptions options;
  (void)synth_checkpoint(text, "config.json", root / "a", options);
  options.pool = &pool;
  options.shard_bytes = 1'000'000;
  (void)synth_checkpoint(text, "config.json", root / "b", options);
  options.seed = 2;
  (void)synth_checkpoint(text, "config.json", root / "c", options);
  const TensorFiles a(root / "a");
  const TensorFiles b(root / "b");
  const TensorFiles c(root / "c");
  a.for_each([&](const TensorRef& tensor) {
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, b.find(tensor.name)->bytes)) << tensor.name;
    EXPECT_FALSE(std::ranges::equal(tensor.bytes, c.find(tensor.name)->bytes)) << tensor.name;
  });
}

TEST(Synth, MatricesHaveTheDeviationOfTheirFanIn) {
  const test::TempDir root;
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
    SynthOptions options;
    options.dtype = dtype;
    const BoundModel model = make(config_text("mixtral-a", {{"intermediate_size", 512}}),
                                  root / std::string(dtype_name(dtype)), options);
    EXPECT_EQ(model.layers[0].attention.q.dtype, dtype);
    const FfnView& expert = model.layers[1].experts[3];
    EXPECT_NEAR(moments(expert.gate).stdev, 1.0 / std::sqrt(64.0), 0.002);
    EXPECT_NEAR(moments(expert.gate).mean, 0.0, 0.002);
    EXPECT_NEAR(moments(expert.down).stdev, 1.0 / std::sqrt(512.0), 0.001);
    EXPECT_NEAR(moments(model.layers[0].router).stdev, 2.0 / std::sqrt(64.0), 0.03);
    for (const float weight : read_vector(model.final_norm.weight)) EXPECT_NEAR(weight, 1.0, 0.3);
  }
}

TEST(Synth, QuantisedMatricesHaveTheSameDeviation) {
  const test::TempDir root;
  const BoundModel fp8 = make(config_text("dsv3-fp8-32"), root / "fp8", {});
  const MatrixView& dense = fp8.layers[0].dense.gate;
  EXPECT_EQ(dense.encoding, MatrixEncoding::kFp8Block);
  EXPECT_NEAR(moments(dense).stdev, 1.0 / std::sqrt(160.0), 0.005);
  const BoundModel mxfp4 =
      make(config_text("gptoss-mxfp4", {{"hidden_size", 256}, {"intermediate_size", 512}}),
           root / "mxfp4", {});
  const FfnView& expert = mxfp4.layers[0].experts[1];
  // Block exponents are powers of two: within a factor of sqrt(2).
  EXPECT_GT(moments(expert.gate).stdev, 0.7 / std::sqrt(256.0));
  EXPECT_LT(moments(expert.gate).stdev, 1.42 / std::sqrt(256.0));
  EXPECT_GT(moments(expert.down).stdev, 0.7 / std::sqrt(512.0));
  EXPECT_LT(moments(expert.down).stdev, 1.42 / std::sqrt(512.0));
}

TEST(Synth, KeepsTheKeysOfTheConfig) {
  const test::TempDir root;
  SynthOptions options;
  options.dtype = Dtype::kF32;
  (void)synth_checkpoint(config_text("mixtral-a", {{"my_note", "kept"}}), "config.json",
                         root / "out", options);
  const auto config = ordered_json::parse(test::read_file(root / "out" / "config.json"));
  EXPECT_EQ(config.at("my_note"), "kept");
  EXPECT_EQ(config.at("torch_dtype"), "float32");
  EXPECT_TRUE(fs::exists(root / "out" / "generation_config.json"));
  EXPECT_FALSE(fs::exists(root / "out" / "model.safetensors.index.json"));
}

TEST(Synth, RefusesAndLeavesNothingBehind) {
  const test::TempDir root;
  const auto code = [&](const std::string& text, const fs::path& directory,
                        const SynthOptions& options) {
    try {
      (void)synth_checkpoint(text, "config.json", directory, options);
    } catch (const Error& error) {
      return static_cast<int>(error.code());
    }
    return -1;
  };
  const std::string text = config_text("mixtral-a");
  test::write_file(root / "file", "x");
  EXPECT_EQ(code(text, root / "file", {}), static_cast<int>(ErrorCode::kUsage));
  EXPECT_EQ(code(text, root.path(), {}), static_cast<int>(ErrorCode::kUsage));
  EXPECT_EQ(code(text, root / "new", {.router_skew = -1.0}), static_cast<int>(ErrorCode::kUsage));
  EXPECT_EQ(code(text, root / "new", {.dtype = Dtype::kI8}), static_cast<int>(ErrorCode::kUsage));
  EXPECT_EQ(code("{}", root / "new", {}), static_cast<int>(ErrorCode::kInput));
  Interrupt interrupt;
  interrupt.request();
  EXPECT_EQ(code(text, root / "new", {.interrupt = &interrupt}),
            static_cast<int>(ErrorCode::kRuntime));
  const std::string huge = config_text(
      "mixtral-a",
      {{"hidden_size", 1 << 20}, {"intermediate_size", 1 << 20}, {"num_hidden_layers", 1000}});
  EXPECT_EQ(code(huge, root / "new", {}), static_cast<int>(ErrorCode::kRuntime));
  EXPECT_FALSE(fs::exists(root / "new"));
}

// ---- router skew

// What the first MoE layer sees: the normed embedding of every token. (Attention adds little to it
// and nothing to a constant channel.)
std::vector<std::vector<double>> router_inputs(const BoundModel& model, std::size_t layer) {
  const auto width = static_cast<std::size_t>(model.config.hidden_size);
  const std::vector<float> weight = read_vector(model.layers[layer].post_attention_norm.weight);
  std::vector<float> bias(width, 0.0f);
  const bool is_layer_norm = !model.layers[layer].post_attention_norm.bias.empty();
  if (is_layer_norm) bias = read_vector(model.layers[layer].post_attention_norm.bias);
  std::vector<std::vector<double>> inputs;
  std::vector<float> row(width);
  for (std::int64_t token = 0; token < model.config.vocab_size; ++token) {
    read_matrix_row(model.embedding, token, row.data());
    const double mean =
        is_layer_norm ? std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(width)
                      : 0.0;
    double squares = 0.0;
    for (const float value : row) squares += std::pow(static_cast<double>(value) - mean, 2.0);
    const double rms = std::sqrt(squares / static_cast<double>(width) + model.config.norm_eps);
    std::vector<double> input(width);
    for (std::size_t i = 0; i < width; ++i) {
      input[i] = (static_cast<double>(row[i]) - mean) / rms * static_cast<double>(weight[i]) +
                 static_cast<double>(bias[i]);
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// How often each expert of the layer is among the top k (families without groups).
std::vector<std::int64_t> selections(const BoundModel& model, std::size_t layer) {
  const LayerView& view = model.layers[layer];
  const auto experts = static_cast<std::size_t>(model.config.moe.num_experts);
  std::vector<double> offset(experts, 0.0);
  const VectorView& bias = view.router_bias.empty() ? view.correction_bias : view.router_bias;
  if (!bias.empty()) {
    const std::vector<float> values = read_vector(bias);
    offset.assign(values.begin(), values.end());
  }
  std::vector<std::vector<float>> rows(experts);
  for (std::size_t expert = 0; expert < experts; ++expert) {
    rows[expert].resize(static_cast<std::size_t>(view.router.cols));
    read_matrix_row(view.router, static_cast<std::int64_t>(expert), rows[expert].data());
  }
  std::vector<std::int64_t> counts(experts, 0);
  for (const std::vector<double>& input : router_inputs(model, layer)) {
    std::vector<std::pair<double, std::size_t>> scores;
    for (std::size_t expert = 0; expert < experts; ++expert) {
      double score = 0.0;
      for (std::size_t i = 0; i < input.size(); ++i) {
        score += static_cast<double>(rows[expert][i]) * input[i];
      }
      if (model.config.moe.router.score == ScoreFunction::kSigmoid) {
        score = 1.0 / (1.0 + std::exp(-score));
      }
      scores.emplace_back(score + offset[expert], expert);
    }
    std::ranges::sort(scores, std::greater<>());
    for (std::size_t k = 0; k < static_cast<std::size_t>(model.config.moe.top_k); ++k) {
      ++counts[scores[k].second];
    }
  }
  return counts;
}

// Least squares of log(count) over log(rank).
double zipf_exponent(std::vector<std::int64_t> counts) {
  std::ranges::sort(counts, std::greater<>());
  double sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0;
  const auto n = static_cast<double>(counts.size());
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const double x = std::log(static_cast<double>(rank + 1));
    const double y = std::log(static_cast<double>(std::max<std::int64_t>(counts[rank], 1)));
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return -(n * sxy - sx * sy) / (n * sxx - sx * sx);
}

struct SkewCase {
  const char* name;
  ordered_json changes;
};

TEST(SynthRouterSkew, PopularityFollowsTheAskedExponent) {
  const ordered_json shape = {{"hidden_size", 256}, {"vocab_size", 4096}};
  const std::vector<SkewCase> cases = {
      {"qwen3moe-a", {{"num_experts", 32}, {"num_experts_per_tok", 4}}},       // constant channel
      {"qwen3moe-tied", {{"num_experts", 32}, {"num_experts_per_tok", 4}}},    // the same, tied
      {"granite-a", {{"num_local_experts", 32}, {"num_experts_per_tok", 4}}},  // with multipliers
      {"gptoss-a",                                                             // router bias
       {{"num_local_experts", 32}, {"num_experts_per_tok", 4}, {"experts_per_token", 4}}},
      {"kimi-a", {{"n_routed_experts", 32}, {"num_experts_per_tok", 4}}},  // correction bias
      {"phimoe-a", {{"num_local_experts", 32}, {"head_dim", 16}}},         // norm bias
  };
  for (const SkewCase& test_case : cases) {
    SCOPED_TRACE(test_case.name);
    ordered_json changes = shape;
    changes.update(test_case.changes);
    double previous = -0.1;
    for (const double asked : {0.0, 0.5, 1.0}) {
      const test::TempDir root;
      SynthOptions options;
      options.router_skew = asked;
      const BoundModel model = make(config_text(test_case.name, changes), root / "out", options);
      const std::size_t layer = model.config.layers[0].is_moe ? 0 : 1;
      const double found = zipf_exponent(selections(model, layer));
      EXPECT_GT(found, previous + 0.1);
      if (asked > 0.0) {
        EXPECT_NEAR(found, asked, 0.2);
      }
      previous = found;
    }
  }
}

TEST(SynthRouterSkew, PopularExpertsDifferFromLayerToLayer) {
  const test::TempDir root;
  SynthOptions options;
  options.router_skew = 1.0;
  const BoundModel model = make(config_text("mixtral-a", {{"hidden_size", 256},
                                                          {"vocab_size", 2048},
                                                          {"num_hidden_layers", 8},
                                                          {"num_local_experts", 16}}),
                                root / "out", options);
  std::map<std::ptrdiff_t, int> hottest;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    const auto counts = selections(model, layer);
    ++hottest[std::ranges::max_element(counts) - counts.begin()];
  }
  EXPECT_GE(hottest.size(), 4u);
}

TEST(SynthRouterSkew, SharesAddUpToTheExpertsPerToken) {
  for (const double exponent : {0.0, 0.3, 1.0, 2.0, 4.0}) {
    for (const auto& [experts, top_k] : {std::pair{8, 2}, {64, 8}, {384, 8}, {4, 3}, {2, 2}}) {
      const auto shares = zipf_selection_shares(experts, top_k, exponent);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), top_k, 1e-9);
      EXPECT_TRUE(std::ranges::is_sorted(shares, std::greater<>()));
      EXPECT_LE(shares.front(), 1.0);
    }
  }
}

TEST(SynthRouterSkew, GroupsKeepTheirMembers) {
  MoeConfig moe;
  moe.num_experts = 16;
  moe.top_k = 4;
  moe.router.num_groups = 4;
  const auto permutation = expert_permutation(moe, 1, 3);
  for (std::size_t group = 0; group < 4; ++group) {
    for (std::size_t i = 1; i < 4; ++i) {
      EXPECT_EQ(permutation[group * 4 + i] / 4, permutation[group * 4] / 4);
    }
  }
  auto sorted = permutation;
  std::ranges::sort(sorted);
  for (std::int32_t i = 0; i < 16; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace moe::model
