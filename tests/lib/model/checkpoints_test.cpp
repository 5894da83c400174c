// Every tiny checkpoint binds, and its views hold the right numbers: the router and the whole MoE
// block are recomputed from the views in double and compared with the golden outputs, which come
// from an independent reference.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;

const fs::path kCheckpoints = fs::path(MOE_SOURCE_DIR) / "scenarios/checkpoints";

struct Case {
  const char* name;
  Family family;
  bool has_layer_goldens = true;
};

std::ostream& operator<<(std::ostream& out, const Case& test_case) {
  return out << test_case.name;
}

const std::vector<Case> kCases = {
    {"mixtral-a", Family::kMixtral},
    {"mixtral-b", Family::kMixtral},
    {"qwen3moe-a", Family::kQwen3Moe},
    {"qwen3moe-yarn", Family::kQwen3Moe},
    {"qwen3moe-tied", Family::kQwen3Moe},
    {"olmoe-a", Family::kOlmoe},
    {"qwen2moe-a", Family::kQwen2Moe},
    {"dsv2-lite", Family::kDeepseekV2},
    {"dsv2-group", Family::kDeepseekV2},
    {"dsv3-a", Family::kDeepseekV3},
    {"dsv3-mtp", Family::kDeepseekV3},
    {"kimi-a", Family::kDeepseekV3},
    {"dsv3-fp8", Family::kDeepseekV3},
    {"dsv3-fp8-32", Family::kDeepseekV3},
    {"gptoss-a", Family::kGptOss},
    {"gptoss-b", Family::kGptOss},
    {"gptoss-mxfp4", Family::kGptOss},
    {"glm45-a", Family::kGlm4Moe},
    {"glm45-b", Family::kGlm4Moe},
    {"granite-a", Family::kGraniteMoe},
    {"phimoe-a", Family::kPhimoe},
    {"dbrx-a", Family::kDbrx},
    {"llama4-a", Family::kLlama4},
    {"llama-dense-a", Family::kLlama},
    {"qwen3-dense-a", Family::kQwen3},
    {"v5-fused", Family::kQwen3Moe},
    {"v5-fused-mixtral", Family::kMixtral},
    {"v5-fused-dsv3", Family::kDeepseekV3},
    {"gptq-v1", Family::kQwen3Moe},
    {"gptq-v2", Family::kQwen3Moe},
    {"gptq-desc", Family::kQwen3Moe},
    {"gptq-zero15", Family::kQwen3Moe},
    {"awq-a", Family::kQwen3Moe},
    {"ct-w4a16", Family::kQwen3Moe},
    {"ct-w8a8", Family::kQwen3Moe},
    {"mixtral-gguf-bf16", Family::kMixtral, false},
    {"mixtral-gguf-f16", Family::kMixtral, false},
    {"mixtral-gguf-q8_0", Family::kMixtral, false},
    {"mixtral-gguf-q4_0", Family::kMixtral, false},
    {"mixtral-gguf-q4_k", Family::kMixtral, false},
    {"mixtral-gguf-q6_k", Family::kMixtral, false},
    {"mixtral-gguf-mxfp4", Family::kMixtral, false},
    {"qwen3moe-gguf-q4_k_m", Family::kQwen3Moe, false},
    {"tinymoe-qwen3", Family::kQwen3Moe, false},
    {"tinymoe-draft", Family::kQwen3, false},
};

class Checkpoint : public ::testing::TestWithParam<Case> {};

using Vector = std::vector<double>;

Vector multiply(const MatrixView& matrix, const Vector& x, const VectorView& bias) {
  EXPECT_EQ(std::ssize(x), matrix.cols);
  Vector y(static_cast<std::size_t>(matrix.rows), 0.0);
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    read_matrix_row(matrix, r, row.data());
    for (std::size_t c = 0; c < row.size(); ++c) {
      y[static_cast<std::size_t>(r)] += static_cast<double>(row[c]) * x[c];
    }
  }
  if (!bias.empty()) {
    const std::vector<float> values = read_vector(bias);
    for (std::size_t r = 0; r < y.size(); ++r) y[r] += static_cast<double>(values[r]);
  }
  return y;
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

