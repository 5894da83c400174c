// The trained checkpoint against figures that transformers computed (origin: scenarios/checkpoints/
// SOURCES-tiny-models.md): perplexities, routing, greedy texts, and the same with bf16 activations.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/engine/evaluate.hpp"
#include "lib/engine/generate.hpp"
#include "lib/json/read.hpp"
#include "lib/model/safetensors.hpp"
#include "lib/model/tokenizer.hpp"
#include "tests/lib/engine/support.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using testing::all_logits;
using testing::checkpoint_dir;
using testing::load_engine;
using testing::small_options;

const model::BoundModel& trained_model() {
  static const model::BoundModel model = model::bind_checkpoint(checkpoint_dir("tinymoe-qwen3"));
  return model;
}

const model::Tokenizer& trained_tokenizer() {
  static const model::Tokenizer tokenizer =
      model::Tokenizer::load(checkpoint_dir("tinymoe-qwen3") / "tokenizer.json");
  return tokenizer;
}

const json::Json& expected_figures() {
  static const json::Json figures =
      json::parse_file((checkpoint_dir("eval-text") / "expected.json").string());
  return figures;
}

EngineOptions trained_options(ActivationFormat activations) {
  EngineOptions options = small_options(512);
  options.activations = activations;
  return options;
}

std::vector<std::int32_t> domain_tokens(const std::string& domain) {
  return trained_tokenizer().encode(
      test::read_file(checkpoint_dir("eval-text") / (domain + ".txt")), false);
}

// Bytes of each token of a byte-level tokenizer: one per character of its stored form.
std::vector<std::int32_t> token_bytes(const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> bytes;
  for (const std::int32_t id : ids) {
    const std::string token = trained_tokenizer().id_to_token(id).value();
    bytes.push_back(static_cast<std::int32_t>(
        std::count_if(token.begin(), token.end(), [](char c) { return (c & 0xc0) != 0x80; })));
  }
  return bytes;
}

EvaluateResult evaluate_ids(Engine& engine, const std::vector<std::int32_t>& ids,
                            const std::vector<std::int32_t>& bytes) {
  NullProgress progress;
  const Interrupt interrupt;
  return evaluate(engine, ids, bytes, {}, progress, interrupt);
}

// [layer] chosen ids in the order of the tokens.
class IdRecorder final : public RoutingObserver {
 public:
  void on_routing(int layer, std::int64_t num_tokens, int top_k, const std::int32_t* ids,
                  const float* /*weights*/, const SequenceId* /*sequences*/,
                  const std::int64_t* /*positions*/) override {
    layers_.resize(std::max<std::size_t>(layers_.size(), static_cast<std::size_t>(layer) + 1));
    auto& chosen = layers_[static_cast<std::size_t>(layer)];
    chosen.insert(chosen.end(), ids, ids + num_tokens * top_k);
  }
  [[nodiscard]] const std::vector<std::vector<std::int32_t>>& layers() const { return layers_; }

 private:
  std::vector<std::vector<std::int32_t>> layers_;
};

class TrainedDomain : public ::testing::TestWithParam<std::string> {};

TEST_P(TrainedDomain, PerplexityAndRoutingAreAsRecorded) {
  const std::string& domain = GetParam();
  Engine engine = load_engine(trained_model(), trained_options(ActivationFormat::kF32));
  IdRecorder recorder;
  engine.set_routing_observer(&recorder);
  const std::vector<std::int32_t> ids = domain_tokens(domain);
  const EvaluateResult result = evaluate_ids(engine, ids, token_bytes(ids));

  const json::Json& expected = expected_figures()["models"]["tinymoe-qwen3"]["base_top4"][domain];
  EXPECT_EQ(result.num_tokens, expected["tokens"].get<std::int64_t>());
  EXPECT_EQ(result.num_windows, expected["windows"].get<std::int64_t>());
  EXPECT_EQ(result.num_scored_tokens, expected["scored_tokens"].get<std::int64_t>());
  EXPECT_EQ(result.num_scored_bytes, expected["scored_bytes"].get<std::int64_t>());
  const double perplexity = expected["perplexity"].get<double>();
  EXPECT_NEAR(result.perplexity(), perplexity, 1e-3 * perplexity);
  const double bits_per_byte = expected["bits_per_byte"].get<double>();
  EXPECT_NEAR(result.bits_per_byte(), bits_per_byte, 1e-3 * bits_per_byte);
  RecordProperty("perplexity_ratio", fmt::format("{:.8f}", result.perplexity() / perplexity));

  const model::SafetensorsFile file(checkpoint_dir("tinymoe-qwen3") /
                                    ("routing-" + domain + ".safetensors"));
  const std::vector<std::int32_t> token_ids = model::to_i32(file.at("token_ids"));
  ASSERT_TRUE(std::equal(token_ids.begin(), token_ids.end(), ids.begin()));
  const std::vector<std::int32_t> recorded = model::to_i32(file.at("ids"));
  const std::size_t per_layer = recorded.size() / recorder.layers().size();
  std::int64_t num_different = 0;
  for (std::size_t layer = 0; layer < recorder.layers().size(); ++layer) {
    ASSERT_GE(recorder.layers()[layer].size(), per_layer);
    for (std::size_t i = 0; i < per_layer; ++i) {
      num_different += recorder.layers()[layer][i] != recorded[layer * per_layer + i] ? 1 : 0;
    }
    EXPECT_EQ(std::accumulate(result.expert_counts[layer].begin(),
                              result.expert_counts[layer].end(), std::int64_t{0}),
              4 * result.num_tokens);
  }
  // Two f32 implementations differ where two experts are closer than their rounding errors.
  EXPECT_LE(static_cast<double>(num_different), 2e-4 * static_cast<double>(recorded.size()));
  RecordProperty("different_choices", fmt::format("{} of {}", num_different, recorded.size()));
}

