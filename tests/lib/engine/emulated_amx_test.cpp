// Goal: models run right on the AMX level, on machines that have none. Method: the emulated level,
// which computes the bits of the hardware, against the scalar level with the same activations
// rounded to bf16, and against itself for any threads and batches; golden checkpoints with f32.

#include <algorithm>
#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/engine/verify.hpp"
#include "tests/kernels/emulated.hpp"
#include "tests/lib/engine/support.hpp"

namespace moe::engine {
namespace {

using kernels::ActivationFormat;
using kernels::emulated_amx_table;
using testing::all_logits;
using testing::checkpoint_dir;
using testing::load_engine;
using testing::random_tokens;

EngineOptions bf16_options(const kernels::KernelTable& table, int num_threads) {
  EngineOptions options;
  options.isa = kernels::Isa::kScalar;
  options.kernel_table = &table;
  options.activations = ActivationFormat::kBf16;
  options.num_threads = num_threads;
  options.max_context = 48;
  options.max_sequences = 3;
  return options;
}

// |found - expected| / |expected| of the logits of each token; the median, because a choice of
// experts that a rounding turns moves the tokens after it by as much as another expert does.
double median_distance(const std::vector<float>& found, const std::vector<float>& expected,
                       std::size_t num_tokens) {
  const std::size_t vocab = expected.size() / num_tokens;
  std::vector<double> distances;
  for (std::size_t token = 0; token < num_tokens; ++token) {
    double difference = 0.0;
    double size = 0.0;
    for (std::size_t i = token * vocab; i < (token + 1) * vocab; ++i) {
      const auto value = static_cast<double>(expected[i]);
      difference += std::pow(static_cast<double>(found[i]) - value, 2);
      size += value * value;
    }
    distances.push_back(std::sqrt(difference / size));
  }
  std::sort(distances.begin(), distances.end());
  return distances[num_tokens / 2];
}

class EmulatedAmxModel : public ::testing::TestWithParam<const char*> {
 protected:
  model::BoundModel model_ = model::bind_checkpoint(checkpoint_dir(GetParam()));
  std::vector<std::int32_t> tokens_ = random_tokens(37, model_.config.vocab_size, 5);
};

// Sums in another order; a bf16 that rounds to the other neighbour is 2^-8 off. Both stay far below
// what rounding the activations itself costs, which the second bound is about.
TEST_P(EmulatedAmxModel, LogitsAreThoseOfTheScalarLevel) {
  const kernels::KernelTable& scalar = *kernels::kernel_table(kernels::Isa::kScalar);
  EngineOptions unrounded = bf16_options(scalar, 1);
  unrounded.activations = ActivationFormat::kF32;
  Engine reference = load_engine(model_, unrounded);
  const std::vector<float> exact = all_logits(reference, 0, tokens_);
  Engine scalar_engine = load_engine(model_, bf16_options(scalar, 1));
  const std::vector<float> expected = all_logits(scalar_engine, 0, tokens_);
  Engine engine = load_engine(model_, bf16_options(emulated_amx_table(), 1));
  const std::vector<float> found = all_logits(engine, 0, tokens_);
  EXPECT_GT(median_distance(expected, exact, tokens_.size()), 0.0)
      << "bf16 activations are not in use";
  EXPECT_LT(median_distance(found, exact, tokens_.size()), 0.03);
  EXPECT_LT(median_distance(found, expected, tokens_.size()), 0.01);
}

TEST_P(EmulatedAmxModel, BitsDoNotDependOnThreadsOrBatch) {
  Engine alone = load_engine(model_, bf16_options(emulated_amx_table(), 1));
  const std::vector<float> expected = all_logits(alone, 0, tokens_);
  const std::vector<std::int32_t> other = random_tokens(9, model_.config.vocab_size, 6);
  for (const int num_threads : {2, 3, 7}) {
    Engine engine = load_engine(model_, bf16_options(emulated_amx_table(), num_threads));
    const std::vector<BatchEntry> batch = {{1, other, false}, {0, tokens_, true}};
    const std::span<const float> logits = engine.forward(batch);
    const std::vector<float> found(logits.end() - static_cast<std::ptrdiff_t>(expected.size()),
                                   logits.end());
    EXPECT_EQ(found, expected) << num_threads << " threads";
  }
}

TEST_P(EmulatedAmxModel, GoldenNumbersHoldWithoutRounding) {
  const std::filesystem::path golden = checkpoint_dir(GetParam()) / "golden.safetensors";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << "this checkpoint has no golden file";
  VerifyOptions options;
  options.kernel_table = &emulated_amx_table();
  NullProgress progress;
  const Interrupt interrupt;
  EXPECT_TRUE(verify(model_, golden, options, progress, interrupt).passed);
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedAmxModel,
                         ::testing::Values("qwen3moe-a", "mixtral-b", "dsv3-a", "dsv3-fp8-32",
                                           "gptoss-mxfp4", "gptq-desc", "awq-a", "ct-w8a8",
                                           "qwen3moe-gguf-q4_k_m"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moe::engine