Vector feed_forward(const ModelConfig& config, const FfnView& ffn, const Vector& x) {
  Vector gate = multiply(ffn.gate, x, ffn.gate_bias);
  const Vector up = multiply(ffn.up, x, ffn.up_bias);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    if (config.activation == Activation::kSiluGlu) {
      gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
    } else {
      const double g = std::min(gate[i], config.swiglu_limit);
      const double u = std::clamp(up[i], -config.swiglu_limit, config.swiglu_limit);
      gate[i] = g * sigmoid(config.swiglu_alpha * g) * (u + 1.0);
    }
  }
  return multiply(ffn.down, gate, ffn.down_bias);
}

// Row `token` of a golden [tokens, width] tensor.
Vector golden_row(const std::vector<float>& values, std::size_t token, std::size_t width) {
  return {values.begin() + static_cast<std::ptrdiff_t>(token * width),
          values.begin() + static_cast<std::ptrdiff_t>((token + 1) * width)};
}

void expect_near(const Vector& found, const Vector& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0.0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], 1e-4 * std::max(1.0, largest)) << what << " element " << i;
  }
}

TEST_P(Checkpoint, Binds) {
  const BoundModel model = bind_checkpoint(kCheckpoints / GetParam().name);
  EXPECT_EQ(model.config.family, GetParam().family);
  EXPECT_EQ(std::ssize(model.layers), model.config.num_hidden_layers);
  EXPECT_EQ(model.lm_head.rows, model.config.vocab_size);
  EXPECT_THAT(model.warnings, ::testing::IsEmpty());
  EXPECT_THAT(compare_counts(count_parameters(model.config), count_parameters(model)),
              ::testing::IsEmpty());
  EXPECT_LT(count_bytes(model).total, model.file_bytes);
}

TEST_P(Checkpoint, EmbeddingRowsAreTheGoldenOnes) {
  if (!GetParam().has_layer_goldens) GTEST_SKIP() << "the golden file has logits only";
  const BoundModel model = bind_checkpoint(kCheckpoints / GetParam().name);
  const SafetensorsFile golden(kCheckpoints / GetParam().name / "golden.safetensors");
  const std::vector<std::int32_t> ids = to_i32(golden.at("input_ids"));
  const std::vector<float> embed = to_f32(golden.at("embed"));
  const auto width = static_cast<std::size_t>(model.config.hidden_size);
  std::vector<float> row(width);
  for (std::size_t token = 0; token < ids.size(); ++token) {
    read_matrix_row(model.embedding, ids[token], row.data());
    Vector scaled(row.begin(), row.end());
    for (double& value : scaled) value *= model.config.embedding_multiplier;
    expect_near(scaled, golden_row(embed, token, width), "embed");
  }
}