INSTANTIATE_TEST_SUITE_P(All, TrainedDomain, ::testing::Values("english", "python", "c", "spanish"),
                         [](const auto& param_info) { return param_info.param; });

TEST(Trained, FewerExpertsPerTokenCostWhatWasRecorded) {
  EngineOptions options = trained_options(ActivationFormat::kF32);
  options.top_k_override = 1;
  Engine engine = load_engine(trained_model(), options);
  const EvaluateResult result = evaluate_ids(engine, domain_tokens("english"), {});
  const double expected =
      expected_figures()["models"]["tinymoe-qwen3"]["top1"]["english"]["perplexity"].get<double>();
  EXPECT_NEAR(result.perplexity(), expected, 1e-3 * expected);
  EXPECT_EQ(result.bits_per_byte(), 0.0);
}

std::vector<std::int32_t> greedy(Engine& engine, const json::Json& generation) {
  const auto prompt = generation["prompt_ids"].get<std::vector<std::int32_t>>();
  GenerateOptions options;
  options.max_new_tokens = 64;
  options.ignore_eos = true;
  const SteadyClock clock;
  const Interrupt interrupt;
  return generate(engine, 0, prompt, options, {}, clock, interrupt).token_ids;
}

TEST(Trained, GreedyTextsAreAsRecorded) {
  Engine engine = load_engine(trained_model(), trained_options(ActivationFormat::kF32));
  const json::Json& generations = expected_figures()["generations"]["tinymoe-qwen3"];
  ASSERT_GE(generations.size(), 6U);
  for (const json::Json& generation : generations) {
    EXPECT_EQ(greedy(engine, generation), generation["ids"].get<std::vector<std::int32_t>>());
  }
}

// bf16 keeps 8 bits: rounding moves a value by at most 2^-9 of itself, 2^-9 / sqrt(3) on average.
// Six layers round the inputs of four products each, and the head one more: 25 independent
// roundings of relative size r add up to about 5 r of the spread of the logits. The bound is three
// times that for the mean error. Experts that change at near ties come on top; they are rare.
TEST(Trained, Bf16ActivationsStayWithinTheirRounding) {
  Engine exact = load_engine(trained_model(), trained_options(ActivationFormat::kF32));
  Engine rounded = load_engine(trained_model(), trained_options(ActivationFormat::kBf16));
  const std::vector<std::int32_t> ids = domain_tokens("python");
  const auto window = std::span(ids).first(512);
  const std::vector<float> a = all_logits(exact, 0, window);
  const std::vector<float> b = all_logits(rounded, 0, window);
  double sum = 0.0;
  double squares = 0.0;
  double error_squares = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]);
    squares += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    error_squares += std::pow(static_cast<double>(a[i] - b[i]), 2);
  }
  const auto count = static_cast<double>(a.size());
  const double spread = std::sqrt(squares / count - std::pow(sum / count, 2));
  const double rounding = std::ldexp(1.0, -9) / std::sqrt(3.0);
  const double error = std::sqrt(error_squares / count);
  RecordProperty("error_in_roundings", fmt::format("{:.2f}", error / (spread * rounding)));
  EXPECT_GT(error, 0.0);
  EXPECT_LT(error, 3.0 * 5.0 * rounding * spread);
}

TEST(Trained, Bf16ActivationsAgreeOnGreedyTokens) {
  Engine exact = load_engine(trained_model(), trained_options(ActivationFormat::kF32));
  Engine rounded = load_engine(trained_model(), trained_options(ActivationFormat::kBf16));
  std::int64_t num_tokens = 0;
  std::int64_t num_equal = 0;
  const auto vocab = static_cast<std::size_t>(trained_model().config.vocab_size);
  for (const char* domain : {"english", "python", "c", "spanish"}) {
    const std::vector<std::int32_t> ids = domain_tokens(domain);
    const auto window = std::span(ids).first(512);
    exact.reset(0);
    rounded.reset(0);
    const std::vector<float> a = all_logits(exact, 0, window);
    const std::vector<float> b = all_logits(rounded, 0, window);
    for (std::size_t row = 0; row < 512; ++row) {
      ++num_tokens;
      num_equal += argmax(std::span(a).subspan(row * vocab, vocab)) ==
                           argmax(std::span(b).subspan(row * vocab, vocab))
                       ? 1
                       : 0;
    }
  }
  const double agreement = static_cast<double>(num_equal) / static_cast<double>(num_tokens);
  RecordProperty("agreement", fmt::format("{:.4f}", agreement));
  EXPECT_GE(agreement, 0.98);
}

TEST(Trained, Bf16PerplexityIsWithinOnePercent) {
  Engine engine = load_engine(trained_model(), trained_options(ActivationFormat::kBf16));
  const EvaluateResult result = evaluate_ids(engine, domain_tokens("english"), {});
  const double expected =
      expected_figures()["models"]["tinymoe-qwen3"]["base_top4"]["english"]["perplexity"]
          .get<double>();
  EXPECT_NEAR(result.perplexity(), expected, 1e-2 * expected);
  RecordProperty("perplexity_ratio", fmt::format("{:.8f}", result.perplexity() / expected));
}

}  // namespace
}  // namespace moe::engine
