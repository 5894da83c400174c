// The logits of a sequence have the same bits for any number of threads, any cut into passes and
// calls, and whatever else is in the batch.

#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using testing::all_logits;
using testing::checkpoint_dir;
using testing::load_engine;
using testing::random_tokens;
using testing::runnable_isas;

constexpr std::int64_t kContext = 80;

struct Setting {
  int num_threads = 1;
  std::int64_t max_batch_tokens = 512;
};

EngineOptions engine_options(kernels::Isa isa, ActivationFormat activations,
                             const Setting& setting) {
  EngineOptions options;
  options.isa = isa;
  options.activations = activations;
  options.num_threads = setting.num_threads;
  options.max_batch_tokens = setting.max_batch_tokens;
  options.max_context = kContext;
  options.max_sequences = 4;
  return options;
}

std::vector<std::vector<std::int32_t>> prompts(std::int32_t vocab) {
  return {random_tokens(70, vocab, 1), random_tokens(1, vocab, 2), random_tokens(33, vocab, 3),
          random_tokens(12, vocab, 4)};
}

// The last prompt in three calls, beside the others in one.
std::vector<std::vector<float>> run_ragged(Engine& engine,
                                           const std::vector<std::vector<std::int32_t>>& texts) {
  std::vector<std::vector<float>> logits(texts.size());
  std::vector<std::size_t> done(texts.size(), 0);
  for (int call = 0; call < 3; ++call) {
    std::vector<BatchEntry> entries;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t left = texts[i].size() - done[i];
      // Sequence i takes part from call i on; odd ones go in small bites.
      std::size_t take = static_cast<std::size_t>(call) < std::min<std::size_t>(i, 2) ? 0 : left;
      if (i % 2 == 1 && call < 2) take = std::min<std::size_t>(left, 3);
      if (take == 0) continue;
      entries.push_back(
          {static_cast<SequenceId>(i), std::span(texts[i]).subspan(done[i], take), true});
      done[i] += take;
    }
    if (entries.empty()) continue;
    std::span<const float> rows = engine.forward(entries);
    for (const BatchEntry& entry : entries) {
      const std::size_t count =
          entry.tokens.size() * static_cast<std::size_t>(engine.config().vocab_size);
      auto& target = logits[static_cast<std::size_t>(entry.sequence)];
      target.insert(target.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
      rows = rows.subspan(count);
    }
  }
  return logits;
}

// The scalar level is slow; one setting that differs in everything has to do for it.
std::vector<Setting> settings(kernels::Isa isa) {
  if (isa == kernels::Isa::kScalar) return {{3, 7}};
  return {{1, 512}, {2, 512}, {3, 7}, {7, 40}, {2, 1}};
}

using Case = std::tuple<std::string, kernels::Isa, ActivationFormat>;
class Invariance : public ::testing::TestWithParam<Case> {};

TEST_P(Invariance, BitsDoNotDependOnThreadsChunksOrBatch) {
  const auto& [name, isa, activations] = GetParam();
  const model::BoundModel model = model::bind_checkpoint(checkpoint_dir(name));
  const auto texts = prompts(model.config.vocab_size);
  std::vector<std::vector<float>> expected;
  {
    Engine engine = load_engine(model, engine_options(isa, activations, {}));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      expected.push_back(all_logits(engine, static_cast<SequenceId>(i), texts[i]));
    }
  }
  for (const Setting& setting : settings(isa)) {
    Engine engine = load_engine(model, engine_options(isa, activations, setting));
    const auto found = run_ragged(engine, texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(found[i], expected[i]) << "prompt " << i << ", threads " << setting.num_threads
                                       << ", tokens per pass " << setting.max_batch_tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Invariance,
    ::testing::Combine(::testing::Values("qwen3moe-a", "qwen2moe-a", "dsv3-a", "gptoss-a",
                                         "mixtral-b", "gptoss-mxfp4", "dsv3-fp8-32", "phimoe-a",
                                         "dbrx-a", "llama4-a", "gptq-desc", "awq-a", "ct-w8a8",
                                         "qwen3moe-gguf-q4_k_m"),
                       ::testing::ValuesIn(runnable_isas()),
                       ::testing::Values(ActivationFormat::kF32, ActivationFormat::kBf16,
                                         ActivationFormat::kInt8)),
    [](const auto& param_info) {
      std::string name =
          fmt::format("{}_{}_{}", std::get<0>(param_info.param),
                      kernels::isa_name(std::get<1>(param_info.param)),
                      std::get<2>(param_info.param) == ActivationFormat::kF32    ? "f32"
                      : std::get<2>(param_info.param) == ActivationFormat::kBf16 ? "bf16"
                                                                                 : "int8");
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace moe::engine