TEST_P(Checkpoint, FeedForwardBlocksGiveTheGoldenOutputs) {
  if (!GetParam().has_layer_goldens) GTEST_SKIP() << "the golden file has logits only";
  const BoundModel model = bind_checkpoint(kCheckpoints / GetParam().name);
  const ModelConfig& config = model.config;
  const SafetensorsFile golden(kCheckpoints / GetParam().name / "golden.safetensors");
  const auto width = static_cast<std::size_t>(config.hidden_size);
  int num_checked = 0;
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    if (!config.is_moe() || !config.layers[layer].is_moe) continue;
    const LayerView& view = model.layers[layer];
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    const std::vector<float> inputs = to_f32(golden.at(prefix + "router_in"));
    const std::vector<float> logits = to_f32(golden.at(prefix + "router_logits"));
    const std::vector<std::int32_t> ids = to_i32(golden.at(prefix + "sel_ids"));
    const std::vector<float> weights = to_f32(golden.at(prefix + "sel_w"));
    const std::vector<float> outputs = to_f32(golden.at(prefix + "moe_out"));
    const auto experts = static_cast<std::size_t>(config.moe.num_experts);
    const auto top_k = static_cast<std::size_t>(config.moe.top_k);
    for (std::size_t token = 0; token < 6; ++token) {
      const Vector x = golden_row(inputs, token, width);
      expect_near(multiply(view.router, x, view.router_bias), golden_row(logits, token, experts),
                  prefix + "router_logits");
      Vector y(width, 0.0);
      for (std::size_t k = 0; k < top_k; ++k) {
        const auto expert = static_cast<std::size_t>(ids[token * top_k + k]);
        const auto weight = static_cast<double>(weights[token * top_k + k]);
        Vector input = x;
        if (config.moe.weight_on_input) {
          for (double& value : input) value *= weight;
        }
        const Vector out = feed_forward(config, view.experts[expert], input);
        const double factor = config.moe.weight_on_input ? 1.0 : weight;
        for (std::size_t i = 0; i < width; ++i) y[i] += factor * out[i];
      }
      if (config.moe.shared_intermediate_size > 0) {
        const Vector out = feed_forward(config, view.shared, x);
        double scale = 1.0;
        if (config.moe.has_shared_gate) {
          const std::vector<float> gate = read_vector(view.shared_gate);
          double z = 0.0;
          for (std::size_t i = 0; i < width; ++i) z += static_cast<double>(gate[i]) * x[i];
          scale = sigmoid(z);
        }
        for (std::size_t i = 0; i < width; ++i) y[i] += scale * out[i];
      }
      expect_near(y, golden_row(outputs, token, width), prefix + "moe_out");
      ++num_checked;
    }
  }
  EXPECT_EQ(num_checked > 0, config.is_moe());
}

