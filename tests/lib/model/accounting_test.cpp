// Parameters and bytes of published models, from config.json alone and from headers alone.

#include "lib/model/accounting.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/model/architecture.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "lib/model/synth_plan.hpp"
#include "lib/model/text_file.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(MOE_SOURCE_DIR) / "scenarios/models";

ModelConfig config_of(const std::string& name) {
  const fs::path file = kModels / (name + ".json");
  return parse_config(test::read_file(file), file);
}

struct Published {
  const char* name;
  double total_billions;
  double active_billions;
  enum Convention { kWithEmbeddings, kWithoutInputEmbedding, kWithoutEmbeddings } convention;
};

// Figures of model cards and reports; the last digit given is the tolerance.
TEST(ParameterCounts, MatchPublishedFigures) {
  const std::vector<Published> models = {
      {"Mixtral-8x7B-v0.1", 46.7, 12.9, Published::kWithEmbeddings},
      {"Mixtral-8x22B-v0.1", 140.6, 39.2, Published::kWithEmbeddings},
      {"OLMoE-1B-7B", 6.92, 1.3, Published::kWithEmbeddings},
      {"Qwen1.5-MoE-A2.7B", 14.3, 2.7, Published::kWithEmbeddings},
      {"Qwen3-30B-A3B", 30.5, 3.3, Published::kWithEmbeddings},
      {"Qwen3-235B-A22B", 235.1, 22.2, Published::kWithEmbeddings},
      {"DeepSeek-V2-Lite", 15.7, 2.4, Published::kWithoutInputEmbedding},
      {"DeepSeek-V2", 235.7, 21.4, Published::kWithEmbeddings},
      {"DeepSeek-V3", 671.0, 36.7, Published::kWithoutInputEmbedding},
      {"GLM-4.5", 352.8, 32.0, Published::kWithoutEmbeddings},
      {"Phi-3.5-MoE", 41.9, 6.6, Published::kWithEmbeddings},
      {"gpt-oss-20b", 20.9, 3.6, Published::kWithoutInputEmbedding},
      {"gpt-oss-120b", 116.8, 5.1, Published::kWithoutInputEmbedding},
  };
  for (const Published& model : models) {
    SCOPED_TRACE(model.name);
    const ParameterCounts counts = count_parameters(config_of(model.name));
    const std::int64_t active = model.convention == Published::kWithEmbeddings
                                    ? counts.active_with_embeddings
                                : model.convention == Published::kWithoutInputEmbedding
                                    ? counts.active_without_input_embedding
                                    : counts.active_without_embeddings;
    EXPECT_NEAR(static_cast<double>(counts.total) / 1e9, model.total_billions, 0.051);
    EXPECT_NEAR(static_cast<double>(active) / 1e9, model.active_billions, 0.1);
  }
}

