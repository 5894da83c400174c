// Goal: predict, sweep, verify and calibrate as a user runs them. Method: the real binary on the
// data that comes with the sources; every JSON report is held to the schema.

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

TEST(PlanPredict, GivesABandAroundItsValue) {
  const Json report = plan_report({"predict", "DeepSeek-V3", "--gpu", "h200-sxm", "--engine",
                                   "sglang", "--layout", "TP8", "--clients", "1,64"});
  EXPECT_LE(value_of(report, "tpot_full_overlap_s"), value_of(report, "tpot_s"));
  EXPECT_GE(value_of(report, "tpot_no_overlap_s"), value_of(report, "tpot_s") * (1.0 - 1e-9));
  EXPECT_EQ(report["tables"]["loads"]["rows"].size(), 2U);
  EXPECT_EQ(report["metrics"]["tpot_s"]["kind"], "modelled");
}

TEST(PlanPredict, SaysWhatStandsInForMissingMeasurements) {
  const Json report =
      plan_report({"predict", "Qwen3-30B-A3B", "--gpu", "mi300x", "--layout", "TP1"});
  EXPECT_TRUE(has_finding(report, "predict.default_stands_in"));
}

TEST(PlanPredict, AnOverloadIsCalledUnstable) {
  const Json report = plan_report({"predict", "Mixtral-8x7B-v0.1", "--gpu", "h100-sxm", "--layout",
                                   "TP2", "--request-rate", "100000"});
  EXPECT_TRUE(has_finding(report, "predict.unstable"));
}

TEST(PlanPredict, AReportOfMoeBenchCalibrates) {
  const std::string bench = std::string(MOE_SOURCE_DIR) + "/reports/examples/moe-bench-run.json";
  const Json report =
      plan_report({"predict", "Qwen3-30B-A3B", "--gpu", "h100-sxm", "--calibration", bench});
  EXPECT_GT(report["settings"]["decode_calibration"].get<double>(), 0.0);
}

TEST(PlanPredict, AReportOfMoeSkewGivesThePopularity) {
  const TempDir temp;
  const std::string skew = (temp.path() / "skew.json").string();
  const ProcessResult inspected =
      run_moe_skew({"inspect", checkpoint("tinymoe-qwen3") + "/routing-c.safetensors", "-o", skew,
                    "-q", "--format", "none"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const std::string model = checkpoint("tinymoe-qwen3");
  const Json report = plan_report({"predict", model, "--gpu", "h100-sxm", "--popularity", skew});
  EXPECT_THAT(report["settings"]["routing"].get<std::string>(), HasSubstr("skew.json"));
  // The same experts under even routing: a skewed batch touches fewer of them.
  const Json even = plan_report({"predict", model, "--gpu", "h100-sxm"});
  const auto distinct = [](const Json& r) {
    const Json& table = r["tables"]["decode_step"];
    std::size_t column = 0;
    while (table["columns"][column]["name"] != "distinct_experts_per_layer") ++column;
    return table["rows"][1][column].get<double>();
  };
  EXPECT_LT(distinct(report), distinct(even));
  // A report without the table of experts is refused with what writes one.
  const std::string plan = (temp.path() / "plan.json").string();
  ASSERT_EQ(run_moe_skew({"plan", model + "/routing-c.safetensors", "--gpus", "4", "-o", plan, "-q",
                          "--format", "none"})
                .exit_code,
            0);
  const ProcessResult refused =
      run_moe_plan({"predict", model, "--gpu", "h100-sxm", "--popularity", plan});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("moe-skew inspect"));
  // So is one of another model, by size as well.
  const ProcessResult other =
      run_moe_plan({"size", "--scenario", "mixtral-2xh100", "--skew-report", skew});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_THAT(other.err, HasSubstr("8 experts, found 16"));
}

TEST(PlanPredict, WrongInputsAreOneLineWithTheRightCode) {
  EXPECT_EQ(run_moe_plan({"predict", "no-such-model"}).exit_code, 3);
  EXPECT_EQ(run_moe_plan({"predict", "Mixtral-8x7B-v0.1", "--gpu", "none"}).exit_code, 2);
  EXPECT_EQ(run_moe_plan({"predict", "Mixtral-8x7B-v0.1", "--layout", "TP3"}).exit_code, 2);
  const TempDir temp;
  const std::string path = (temp.path() / "bad.json").string();
  write_file(path, "{\"tables\": {}}");
  const ProcessResult result = run_moe_plan({"predict", "Mixtral-8x7B-v0.1", "--popularity", path});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.err), 1);
}

TEST(PlanSweep, FindsAFrontWithinTheLimits) {
  const Json report = plan_report({"sweep", "Mixtral-8x7B-v0.1", "--gpus", "h100-sxm,h200-sxm",
                                   "--max-gpus", "8", "--max-tpot", "50ms"});
  const Json& table = report["tables"]["front"];
  ASSERT_FALSE(table["rows"].empty());
  std::size_t tpot = 0;
  for (std::size_t i = 0; i < table["columns"].size(); ++i) {
    if (table["columns"][i]["name"] == "tpot_s") tpot = i;
  }
  for (const Json& row : table["rows"]) EXPECT_LE(row[tpot].get<double>(), 0.05);
}

TEST(PlanSweep, NothingFoundIsNotASuccess) {
  const Json report = plan_report({"sweep", "DeepSeek-V3", "--gpus", "l4", "--max-gpus", "2"}, 7);
  EXPECT_FALSE(report["validity"]["valid"].get<bool>());
}

TEST(PlanVerify, StatesItsErrorsAndMeetsThem) {
  const Json report = plan_report({"verify"});
  EXPECT_LE(value_of(report, "tpot_median_error"), 0.10);
  EXPECT_LE(value_of(report, "ttft_median_error"), 0.25);
  EXPECT_GT(value_of(report, "held_out_rows"), 200.0);
  for (const char* table : {"byte_anchors", "throughput_anchors", "end_to_end_errors",
                            "end_to_end_errors_by_gpu_engine", "peer_side_by_side"}) {
    EXPECT_TRUE(report["tables"].contains(table)) << table;
  }
}

TEST(PlanVerify, JudgesAnyTableOfTheSameFormat) {
  const TempDir temp;
  const std::string path = (temp.path() / "rows.csv").string();
  write_file(path,
             "id,gpu,engine,model,precision,isl,osl,concurrency,tp,ttft_ms,tpot_ms\n"
             "mine,h200_sxm,sglang,deepseek-ai/DeepSeek-V3,fp8,1024,1024,16,8,300,17\n");
  const Json report = plan_report({"verify", "--end-to-end", path});
  EXPECT_EQ(report["tables"]["end_to_end_all_rows"]["rows"][0][1], 1);
  write_file(path, "a,b\n1,2\n");
  EXPECT_EQ(run_moe_plan({"verify", "--end-to-end", path}).exit_code, 3);
}

TEST(PlanCalibrate, WritesConstantsThatVerifyReads) {
  const TempDir temp;
  const std::string path = (temp.path() / "constants.json").string();
  const Json report = plan_report({"calibrate", "--out", path});
  EXPECT_LE(value_of(report, "tpot_median_error"), 0.10);
  EXPECT_LE(value_of(plan_report({"verify", "--constants", path}), "tpot_median_error"), 0.10);
}

}  // namespace
}  // namespace moe::test
