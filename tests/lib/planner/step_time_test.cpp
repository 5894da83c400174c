#include "lib/planner/step_time.hpp"

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/planner/step_fixture.hpp"

namespace moe::planner {
namespace {

Layout layout_of(std::int32_t tp, std::int32_t ep = 1, std::int32_t dp = 1, std::int32_t pp = 1) {
  Layout layout;
  layout.tp = tp;
  layout.ep = ep;
  layout.dp = dp;
  layout.pp = pp;
  return layout;
}

TEST(StepTime, PartsAndResourcesAddUpToTheValue) {
  for (const char* name :
       {"Mixtral-8x7B-v0.1", "DeepSeek-V3", "gpt-oss-120b", "Qwen3.5-397B-A17B"}) {
    const StepModel model = test::step_model(name, "h200-sxm", layout_of(8));
    for (const StepTime& step : {model.decode(16.0, 2000.0), model.prefill(2000.0)}) {
      double parts = 0.0;
      double resources = 0.0;
      for (const double part : step.parts) parts += part;
      for (const double resource : step.resources) resources += resource;
      EXPECT_NEAR(parts, step.value_s, 1e-9 * step.value_s) << name;
      EXPECT_NEAR(resources, step.value_s, 1e-9 * step.value_s) << name;
      EXPECT_LE(step.full_overlap_s, step.value_s) << name;
      EXPECT_GE(step.no_overlap_s, step.value_s) << name;
    }
  }
}

// 352.3 MB an expert-layer slice: 8 experts, 32 layers, BF16, over two GPUs.
TEST(StepTime, ProfileCountsTheBytesOfMixtral) {
  const StepProfile profile =
      make_step_profile(test::architecture("Mixtral-8x7B-v0.1"), layout_of(2), KvOptions{});
  ASSERT_EQ(profile.moe.size(), 1U);
  EXPECT_EQ(profile.moe[0].num_layers, 32.0);
  EXPECT_EQ(profile.moe[0].local_experts, 8.0);
  EXPECT_DOUBLE_EQ(profile.moe[0].expert_bytes, 3.0 * 4096 * 14336 * 2 / 2);
  EXPECT_DOUBLE_EQ(profile.moe[0].token_flops, 6.0 * 4096 * 14336 / 2);
  ASSERT_EQ(profile.attention.size(), 1U);
  // 131,072 B a token over 32 layers and two GPUs.
  EXPECT_DOUBLE_EQ(profile.attention[0].token_bytes, 131072.0 / 32 / 2);
  EXPECT_EQ(profile.mixer, "gqa");
  EXPECT_EQ(profile.precision, "bf16");
}

TEST(StepTime, ProfileKnowsLatentAttentionAndDenseLayers) {
  const StepProfile profile =
      make_step_profile(test::architecture("DeepSeek-V3"), layout_of(8, 8), KvOptions{});
  ASSERT_EQ(profile.moe.size(), 1U);
  EXPECT_EQ(profile.moe[0].num_layers, 58.0);  // 3 of 61 are dense
  EXPECT_EQ(profile.moe[0].local_experts, 32.0);
  EXPECT_EQ(profile.attention[0].token_bytes, 576.0 * 2);  // not divided by TP
  EXPECT_EQ(profile.mixer, "mla");
  EXPECT_EQ(profile.precision, "fp8");
}

TEST(StepTime, WindowsBoundWhatAttentionReads) {
  const StepModel model = test::step_model("gpt-oss-120b", "h100-sxm", layout_of(2));
  const double near = model.decode(8.0, 4000.0).part(StepPart::kAttention);
  const double far = model.decode(8.0, 8000.0).part(StepPart::kAttention);
  const StepModel full = test::step_model("Qwen3-30B-A3B", "h100-sxm", layout_of(2));
  const double full_near = full.decode(8.0, 4000.0).part(StepPart::kAttention);
  const double full_far = full.decode(8.0, 8000.0).part(StepPart::kAttention);
  EXPECT_GT(far, near);
  EXPECT_LT(far / near, full_far / full_near + 1e-9);
}

TEST(StepTime, MoreWorkNeverTakesLess) {
  const StepModel model = test::step_model("Qwen3-30B-A3B", "h100-sxm", layout_of(2, 2));
  double last = 0.0;
  for (const double batch : {1.0, 2.0, 8.0, 32.0, 128.0, 512.0}) {
    const double now = model.decode(batch, 1000.0).value_s;
    EXPECT_GT(now, last);
    last = now;
  }
  EXPECT_GT(model.decode(8.0, 2000.0).value_s, model.decode(8.0, 1000.0).value_s);
  EXPECT_GT(model.prefill(2000.0).value_s, model.prefill(1000.0).value_s);
  EXPECT_GT(model.prefill(1000.0, 1.0, 4000.0).value_s, model.prefill(1000.0).value_s);
}

TEST(StepTime, SkewMakesDecodeCheaperAndPrefillDearer) {
  StepSetup skewed;
  skewed.skew.popularity = power_law_popularity(128, 1.0);
  const Layout layout = layout_of(8, 8);
  const StepModel uniform = test::step_model("Qwen3-235B-A22B", "h200-sxm", layout);
  const StepModel skew = test::step_model("Qwen3-235B-A22B", "h200-sxm", layout, skewed);
  EXPECT_LT(skew.decode(16.0, 1000.0).part(StepPart::kExperts),
            uniform.decode(16.0, 1000.0).part(StepPart::kExperts));
  EXPECT_GT(skew.prefill(8192.0).part(StepPart::kExperts),
            uniform.prefill(8192.0).part(StepPart::kExperts));
}

TEST(StepTime, APipelineSharesABatchOverItsStages) {
  const StepModel one = test::step_model("Qwen3-235B-A22B", "h200-sxm", layout_of(4));
  const StepModel two = test::step_model("Qwen3-235B-A22B", "h200-sxm", layout_of(4, 1, 1, 2));
  EXPECT_GT(two.decode(64.0, 1000.0).value_s, one.decode(32.0, 1000.0).value_s);
  EXPECT_LT(two.decode(64.0, 1000.0).value_s, one.decode(64.0, 1000.0).value_s);
}

TEST(StepTime, UnknownGpusSayWhatStandsIn) {
  const StepModel known = test::step_model("Qwen3-235B-A22B", "h200-sxm", layout_of(1));
  const StepModel unknown = test::step_model("Qwen3-235B-A22B", "mi300x", layout_of(8));
  EXPECT_GT(unknown.defaults().size(), known.defaults().size());
  EXPECT_GT(unknown.decode(1.0, 1000.0).value_s, 0.0);
}

TEST(StepTime, CalibrationScalesBothPhases) {
  StepSetup setup;
  setup.decode_calibration = 1.5;
  setup.prefill_calibration = 0.5;
  const StepModel plain = test::step_model("Mixtral-8x7B-v0.1", "h100-sxm", layout_of(2));
  const StepModel scaled = test::step_model("Mixtral-8x7B-v0.1", "h100-sxm", layout_of(2), setup);
  EXPECT_NEAR(scaled.decode(8.0, 500.0).value_s, 1.5 * plain.decode(8.0, 500.0).value_s, 1e-12);
  EXPECT_NEAR(scaled.prefill(500.0).value_s, 0.5 * plain.prefill(500.0).value_s, 1e-12);
}

TEST(KernelTable, FallsBackInSteps) {
  const KernelTable& kernels = test::measured_times().kernels;
  EXPECT_EQ(kernels.find(KernelKind::kMoe, "h100-sxm", "trtllm", "bf16").match, FitMatch::kExact);
  EXPECT_EQ(kernels.find(KernelKind::kMoe, "h100-sxm", "llama.cpp", "bf16").match,
            FitMatch::kOtherEngine);
  EXPECT_EQ(kernels.find(KernelKind::kMoe, "h20", "trtllm", "bf16").match, FitMatch::kOtherGpu);
  EXPECT_EQ(kernels.find(KernelKind::kMoe, "h20", "llama.cpp", "bf16").match,
            FitMatch::kFormatOnly);
  EXPECT_EQ(kernels.find(KernelKind::kMoe, "h20", "llama.cpp", "q4_k").match, FitMatch::kDefault);
}

TEST(CollectiveTime, MeasuredOnL40sIsFarBelowThePcieRate) {
  const Accelerator& gpu = find_accelerator(test::hardware(), "l40s");
  const CollectiveFit fit = test::measured_times().collectives.all_reduce(gpu, "vllm", 8, {});
  EXPECT_TRUE(fit.is_measured);
  EXPECT_LT(fit.bytes_per_s, 5e9);
}

TEST(CollectiveTime, RanksBeyondANodePayTheScaleOutLink) {
  const Accelerator& gpu = find_accelerator(test::hardware(), "h100-sxm");
  const CollectiveTable& table = test::measured_times().collectives;
  const double inside = all_reduce_time_s(table.all_reduce(gpu, "vllm", 8, {}), 8, 1e6);
  const double outside = all_reduce_time_s(table.all_reduce(gpu, "vllm", 16, {}), 16, 1e6);
  EXPECT_GT(outside, inside + 40e-6);
  EXPECT_GT(moe_all_to_all_time_s(gpu, 64, {}, 128, 8, 7168, false).total_s(),
            moe_all_to_all_time_s(gpu, 8, {}, 128, 8, 7168, false).total_s());
}

TEST(StepConstants, WrittenAndReadAgainAreTheSame) {
  const StepConstants& constants = test::measured_times().constants;
  const StepConstants again = parse_step_constants(step_constants_json(constants), "again");
  const TermKeys keys = make_term_keys("b200-sxm", "vllm", "fp4", "gqa");
  for (std::size_t t = 0; t < kNumTerms; ++t) {
    EXPECT_NEAR(again.resolve(keys).values[t], constants.resolve(keys).values[t],
                1e-4 * constants.resolve(keys).values[t]);
  }
  EXPECT_TRUE(again.knows_engine("vllm"));
  EXPECT_FALSE(again.knows_engine("llama.cpp"));
}

TEST(StepConstants, BadFilesNameTermAndField) {
  try {
    (void)parse_step_constants(R"({"terms": {"layer_s": {"prior": -1, "log_sigma": 1}}})", "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer_s"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("prior"), std::string::npos);
  }
  EXPECT_THROW((void)parse_step_constants(R"({"terms": {"nonsense": {}}})", "f"), Error);
  EXPECT_THROW((void)parse_kernel_table(R"({"fits": [{"kernel": "moe"}]})", "f"), Error);
  EXPECT_THROW((void)parse_collective_table("[]", "f"), Error);
}

}  // namespace
}  // namespace moe::planner
