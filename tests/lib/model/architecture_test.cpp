#include "lib/model/architecture.hpp"

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/model/accounting.hpp"
#include "lib/model/config.hpp"
#include "lib/model/safetensors.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kModelConfigs = fs::path(MOE_SOURCE_DIR) / "scenarios/models";

std::string text_of_file(const fs::path& path) {
  return test::read_file(path);
}

Architecture architecture_of(const std::string& name, const ArchitectureOptions& options = {}) {
  const fs::path file = kModelConfigs / (name + ".json");
  return parse_architecture(text_of_file(file), file.string(), options);
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_architecture(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "accepted";
}

struct Counts {
  std::string name;
  std::int64_t total;
  std::int64_t active;  // with embedding and head; 0: not compared
};

// Totals and active counts of a study that computed them apart from this code
// (scenarios/models/SOURCES.md).
TEST(Architecture, CountsAreThoseOfTheSources) {
  const std::vector<Counts> models = {
      {"Mixtral-8x7B-v0.1", 46'702'792'704, 12'879'925'248},
      {"Mixtral-8x22B-v0.1", 140'620'634'112, 39'152'031'744},
      {"OLMoE-1B-7B", 6'919'161'856, 1'282'017'280},
      {"Qwen1.5-MoE-A2.7B", 14'315'784'192, 2'689'173'504},
      {"Qwen2-57B-A14B", 57'408'658'944, 14'249'270'784},
      {"Qwen3-30B-A3B", 30'532'122'624, 3'353'032'704},
      {"Qwen3-235B-A22B", 235'093'634'560, 22'190'763'520},
      {"Qwen3-Coder-480B-A35B", 480'154'875'392, 35'474'765'312},
      {"Qwen3-Next-80B-A3B", 79'674'391'296, 3'874'929'408},
      {"DeepSeek-V2-Lite", 15'706'484'224, 2'661'150'208},
      {"DeepSeek-V2", 235'741'434'880, 21'375'800'320},
      {"DeepSeek-V3", 671'026'419'200, 37'552'297'472},
      {"DeepSeek-R1", 671'026'419'200, 37'552'297'472},
      {"DeepSeek-V3.1-NVFP4", 671'026'419'200, 37'552'297'472},
      {"Kimi-K2-Instruct", 1'026'408'232'448, 32'861'500'928},
      {"Kimi-K2.5", 1'026'408'232'448, 32'861'500'928},
      {"GLM-4.5", 352'797'829'024, 33'632'266'144},
      {"GLM-4.5-Air", 106'852'251'264, 13'424'129'664},
      {"gpt-oss-20b", 20'914'757'184, 4'187'440'704},
      {"gpt-oss-120b", 116'829'156'672, 5'711'982'912},
      {"Llama-4-Scout-17B-16E", 107'769'861'120, 17'172'894'720},
      {"Llama-4-Maverick-17B-128E", 400'711'848'960, 17'184'691'200},
      {"DBRX", 131'596'523'520, 36'469'708'800},
      {"Hunyuan-A13B", 80'393'183'232, 12'747'448'320},
      {"MiniMax-M2.5", 228'689'764'864, 11'030'553'088},
      {"Granite-3.0-1B-A400M", 1'334'628'352, 428'658'688},
      {"Granite-3.0-3B-A800M", 3'298'793'472, 882'874'368},
      {"Phi-3.5-MoE", 41'873'153'344, 6'640'999'744},
      {"Jamba-v0.1", 51'570'323'328, 12'110'311'296},
      {"Grok-1", 315'684'820'992, 83'756'587'008},
      {"MiniMax-Text-01", 456'089'655'296, 48'403'306'496},
      {"ERNIE-4.5-21B-A3B", 21'825'437'888, 3'352'150'208},
      {"dots.llm1", 142'774'381'696, 14'016'588'928},
      {"Switch-base-8", 619'339'008, 0},
      {"NLLB-MoE-54B", 54'500'569'088, 0},
      {"Arctic", 478'584'608'768, 17'318'647'808},
      {"DeepSeek-VL2-Tiny", 2'934'734'080, 739'605'760},
  };
  for (const Counts& model : models) {
    SCOPED_TRACE(model.name);
    const ParameterSummary counts = count_parameters(architecture_of(model.name));
    EXPECT_EQ(counts.total, model.total);
    if (model.active > 0) {
      EXPECT_EQ(counts.active_with_embeddings, model.active);
    }
  }
}

// Figures that the sources give with four digits.
TEST(Architecture, CountsOfTheOtherModelsAreWithinTheDigitsOfTheSources) {
  struct Rounded {
    std::string name;
    double total;
    double active;
  };
  for (const Rounded& model : {Rounded{"Qwen3.5-35B-A3B", 34.661, 3.455},
                               {"Qwen3.5-397B-A17B", 396.346, 17.349},
                               {"DeepSeek-V3.2", 671.878, 0.0},
                               {"GLM-5", 743.911, 41.785},
                               {"Gemma-4-26B-A4B", 25.23, 3.82},
                               {"Nemotron-3-Nano-30B-A3B", 31.578, 3.580},
                               {"MiMo-V2-Flash", 308.779, 15.446}}) {
    SCOPED_TRACE(model.name);
    const ParameterSummary counts = count_parameters(architecture_of(model.name));
    EXPECT_NEAR(static_cast<double>(counts.total) / 1e9, model.total, 0.006);
    if (model.active > 0.0) {
      EXPECT_NEAR(static_cast<double>(counts.active_with_embeddings) / 1e9, model.active, 0.006);
    }
  }
}

TEST(Architecture, EveryConfigOfTheProjectIsRead) {
  int num_models = 0;
  for (const auto& entry : fs::directory_iterator(kModelConfigs)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename());
    const Architecture architecture = architecture_of(entry.path().stem());
    const ParameterSummary counts = count_parameters(architecture);
    EXPECT_GT(counts.total, 0);
    EXPECT_GT(counts.active_with_embeddings, 0);
    EXPECT_LE(counts.active_with_embeddings, counts.total);
    std::int64_t sum = 0;
    for (const std::int64_t part : counts.by_part) sum += part;
    EXPECT_EQ(sum, counts.total);
    EXPECT_TRUE(architecture.is_moe());
    ++num_models;
  }
  EXPECT_EQ(num_models, 51);
}

// One accounting: what inspect counts is what is planned with.
TEST(Architecture, EngineFamiliesCountAsTheEngineDoes) {
  int num_models = 0;
  for (const auto& entry : fs::directory_iterator(kModelConfigs)) {
    if (entry.path().extension() != ".json") continue;
    const Architecture architecture = architecture_of(entry.path().stem());
    if (!architecture.is_engine_family) continue;
    SCOPED_TRACE(entry.path().filename());
    const ModelConfig config = parse_config(text_of_file(entry.path()), entry.path());
    const ParameterCounts engine = count_parameters(config);
    const ParameterSummary plan = count_parameters(architecture);
    EXPECT_EQ(plan.by_part, engine.by_part);
    EXPECT_EQ(plan.total, engine.total);
    EXPECT_EQ(plan.active_with_embeddings, engine.active_with_embeddings);
    EXPECT_EQ(plan.active_without_input_embedding, engine.active_without_input_embedding);
    EXPECT_EQ(plan.active_without_embeddings, engine.active_without_embeddings);
    EXPECT_EQ(architecture.weight_bytes(), count_bytes(config, Dtype::kBf16).total);
    ++num_models;
  }
  EXPECT_GE(num_models, 20);
}

TEST(Architecture, FieldsWithoutBearingOnSizeMayBeMissing) {
  Json config = Json::parse(text_of_file(kModelConfigs / "DeepSeek-V3.json"));
  const ParameterSummary whole = count_parameters(architecture_of("DeepSeek-V3"));
  for (const char* name : {"rms_norm_eps", "rope_theta", "rope_scaling", "topk_method",
                           "scoring_func", "norm_topk_prob", "routed_scaling_factor", "n_group",
                           "topk_group", "max_position_embeddings", "hidden_act"}) {
    config.erase(name);
  }
  const Architecture bare = parse_architecture(config.dump(), "config.json");
  EXPECT_EQ(count_parameters(bare).total, whole.total);
  EXPECT_EQ(bare.max_position_embeddings, 0);
}

TEST(Architecture, EveryMissingFieldIsNamedAtOnce) {
  Json config = Json::parse(text_of_file(kModelConfigs / "MiniMax-M2.5.json"));
  for (const char* name : {"hidden_size", "num_local_experts", "head_dim"}) config.erase(name);
  const std::string message = refusal(config.dump());
  EXPECT_NE(message.find("hidden_size"), std::string::npos) << message;
  EXPECT_NE(message.find("num_local_experts"), std::string::npos) << message;
  EXPECT_NE(message.find("head_dim"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);

  config = Json::parse(text_of_file(kModelConfigs / "DeepSeek-V3.json"));
  config.erase("q_lora_rank");  // null would be an answer, absence is not
  config.erase("moe_intermediate_size");
  const std::string engine = refusal(config.dump());
  EXPECT_NE(engine.find("q_lora_rank"), std::string::npos) << engine;
  EXPECT_NE(engine.find("moe_intermediate_size"), std::string::npos) << engine;
}

// Every size-bearing field of every config: taken away, it is missing by name or another field says
// the same, but the count never changes silently.
TEST(Architecture, NoFieldIsGuessed) {
  const std::set<std::string> sizes = {
      "hidden_size",       "num_hidden_layers",     "num_attention_heads", "vocab_size",
      "intermediate_size", "moe_intermediate_size", "num_experts",         "n_routed_experts",
      "num_local_experts", "num_experts_per_tok",   "num_key_value_heads", "kv_lora_rank"};
  for (const auto& entry : fs::directory_iterator(kModelConfigs)) {
    if (entry.path().extension() != ".json" ||
        entry.path().stem() == "Nemotron-3-Super-120B-A12B-NVFP4") {
      continue;  // not JSON for the test's own parser
    }
    const Json config = Json::parse(text_of_file(entry.path()));
    const std::int64_t total =
        count_parameters(parse_architecture(config.dump(), "config.json")).total;
    for (const auto& [name, value] : config.items()) {
      if (!sizes.contains(name) || value.is_null()) continue;
      SCOPED_TRACE(entry.path().stem().string() + " without " + name);
      Json without = config;
      without.erase(name);
      try {
        EXPECT_EQ(count_parameters(parse_architecture(without.dump(), "config.json")).total, total);
      } catch (const Error& error) {
        EXPECT_NE(std::string_view(error.what()).find(name), std::string_view::npos)
            << error.what();
      }
    }
  }
}

TEST(Architecture, UnknownArchitecturesAreRefusedWithTheKnownOnes) {
  const std::string message = refusal(R"({"model_type": "banana", "hidden_size": 64})");
  EXPECT_NE(message.find("\"banana\" is not known"), std::string::npos) << message;
  EXPECT_NE(message.find("mixtral"), std::string::npos);
  EXPECT_NE(refusal("{}").find("model_type"), std::string::npos);
  EXPECT_NE(refusal("[]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": 3})").find("model_type"), std::string::npos);
}

TEST(Architecture, WrongValuesAreNamed) {
  Json config = Json::parse(text_of_file(kModelConfigs / "Hunyuan-A13B.json"));
  config["moe_topk"] = {8, 8};
  EXPECT_NE(refusal(config.dump()).find("moe_topk: 2 entries for 32 layers"), std::string::npos);
  config = Json::parse(text_of_file(kModelConfigs / "Hunyuan-A13B.json"));
  config["num_experts"] = -1;
  EXPECT_NE(refusal(config.dump()).find("num_experts"), std::string::npos);
  config = Json::parse(text_of_file(kModelConfigs / "Jamba-v0.1.json"));
  config["num_experts_per_tok"] = 17;
  EXPECT_NE(refusal(config.dump()).find("17 experts per token of only 16"), std::string::npos);
  config["hidden_size"] = "large";
  EXPECT_NE(refusal(config.dump()).find("hidden_size"), std::string::npos);
}

TEST(Architecture, WrappersAndNonFiniteNumbersAreRead) {
  EXPECT_EQ(architecture_of("Kimi-K2.5").quant.method, "compressed-tensors");
  EXPECT_FALSE(architecture_of("Kimi-K2.5").is_engine_family);
  EXPECT_FALSE(architecture_of("Qwen3.5-35B-A3B").has_tied_head);
  EXPECT_TRUE(architecture_of("Gemma-4-26B-A4B").has_tied_head);
  const Architecture nemotron = architecture_of("Nemotron-3-Super-120B-A12B-NVFP4");
  EXPECT_NEAR(static_cast<double>(count_parameters(nemotron).total), 120.7e9, 0.1e9);
}

TEST(Architecture, LayersAreWhatTheConfigSays) {
  const Architecture next = architecture_of("Qwen3-Next-80B-A3B");
  int full = 0;
  for (const LayerSpec& layer : next.layers) full += layer.mixer.kind == MixerKind::kGqa ? 1 : 0;
  EXPECT_EQ(full, 12);
  const Architecture deepseek = architecture_of("DeepSeek-V3");
  EXPECT_EQ(deepseek.num_moe_layers(), 58);  // three are dense
  const Architecture scout = architecture_of("Llama-4-Scout-17B-16E");
  int chunked = 0;
  for (const LayerSpec& layer : scout.layers) chunked += layer.mixer.chunk == 8192 ? 1 : 0;
  EXPECT_EQ(chunked, 36);
  const Architecture mimo = architecture_of("MiMo-V2-Flash");
  EXPECT_EQ(mimo.layers[0].mixer.num_kv_heads, 4);
  EXPECT_EQ(mimo.layers[1].mixer.num_kv_heads, 8);
  EXPECT_EQ(mimo.layers[1].mixer.window, 128);
  EXPECT_EQ(mimo.layers[1].mixer.v_head_dim, 128);
}

TEST(ArchitectureQuantization, ExclusionListsAreFollowed) {
  const ArchitectureOptions options{
      text_of_file(kModelConfigs / "quant/DeepSeek-V3.1-NVFP4.hf_quant_config.json"), ""};
  const Architecture model = architecture_of("DeepSeek-V3.1-NVFP4", options);
  EXPECT_EQ(model.quant.kv_cache_dtype, "fp8");
  for (const WeightGroup& group : model.weights) {
    if (group.name == "model.layers.10.self_attn.q_b_proj") {
      EXPECT_EQ(group.format.name, "bf16");
    }
    if (group.name == "model.layers.10.self_attn.o_proj") {
      EXPECT_EQ(group.format.name, "nvfp4");
    }
    if (group.part == Part::kRoutedExperts) {
      EXPECT_EQ(group.format.name, "nvfp4");
    }
    if (group.part == Part::kRouter) {
      EXPECT_EQ(group.format.name, "bf16");
    }
  }
  const Architecture kimi = architecture_of("Kimi-K2.5");
  for (const WeightGroup& group : kimi.weights) {
    if (group.part == Part::kRoutedExperts) {
      EXPECT_DOUBLE_EQ(bits_per_weight(group.format), 4.5);
    } else if (group.is_linear) {  // attention, shared and dense are in its ignore list
      EXPECT_EQ(group.format.name, "bf16") << group.name;
    }
  }
}

TEST(ArchitectureQuantization, UnknownMethodsAreRefused) {
  Json config = Json::parse(text_of_file(kModelConfigs / "Mixtral-8x7B-v0.1.json"));
  config["quantization_config"] = {{"quant_method", "magic"}};
  EXPECT_NE(refusal(config.dump()).find("\"magic\" is not known"), std::string::npos);
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  EXPECT_NE(refusal(config.dump()).find("group_size"), std::string::npos);
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 5}, {"group_size", 128}};
  EXPECT_NE(refusal(config.dump()).find("5 bits"), std::string::npos);
}

TEST(ArchitectureQuantization, GptqInTheConfigIsTheFormatByName) {
  Json config = Json::parse(text_of_file(kModelConfigs / "Mixtral-8x7B-v0.1.json"));
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}};
  const Architecture by_config = parse_architecture(config.dump(), "config.json");
  const Architecture by_name = architecture_of("Mixtral-8x7B-v0.1", {"", "int4-g128"});
  // The config's files carry a group index of 32 bits an input row beside it.
  EXPECT_GT(by_config.weight_bytes(), by_name.weight_bytes());
  EXPECT_NEAR(static_cast<double>(by_config.weight_bytes()), 24.70e9, 0.05e9);
}

// Files that other libraries wrote: scales, zero points, group indexes and shapes included
// (tests/data/plan-configs/SOURCES.md).
TEST(ArchitectureQuantization, BytesAreThoseOfRealFiles) {
  const fs::path folder = fs::path(MOE_SOURCE_DIR) / "tests/data/plan-configs";
  const std::vector<std::pair<const char*, std::int64_t>> files = {
      {"gptq-v1", 253'952}, {"awq-a", 240'640},  {"ct-w4a16", 307'648},
      {"ct-w8a8", 362'112}, {"dbrx-a", 723'584}, {"llama4-a", 649'344}};
  for (const auto& [name, bytes] : files) {
    SCOPED_TRACE(name);
    const Architecture model =
        parse_architecture(text_of_file(folder / (std::string(name) + ".json")), name);
    EXPECT_EQ(model.weight_bytes(), bytes);
  }
}

// Every tiny checkpoint of the project that is one file: the headers against the formula.
TEST(Architecture, BytesAreThoseOfTheProjectsCheckpoints) {
  int num_checkpoints = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(MOE_SOURCE_DIR) / "scenarios/checkpoints")) {
    const fs::path weights = entry.path() / "model.safetensors";
    if (!fs::exists(weights) || !fs::exists(entry.path() / "config.json")) continue;
    // Mixes three types on purpose, which no config says.
    if (entry.path().filename() == "qwen2moe-a") continue;
    SCOPED_TRACE(entry.path().filename());
    std::int64_t bytes = 0;
    const SafetensorsFile file(weights);
    for (const TensorEntry& tensor : file.entries()) bytes += tensor.end - tensor.begin;
    const Architecture model =
        parse_architecture(text_of_file(entry.path() / "config.json"), "config.json");
    EXPECT_EQ(bytes, model.weight_bytes() + model.mtp_bytes());
    ++num_checkpoints;
  }
  EXPECT_GE(num_checkpoints, 10);
}

}  // namespace
}  // namespace moe::model
