// The model must show what measurements show (moe_skew_cost of scenarios/measured/
// expert_kernels.json): skew makes decode cheaper and prefill dearer.

#include "lib/balance/kernel_model.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::balance {
namespace {

using ::testing::HasSubstr;

constexpr ExpertShape kDeepSeek = {.hidden_size = 7168, .moe_intermediate_size = 2048};

std::vector<KernelFit> fits() {
  const std::string path = MOE_SOURCE_DIR "/scenarios/measured/expert_kernels.json";
  return read_kernel_fits(moe::test::read_file(path), path);
}

// A step of so many tokens, top-8 of 256; power law of exponent alpha over experts, in an order
// that spreads them over the GPUs.
std::vector<double> counts(double tokens, double alpha) {
  std::vector<double> weights(256);
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[(i * 37) % 256] = std::pow(static_cast<double>(i + 1), -alpha);
  }
  for (const double weight : weights) sum += weight;
  for (double& weight : weights) weight *= 8.0 * tokens / sum;
  return weights;
}

double layer_s(const KernelFit& fit, std::int32_t num_gpus, double tokens, double alpha) {
  const Placement linear = linear_placement(uniform_cluster(num_gpus, 256, 1), 1, 256);
  return step_time(linear, {}, counts(tokens, alpha), tokens, &fit, kDeepSeek);
}

TEST(KernelModel, SkewMakesDecodeCheaperAndPrefillDearer) {
  const std::vector<KernelFit> all = fits();
  for (const char* gpu : {"h100_sxm", "h200_sxm"}) {
    const KernelFit& fit = find_kernel_fit(all, gpu, "trtllm", "fp8_block");
    // One GPU: the same rows, fewer experts read.
    EXPECT_LT(layer_s(fit, 1, 32, 1.2), 0.9 * layer_s(fit, 1, 32, 0.0));
    // 32 GPUs, a large prompt batch: the busiest GPU decides. Measured: 1.78 to 2.20.
    const double dearer = layer_s(fit, 32, 16384, 1.2) / layer_s(fit, 32, 16384, 0.0);
    EXPECT_GT(dearer, 1.5);
  }
}

TEST(KernelModel, GrowsWithRowsAndHits) {
  const std::vector<KernelFit> all = fits();
  EXPECT_GT(all.size(), 50U);
  for (const KernelFit& fit : all) {
    const double base = kernel_time_s(fit, kDeepSeek, 100, 10, 100);
    EXPECT_GT(base, 0.0);
    EXPECT_GE(kernel_time_s(fit, kDeepSeek, 200, 10, 100), base);
    EXPECT_GE(kernel_time_s(fit, kDeepSeek, 100, 20, 100), base);
  }
}

TEST(KernelModel, WithoutAFitCountsCopiesOfTheSlowestGpu) {
  const Placement linear = linear_placement(uniform_cluster(2, 4, 1), 2, 4);
  const std::vector<double> step = {1, 2, 3, 4, 5, 5, 0, 0};
  EXPECT_DOUBLE_EQ(step_time(linear, {}, step, 4, nullptr, {}), 7.0 + 10.0);
  const std::vector<double> speeds = {2.0, 1.0};
  EXPECT_DOUBLE_EQ(step_time(linear, speeds, step, 4, nullptr, {}), 7.0 + 5.0);
}

TEST(KernelModel, ListsWhatThereIs) {
  const std::vector<KernelFit> all = fits();
  const auto refusal = [&](const char* gpu, const char* engine, const char* quant) {
    try {
      (void)find_kernel_fit(all, gpu, engine, quant);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("tpu", "trtllm", "fp8"), HasSubstr("h100_sxm"));
  EXPECT_THAT(refusal("h100_sxm", "trtllm", "int3"), HasSubstr("trtllm/fp8_block"));
}

TEST(KernelModel, RefusesAFileThatIsNone) {
  for (const char* text : {"[]", "{}", "{\"peaks\": {}, \"quant\": {}, \"moe\": 3}",
                           "{\"peaks\": {}, \"quant\": {}, \"moe\": [{\"gpu\": \"x\"}]}"}) {
    EXPECT_THROW((void)read_kernel_fits(text, "fits.json"), Error) << text;
  }
}

}  // namespace
}  // namespace moe::balance