// The head turns the golden final norm into the golden logits, whether tied or not.
TEST_P(Checkpoint, HeadGivesTheGoldenLogits) {
  if (!GetParam().has_layer_goldens) GTEST_SKIP() << "the golden file has logits only";
  const BoundModel model = bind_checkpoint(kCheckpoints / GetParam().name);
  const SafetensorsFile golden(kCheckpoints / GetParam().name / "golden.safetensors");
  const auto width = static_cast<std::size_t>(model.config.hidden_size);
  const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
  const std::vector<float> inputs = to_f32(golden.at("final_norm"));
  const std::vector<float> logits = to_f32(golden.at("logits"));
  for (std::size_t token = 0; token < 3; ++token) {
    Vector found = multiply(model.lm_head, golden_row(inputs, token, width), model.lm_head_bias);
    for (double& value : found) value /= model.config.logits_divisor;
    expect_near(found, golden_row(logits, token, vocab), "logits");
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Checkpoint, ::testing::ValuesIn(kCases),
                         [](const ::testing::TestParamInfo<Case>& param) {
                           std::string name = param.param.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(CheckpointConfig, EndOfSequenceIdsComeFromBothFiles) {
  const ModelConfig config = read_config(kCheckpoints / "tinymoe-qwen3");
  EXPECT_THAT(config.eos_token_ids, ::testing::ElementsAre(2046));
  EXPECT_EQ(config.bos_token_id, 2045);
}

TEST(CheckpointBinding, IgnoredTensorsNameTheirRule) {
  const BoundModel model = bind_checkpoint(kCheckpoints / "dsv3-mtp");
  ASSERT_FALSE(model.ignored_tensors.empty());
  for (const std::string& line : model.ignored_tensors) {
    EXPECT_THAT(line, ::testing::StartsWith("model.layers.3."));
    EXPECT_THAT(line, ::testing::HasSubstr("num_nextn_predict_layers"));
  }
}

TEST(CheckpointBinding, ZeroPointsOfVersion2AreKnownByWhatTheyAre) {
  const BoundModel model = bind_checkpoint(kCheckpoints / "gptq-v2-mislabelled");
  EXPECT_THAT(model.warnings, ::testing::ElementsAre(::testing::HasSubstr("checkpoint_format")));
  EXPECT_THAT(bind_checkpoint(kCheckpoints / "gptq-v2").warnings, ::testing::IsEmpty());
}

// A group index that a damaged file could hold.
TEST(CheckpointBinding, GroupsOfActivationOrderAreChecked) {
  const test::TempDir directory;
  std::filesystem::copy(kCheckpoints / "gptq-desc", directory.path() / "c");
  std::string bytes = test::read_file(directory.path() / "c/model.safetensors");
  const SafetensorsFile file(directory.path() / "c/model.safetensors");
  const TensorRef tensor = file.at("model.layers.0.mlp.experts.0.gate_proj.g_idx");
  const auto at = static_cast<std::size_t>(tensor.bytes.data() - file.map().bytes().data());
  for (const char value : {char{5}, char{-1}}) {
    std::string damaged = bytes;
    damaged[at] = value;
    test::write_file(directory.path() / "c/model.safetensors", damaged);
    try {
      (void)bind_checkpoint(directory.path() / "c");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("gate_proj.g_idx"));
    }
  }
}

// A copy of a checkpoint with parts of its tensors' names replaced.
void copy_renamed(const std::string& checkpoint, const fs::path& directory,
                  const std::vector<std::pair<std::string, std::string>>& renames) {
  fs::create_directory(directory);
  fs::copy(kCheckpoints / checkpoint / "config.json", directory / "config.json");
  const SafetensorsFile file(kCheckpoints / checkpoint / "model.safetensors");
  std::vector<TensorDeclaration> declarations;
  for (const TensorEntry& entry : file.entries()) {
    std::string name = entry.name;
    for (const auto& [from, to] : renames) {
      if (const auto at = name.find(from); at != std::string::npos) {
        name.replace(at, from.size(), to);
      }
    }
    declarations.push_back({name, entry.dtype, entry.shape});
  }
  SafetensorsWriter writer(directory / "model.safetensors", declarations);
  for (const TensorEntry& entry : file.entries()) writer.write(file.ref(entry).bytes);
  writer.finish();
}

// As the library names them in memory, and writes them when it is told to keep its names.
TEST(CheckpointBinding, GraniteInTheNamesOfNewerLibraries) {
  const test::TempDir directory;
  copy_renamed("granite-a", directory / "c",
               {{"block_sparse_moe.router.layer.weight", "block_sparse_moe.router.weight"},
                {"block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"},
                {"block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"}});
  const BoundModel renamed = bind_checkpoint(directory / "c");
  const BoundModel model = bind_checkpoint(kCheckpoints / "granite-a");
  const auto rows = [](const MatrixView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols));
    for (std::int64_t row = 0; row < view.rows; ++row) {
      read_matrix_row(view, row, values.data() + row * view.cols);
    }
    return values;
  };
  for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
    EXPECT_EQ(rows(renamed.layers[layer].router), rows(model.layers[layer].router));
    for (std::size_t expert = 0; expert < model.layers[layer].experts.size(); ++expert) {
      const FfnView& found = renamed.layers[layer].experts[expert];
      const FfnView& expected = model.layers[layer].experts[expert];
      EXPECT_EQ(rows(found.gate), rows(expected.gate));
      EXPECT_EQ(rows(found.up), rows(expected.up));
      EXPECT_EQ(rows(found.down), rows(expected.down));
    }
  }
}

TEST(CheckpointBinding, HeadersAloneGiveTheSameCounts) {
  const BoundModel full = bind_checkpoint(kCheckpoints / "gptoss-mxfp4");
  const BoundModel headers = bind_checkpoint(kCheckpoints / "gptoss-mxfp4", {.scan_values = false});
  EXPECT_EQ(count_bytes(full).total, count_bytes(headers).total);
}

}  // namespace
}  // namespace moe::model
