// Goal: moe-plan fit and compare-log say where every byte goes, and refuse precisely.
// Method: the real binary on published configs, a tiny checkpoint and real start-up logs.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

const std::string kLogs = std::string(MOE_SOURCE_DIR) + "/tests/data/engine-logs/";

TEST(PlanFit, TwoH100HoldMixtral) {
  const Json report = plan_report({"fit", "Mixtral-8x7B-v0.1", "--gpu", "h100-sxm", "--layout",
                                   "TP2", "--request-tokens", "4608"});
  EXPECT_EQ(value_of(report, "fits"), 1.0);
  EXPECT_EQ(value_of(report, "parameters_total"), 46702792704.0);
  EXPECT_EQ(value_of(report, "kv_bytes_per_token"), 65536.0);
  EXPECT_LE(value_of(report, "max_requests_low"), value_of(report, "max_requests"));
  EXPECT_LE(value_of(report, "max_requests"), value_of(report, "max_requests_high"));
  // The rows of the memory table are the whole card.
  double sum = 0.0;
  for (const Json& row : report["tables"]["memory"]["rows"]) sum += row[2].get<double>();
  EXPECT_EQ(sum, report["settings"]["memory_bytes"].get<double>());
}

TEST(PlanFit, ACardThatIsTooSmallIsSaid) {
  const Json report = plan_report({"fit", "Qwen3-30B-A3B", "--gpu", "l40s"});
  EXPECT_EQ(value_of(report, "fits"), 0.0);
  EXPECT_EQ(value_of(report, "out_of_memory_count"), 1.0);
  EXPECT_THAT(report["findings"].dump(), HasSubstr("fit.too_large"));
}

TEST(PlanFit, ACheckpointsHeadersAreHeldAgainstTheFormula) {
  const Json report =
      plan_report({"fit", checkpoint("tinymoe-qwen3"), "--gpu", "l4", "--request-tokens", "128"});
  EXPECT_THAT(report["settings"]["byte_source"].get<std::string>(), HasSubstr("safetensors"));
  EXPECT_EQ(value_of(report, "stored_bytes"), value_of(report, "weight_bytes"));
}

TEST(PlanFit, WrongInputsAreOneLine) {
  const ProcessResult layout = run_moe_plan({"fit", "Mixtral-8x7B-v0.1", "--layout", "TP3"});
  EXPECT_EQ(layout.exit_code, 2);
  EXPECT_THAT(layout.err, HasSubstr("tp 3 does not divide"));
  const ProcessResult model = run_moe_plan({"fit", "No-Such-Model"});
  EXPECT_EQ(model.exit_code, 3);
  const TempDir dir;
  write_file(dir.path() / "config.json", R"({"model_type": "dbrx", "d_model": 64})");
  const ProcessResult missing = run_moe_plan({"fit", dir.path().string()});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, HasSubstr("attn_config.kv_n_heads"));
  EXPECT_THAT(missing.err, HasSubstr("ffn_config.moe_num_experts"));
}

TEST(PlanCompareLog, ARealLogIsPredictedExactly) {
  const Json report = plan_report(
      {"compare-log", kLogs + "vllm_mixtral_tp2_ep.log", kLogs + "configs/mixtral.json"});
  EXPECT_EQ(value_of(report, "terms_exact"), value_of(report, "terms_compared"));
  EXPECT_EQ(value_of(report, "kv_cache_tokens.predicted"), 1048576.0);
  EXPECT_EQ(report["settings"]["layout"], "TP2 EP2");
}

TEST(PlanCompareLog, ATruncatedLogAndAnotherFileAreSaid) {
  const TempDir dir;
  write_file(dir.path() / "start.log",
             "INFO non-default args: {'model': 'm', 'max_model_len': 2048}\n");
  const Json report = plan_report(
      {"compare-log", (dir.path() / "start.log").string(), kLogs + "configs/mixtral.json"});
  EXPECT_THAT(report["findings"].dump(), HasSubstr("the log ends before the cache was made"));
  const ProcessResult other =
      run_moe_plan({"compare-log", kLogs + "SOURCES.md", kLogs + "configs/mixtral.json"});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_THAT(other.err, HasSubstr("no line of a start-up log"));
}

}  // namespace
}  // namespace moe::test