// Counts that other tools print to the last digit (see scenarios/models/SOURCES.md).
TEST(ParameterCounts, AreExact) {
  EXPECT_EQ(count_parameters(config_of("Mixtral-8x7B-v0.1")).total, 46'702'792'704);
  EXPECT_EQ(count_parameters(config_of("Qwen3-30B-A3B")).total, 30'532'122'624);
  EXPECT_EQ(count_parameters(config_of("DeepSeek-V3")).total, 671'026'419'200);
  EXPECT_EQ(count_parameters(config_of("Kimi-K2-Instruct")).total, 1'026'408'232'448);
  EXPECT_EQ(count_parameters(config_of("Granite-3.0-1B-A400M")).total, 1'334'628'352);
  EXPECT_EQ(count_parameters(config_of("gpt-oss-20b")).total, 20'914'757'184);
}

TEST(ParameterCounts, EveryModelConfigOfTheProjectIsRead) {
  int num_models = 0;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename());
    const std::string text = test::read_file(entry.path());
    if (!parse_architecture(text, entry.path()).is_engine_family) continue;
    const ModelConfig config = config_of(entry.path().stem());
    const ParameterCounts counts = count_parameters(config);
    EXPECT_GT(counts.total, counts.active_with_embeddings);
    std::int64_t layers = 0;
    for (const LayerCounts& layer : counts.layers) layers += layer.total;
    EXPECT_EQ(layers + counts.of(Part::kEmbedding) + counts.of(Part::kHead) +
                  config.hidden_size * (config.norm == NormKind::kRms ? 1 : 2),
              counts.total);
    ++num_models;
  }
  EXPECT_GE(num_models, 20);
}

TEST(ByteCounts, GptOss120bIsThePublishedCheckpoint) {
  EXPECT_EQ(count_bytes(config_of("gpt-oss-120b"), Dtype::kBf16).total, 65'248'815'744);
}

TEST(ByteCounts, Fp8LeavesListedModulesAlone) {
  const ModelConfig config = config_of("Qwen3-30B-A3B-FP8");
  const ByteCounts bytes = count_bytes(config, Dtype::kBf16);
  const ParameterCounts parameters = count_parameters(config);
  EXPECT_EQ(bytes.of(Part::kRouter), 2 * parameters.of(Part::kRouter));
  EXPECT_EQ(bytes.of(Part::kHead), 2 * parameters.of(Part::kHead));
  // One code a weight and four bytes of scale a 128 x 128 block: every width is a multiple of 128.
  EXPECT_EQ(bytes.of(Part::kRoutedExperts),
            parameters.of(Part::kRoutedExperts) + parameters.of(Part::kRoutedExperts) / 4096);
}

TEST(ModuleNames, StarsMatchAnyText) {
  ModelConfig config;
  config.quant.modules_not_converted = {"model.layers.*.self_attn", "re*d"};
  const auto is_left = [&](const char* name) {
    ExpectedTensor tensor;
    tensor.name = name;
    return is_left_unquantized(config, tensor);
  };
  EXPECT_TRUE(is_left("model.layers.12.self_attn.q_proj.weight"));
  EXPECT_FALSE(is_left("model.layers.12.self_attention.q_proj.weight"));
  EXPECT_FALSE(is_left("model.layers.12.mlp.gate.weight"));
  EXPECT_TRUE(is_left("read.weight"));
  EXPECT_FALSE(is_left("ready.weight"));
}

// A checkpoint of the published size of DeepSeek-V3 in sparse files: true headers, no data.
TEST(Headers, SevenHundredGigabytesAreCountedWithoutReadingThem) {
  const test::TempDir directory;
  const fs::path config_file = kModels / "DeepSeek-V3.json";
  fs::copy_file(config_file, directory / "config.json");
  const ModelConfig config = parse_config(test::read_file(config_file), config_file);
  std::vector<PlannedTensor> tensors = plan_synthetic_tensors(config, SynthOptions{});
  constexpr std::size_t kShards = 163;
  const std::size_t per_shard = tensors.size() / kShards + 1;
  for (std::size_t shard = 0; shard < kShards; ++shard) {
    std::string header = "{";
    std::int64_t offset = 0;
    for (std::size_t at = shard * per_shard; at < std::min((shard + 1) * per_shard, tensors.size());
         ++at) {
      const TensorDeclaration& tensor = tensors[at].declaration;
      const std::int64_t end = offset + tensor_bytes(tensor.dtype, tensor.shape).value();
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                            header.size() > 1 ? "," : "", tensor.name, dtype_name(tensor.dtype),
                            tensor.shape.to_string(), offset, end);
      offset = end;
    }
    header += "}";
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i)
      bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    const fs::path file =
        directory / fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, kShards);
    test::write_file(file, bytes + header);
    fs::resize_file(file, 8 + header.size() + static_cast<std::uintmax_t>(offset));
  }

  const auto start = std::chrono::steady_clock::now();
  const BoundModel model = bind_checkpoint(directory.path(), {.scan_values = false});
  const ByteCounts bytes = count_bytes(model);
  const double elapsed_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  EXPECT_GT(model.file_bytes, 670'000'000'000);
  EXPECT_EQ(count_parameters(model).total, 671'026'419'200);
  EXPECT_EQ(bytes.total, count_bytes(config, Dtype::kBf16).total);
  EXPECT_EQ(bytes.by_dtype.front().first, "F8_E4M3");
  RecordProperty("elapsed_ms", std::to_string(elapsed_s * 1e3));
  // Generous: sanitizer builds on a busy machine take many times the usual quarter of a second.
  EXPECT_LT(elapsed_s, 30.0);
}

}  // namespace
}  // namespace moe::model
