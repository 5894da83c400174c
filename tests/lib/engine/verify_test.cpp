// Every golden checkpoint of scenarios/ against every kernel level of this machine.

#include "lib/engine/verify.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/model/gguf_binder.hpp"
#include "lib/model/gguf_file.hpp"
#include "tests/lib/engine/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::engine {
namespace {

using testing::checkpoint_dir;
using testing::EditableModel;
using testing::runnable_isas;

std::string describe(const TensorComparison& comparison) {
  return fmt::format("{}: {} at [{}, {}]: expected {}, found {} ({} of {} wrong, largest error {})",
                     comparison.phase, comparison.name, comparison.first_wrong_row,
                     comparison.first_wrong_col, comparison.expected, comparison.found,
                     comparison.num_wrong, comparison.num_values, comparison.max_error);
}

class GoldenCheckpoint : public ::testing::TestWithParam<std::tuple<std::string, kernels::Isa>> {};

TEST_P(GoldenCheckpoint, GivesTheRecordedNumbers) {
  const auto& [name, isa] = GetParam();
  VerifyOptions options;
  options.isa = isa;
  NullProgress progress;
  const Interrupt interrupt;
  const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
  const VerifyResult result =
      verify(model, checkpoint_dir(name) / "golden.safetensors", options, progress, interrupt);
  EXPECT_TRUE(result.passed);
  EXPECT_THAT(result.not_compared, ::testing::IsEmpty());
  EXPECT_GE(result.comparisons.size(), 2U);
  if (result.first_difference) {
    ADD_FAILURE() << describe(result.comparisons[*result.first_difference]);
  }
  double worst = 0.0;
  for (const TensorComparison& comparison : result.comparisons) {
    worst = std::max(worst, comparison.max_error_ratio);
  }
  RecordProperty("worst_error_ratio", fmt::format("{:.3f}", worst));
}

// A GGUF file against the golden of its safetensors checkpoint.
VerifyResult verify_gguf(const model::BoundModel& model, const std::string& name) {
  VerifyOptions options;
  options.isa = runnable_isas().back();
  NullProgress progress;
  const Interrupt interrupt;
  return verify(model, checkpoint_dir(name) / "golden.safetensors", options, progress, interrupt);
}

std::filesystem::path gguf_path(const std::string& name) {
  return std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/gguf" / (name + ".gguf");
}

// The same weights as a GGUF file of an architecture that has no golden of its own. Rows of q and k
// that are permuted for rotation in pairs give the same scores, not the same vectors. The one
// factor of cos and sin in a phimoe file is that of long contexts, as SOURCES.md says.
class GoldenGguf : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenGguf, GivesTheNumbersOfItsSafetensors) {
  const std::string& name = GetParam();
  const VerifyResult result = verify_gguf(model::bind_checkpoint(gguf_path(name)), name);
  int num_logits = 0;
  for (const TensorComparison& comparison : result.comparisons) {
    if (comparison.stage == "q_rope" || comparison.stage == "k_rope") continue;
    if (name == "phimoe-a" && comparison.phase != "prompt" && comparison.phase != "decode")
      continue;
    EXPECT_TRUE(comparison.passed()) << describe(comparison);
    num_logits += comparison.stage == "logits" ? 1 : 0;
  }
  EXPECT_GE(num_logits, 1);
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenGguf,
                         ::testing::Values("olmoe-a", "granite-a", "llama-dense-a", "qwen3-dense-a",
                                           "dsv2-lite", "dsv3-a", "gptoss-mxfp4", "glm45-a",
                                           "dbrx-a", "llama4-a", "phimoe-a"),
                         [](const ::testing::TestParamInfo<std::string>& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A file whose layout is that of another convention, and loads all the same.
struct WrongLayout {
  std::string title;
  std::string checkpoint;
  std::string tensor;
  // Edits the tensor's bytes, `row_bytes` a row.
  std::function<void(std::span<char> data, std::size_t row_bytes)> make;
};

void PrintTo(const WrongLayout& wrong, std::ostream* out) {
  *out << wrong.title;
}

// Rows (h, 2, half) of heads of 16 as (h, half, 2): what a converter does for rotation in pairs.
void permute_for_pairs(std::span<char> data, std::size_t row_bytes) {
  constexpr std::size_t kHeadDim = 16;
  const std::string before(data.data(), data.size());
  for (std::size_t row = 0; row < data.size() / row_bytes; ++row) {
    const std::size_t in_head = row % kHeadDim;
    const std::size_t to = row - in_head + in_head % (kHeadDim / 2) * 2 + in_head / (kHeadDim / 2);
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(row * row_bytes), row_bytes,
                data.begin() + static_cast<std::ptrdiff_t>(to * row_bytes));
  }
}

// Halves of a block as pairs of neighbours: the order of the safetensors.
void pair_nibbles(std::span<char> data, std::size_t) {
  constexpr std::size_t kBlockBytes = 17;
  for (std::size_t block = 0; block + kBlockBytes <= data.size(); block += kBlockBytes) {
    std::array<int, 32> values{};
    for (std::size_t i = 0; i < 16; ++i) {
      const int byte = static_cast<unsigned char>(data[block + 1 + i]);
      values[i] = byte & 15;
      values[i + 16] = byte >> 4;
    }
    for (std::size_t i = 0; i < 16; ++i) {
      data[block + 1 + i] = static_cast<char>(values[2 * i] | (values[2 * i + 1] << 4));
    }
  }
}

// Heads in the wrong order.
void reverse_heads(std::span<char> data, std::size_t) {
  constexpr std::size_t kNumHeads = 4;
  const std::size_t head_bytes = data.size() / kNumHeads;
  for (std::size_t head = 0; head < kNumHeads / 2; ++head) {
    std::swap_ranges(data.begin() + static_cast<std::ptrdiff_t>(head * head_bytes),
                     data.begin() + static_cast<std::ptrdiff_t>((head + 1) * head_bytes),
                     data.end() - static_cast<std::ptrdiff_t>((head + 1) * head_bytes));
  }
}

class WrongGguf : public ::testing::TestWithParam<WrongLayout> {};

TEST_P(WrongGguf, DiffersFromTheGolden) {
  const WrongLayout& wrong = GetParam();
  std::string bytes = test::read_file(gguf_path(wrong.checkpoint));
  const std::string path = wrong.checkpoint + ".gguf";
  const auto bind = [&] {
    return model::bind_gguf(
        std::make_shared<const model::GgufFile>(std::as_bytes(std::span(bytes)), path), {});
  };
  const auto worst = [&](const model::BoundModel& model) {
    double ratio = 0.0;
    for (const TensorComparison& comparison : verify_gguf(model, wrong.checkpoint).comparisons) {
      if (comparison.stage == "logits") ratio = std::max(ratio, comparison.max_error_ratio);
    }
    return ratio;
  };
  EXPECT_LE(worst(bind()), 1.0);
  const model::GgufFile file(std::as_bytes(std::span(bytes)), path);
  const model::GgufTensor* tensor = file.find(wrong.tensor);
  ASSERT_NE(tensor, nullptr);
  const std::span<const std::byte> data = file.bytes(*tensor);
  const auto offset =
      static_cast<std::size_t>(data.data() - reinterpret_cast<const std::byte*>(bytes.data()));
  const auto rows = static_cast<std::size_t>(tensor->dims[1]);
  wrong.make(std::span(bytes).subspan(offset, data.size()), data.size() / rows);
  EXPECT_GT(worst(bind()), 100.0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, WrongGguf,
                         ::testing::Values(WrongLayout{"PairsWhereHalvesRotate", "glm45-a",
                                                       "blk.1.attn_q.weight", permute_for_pairs},
                                           WrongLayout{"NibblesInPairs", "gptoss-mxfp4",
                                                       "blk.0.ffn_up_exps.weight", pair_nibbles},
                                           WrongLayout{"HeadsOfTheLatentReversed", "dsv2-lite",
                                                       "blk.0.attn_k_b.weight", reverse_heads}),
                         [](const ::testing::TestParamInfo<WrongLayout>& param) {
                           return param.param.title;
                         });

// A deliberate mistake, and the stage at which it must be caught.
struct Mistake {
  std::string title;
  std::string checkpoint;
  std::function<void(EditableModel&)> make;
  int layer;
  std::string stage;
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.title;
}

class DeliberateMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(DeliberateMistake, IsCaughtWhereItHappens) {
  const Mistake& mistake = GetParam();
  EditableModel editable(mistake.checkpoint);
  mistake.make(editable);
  VerifyOptions options;
  options.isa = runnable_isas().back();
  NullProgress progress;
  const Interrupt interrupt;
  const VerifyResult result =
      verify(editable.model, checkpoint_dir(mistake.checkpoint) / "golden.safetensors", options,
             progress, interrupt);
  EXPECT_FALSE(result.passed);
  ASSERT_TRUE(result.first_difference.has_value());
  const TensorComparison& first = result.comparisons[*result.first_difference];
  EXPECT_EQ(first.phase, "prompt");
  EXPECT_EQ(first.layer, mistake.layer) << describe(first);
  EXPECT_EQ(first.stage, mistake.stage) << describe(first);
  EXPECT_GT(first.num_wrong, 0);
  EXPECT_NE(first.expected, first.found);
}

std::vector<Mistake> mistakes() {
  using Editable = EditableModel&;
  return {
      {"EmbeddingMultiplier", "granite-a",
       [](Editable e) { e.model.config.embedding_multiplier = 1.0; }, -1, "embed"},
      {"InputNorm", "mixtral-a",
       [](Editable e) { e.scale(e.model.layers[1].input_norm.weight, 1.01F); }, 1, "attn_out"},
      {"RopeTheta", "mixtral-a", [](Editable e) { e.model.config.attention.rope.theta *= 1.1; }, 0,
       "q_rope"},
      {"RopeStyle", "dsv3-a",
       [](Editable e) { e.model.config.attention.rope.style = model::RopeStyle::kHalf; }, 0,
       "q_rope"},
      {"QkNormKind", "olmoe-a",
       [](Editable e) { e.model.config.attention.qk_norm = model::QkNorm::kNone; }, 0, "q_rope"},
      {"ClipAfterNorm", "olmoe-a", [](Editable e) { e.model.config.attention.clip_qkv = 0.0; }, 0,
       "q_rope"},
      {"LatentNormEps", "dsv3-a",
       [](Editable e) { e.model.config.attention.mla.latent_norm_eps = 1e-5; }, 0, "q_rope"},
      {"SoftmaxScale", "dsv2-lite",
       [](Editable e) { e.model.config.attention.softmax_scale *= 0.9; }, 0, "attn_out"},
      {"Window", "mixtral-b", [](Editable e) { e.model.config.layers[0].window = 9; }, 0,
       "attn_out"},
      {"Sinks", "gptoss-a", [](Editable e) { e.scale(e.model.layers[2].attention.sinks, 0.5F); }, 2,
       "attn_out"},
      {"PostAttentionNorm", "qwen3moe-a",
       [](Editable e) { e.scale(e.model.layers[2].post_attention_norm.weight, 1.01F); }, 2,
       "router_in"},
      {"RouterWeights", "mixtral-a", [](Editable e) { e.scale(e.model.layers[0].router, 1.01F); },
       0, "router_logits"},
      {"RouterBias", "gptoss-a", [](Editable e) { e.scale(e.model.layers[1].router_bias, 0.9F); },
       1, "router_logits"},
      {"CorrectionBias", "dsv3-a",
       [](Editable e) { e.scale(e.model.layers[1].correction_bias, 0.0F); }, 1, "sel_ids"},
      {"CorrectionBiasInBf16", "glm45-a",
       [](Editable e) {
         std::vector<float> bias = model::read_vector(e.model.layers[1].correction_bias);
         model::MatrixView as_matrix;
         as_matrix.dtype = model::Dtype::kF32;
         as_matrix.rows = 1;
         as_matrix.cols = static_cast<std::int64_t>(bias.size());
         as_matrix.data = reinterpret_cast<const std::byte*>(bias.data());
         as_matrix.row_stride = as_matrix.cols;
         e.edit(as_matrix, [](std::int64_t, std::int64_t, float value) {
           return model::bf16_to_f32(model::f32_to_bf16(value));
         });
         e.model.layers[1].correction_bias.dtype = model::Dtype::kF32;
         e.model.layers[1].correction_bias.data = as_matrix.data;
         e.model.layers[1].correction_bias.stride = 1;
       },
       1, "sel_ids"},
      {"GroupScoreMax", "dsv3-a",
       [](Editable e) { e.model.config.moe.router.group_rule = model::GroupRule::kMax; }, 1,
       "sel_ids"},
      {"GroupScoreSum", "dsv2-group",
       [](Editable e) { e.model.config.moe.router.group_rule = model::GroupRule::kTop2Sum; }, 1,
       "sel_ids"},
      {"RenormaliseWhereNotAsked", "qwen2moe-a",
       [](Editable e) { e.model.config.moe.router.renormalize = true; }, 1, "sel_w"},
      {"NoRenormalisation", "qwen3moe-a",
       [](Editable e) { e.model.config.moe.router.renormalize = false; }, 0, "sel_w"},
      {"NoRoutedScale", "glm45-b", [](Editable e) { e.model.config.moe.router.scale = 1.0; }, 1,
       "sel_w"},
      {"SparsemixerThreshold", "phimoe-a",
       [](Editable e) { e.model.config.moe.router.sparsemixer_eps = 0.02; }, 0, "sel_w"},
      {"ExpertDown", "qwen3moe-a",
       [](Editable e) { e.scale(e.model.layers[2].experts[3].down, 1.1F); }, 2, "moe_out"},
      {"SharedGate", "qwen2moe-a", [](Editable e) { e.scale(e.model.layers[1].shared_gate, 0.5F); },
       1, "moe_out"},
      {"GluLimit", "gptoss-b", [](Editable e) { e.model.config.swiglu_limit = 7.0; }, 0, "moe_out"},
      {"DenseLayer", "qwen3moe-a", [](Editable e) { e.scale(e.model.layers[1].dense.gate, 1.02F); },
       1, "mlp_out"},
      {"ResidualMultiplier", "granite-a",
       [](Editable e) { e.model.config.residual_multiplier = 1.0; }, 0, "router_in"},
      {"FinalNorm", "mixtral-a", [](Editable e) { e.scale(e.model.final_norm.weight, 1.01F); }, -1,
       "final_norm"},
      {"LogitsDivisor", "granite-a", [](Editable e) { e.model.config.logits_divisor = 1.0; }, -1,
       "logits"},
      {"HeadBias", "phimoe-a", [](Editable e) { e.scale(e.model.lm_head_bias, 0.5F); }, -1,
       "logits"},
  };
}

INSTANTIATE_TEST_SUITE_P(All, DeliberateMistake, ::testing::ValuesIn(mistakes()),
                         [](const auto& param_info) { return param_info.param.title; });

VerifyResult verify_file(const std::string& checkpoint, const std::filesystem::path& golden) {
  VerifyOptions options;
  options.isa = runnable_isas().back();
  NullProgress progress;
  const Interrupt interrupt;
  return verify(model::bind_checkpoint(checkpoint_dir(checkpoint)), golden, options, progress,
                interrupt);
}

void expect_refused(const std::string& checkpoint, const std::filesystem::path& golden,
                    const std::string& mention) {
  try {
    static_cast<void>(verify_file(checkpoint, golden));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(mention));
    EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n")));
  }
}

TEST(Verify, RefusesGoldenFilesOfOtherCheckpoints) {
  // Other experts per token; another number of layers is no contradiction, another vocabulary is.
  expect_refused("mixtral-a", checkpoint_dir("qwen3moe-a") / "golden.safetensors", "q_rope");
  expect_refused("mixtral-a", checkpoint_dir("tinymoe-qwen3") / "golden.safetensors", "token id");
  expect_refused("mixtral-a", checkpoint_dir("mixtral-a") / "missing.safetensors",
                 "missing.safetensors");
}

TEST(Verify, RefusesDamagedGoldenFiles) {
  const test::TempDir dir;
  const std::string good = test::read_file(checkpoint_dir("mixtral-a") / "golden.safetensors");
  const std::filesystem::path path = dir / "golden.safetensors";
  test::write_file(path, good.substr(0, good.size() - 4));
  expect_refused("mixtral-a", path, "golden.safetensors");
  std::string renamed = good;
  renamed.replace(renamed.find("\"input_ids\""), 11, "\"inputsids\"");
  test::write_file(path, renamed);
  expect_refused("mixtral-a", path, "input_ids");
}

TEST(Verify, NamesTensorsThatItDidNotCompare) {
  const test::TempDir dir;
  std::string file = test::read_file(checkpoint_dir("mixtral-a") / "golden.safetensors");
  file.replace(file.find("\"final_norm\""), 12, "\"final_ogre\"");
  const std::filesystem::path path = dir / "golden.safetensors";
  test::write_file(path, file);
  const VerifyResult result = verify_file("mixtral-a", path);
  EXPECT_TRUE(result.passed);
  EXPECT_THAT(result.not_compared, ::testing::ElementsAre("final_ogre"));
}

TEST(Verify, AnInterruptedComparisonDoesNotPass) {
  VerifyOptions options;
  options.isa = runnable_isas().back();
  // Stops once the weights are packed.
  class StopAfterPacking final : public Progress {
   public:
    explicit StopAfterPacking(Interrupt& interrupt) : interrupt_(interrupt) {}
    void begin(std::string_view stage, std::int64_t, std::string_view) override {
      if (stage == "comparing") interrupt_.request();
    }
    void update(std::int64_t) override {}
    void end() override {}

   private:
    Interrupt& interrupt_;
  };
  Interrupt interrupt;
  StopAfterPacking progress(interrupt);
  const VerifyResult result =
      verify(model::bind_checkpoint(checkpoint_dir("mixtral-a")),
             checkpoint_dir("mixtral-a") / "golden.safetensors", options, progress, interrupt);
  EXPECT_TRUE(result.is_partial);
  EXPECT_FALSE(result.passed);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenCheckpoint,
                         ::testing::Combine(::testing::ValuesIn(testing::golden_checkpoints()),
                                            ::testing::ValuesIn(runnable_isas())),
                         [](const auto& param_info) {
                           std::string name = std::get<0>(param_info.param) + "_" +
                                              kernels::isa_name(std::get<1>(param_info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moe::engine
