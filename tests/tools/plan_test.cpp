// Goal: moe-plan answers the questions a buyer asks, and its reports hold what a signature needs.
// Method: the real binary on the committed example plans; figures against hand arithmetic and
// published values.

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/report/json_io.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kGiB = 1073741824.0;

TEST(PlanUsage, EveryCommandHasHelp) {
  for (const char* command : {"size", "quick", "accept"}) {
    const ProcessResult result = run_moe_plan({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr(std::string("Usage: moe-plan ") + command));
    EXPECT_THAT(result.out, HasSubstr("Output:"));
  }
}

TEST(PlanUsage, WrongInputsHaveOneLineAndTheRightCode) {
  const auto expect = [](const std::vector<std::string>& args, int code, const std::string& text) {
    EXPECT_THAT(error_line(run_moe_plan(args), code), HasSubstr(text));
  };
  expect({"size"}, 2, "no model");
  expect({"size", "--scenario", "no-such-plan"}, 3, "no such file");
  expect({"size", "--model", "no-such-model", "--gpu", "h100", "--requests-per-s", "1",
          "--input-tokens", "10", "--output-tokens", "10"},
         3, "no-such-model");
  expect({"size", "--model", "Mixtral-8x7B-v0.1", "--gpu", "h100-sxm"}, 2, "--requests-per-s");
  expect({"size", "--scenario", "mixtral-2xh100", "--layout", "XX3"}, 2, "TP8");
  expect({"size", "--scenario", "mixtral-2xh100", "--gpu", "nothing-such"}, 2, "nothing-such");
  expect({"accept"}, 2, "REPORT");
  expect({"accept", "no-such.json"}, 3, "no-such.json");
  const TempDir dir;
  write_file(dir / "cut.json", "{\"schema\": \"moekit-report\", ");
  expect({"accept", (dir / "cut.json").string()}, 3, "cut.json");
  write_file(dir / "s.json", "{\"schema\": \"moekit-scenario\"}");
  expect({"size", "--scenario", (dir / "s.json").string()}, 3, "not a valid scenario");
}

// ---- quick ----

TEST(PlanQuick, TheArticlesInputsGetTheRightAnswer) {
  const Json report = plan_report({"quick", "--model", "Mixtral-8x22B-v0.1", "--hidden-size",
                                   "4096", "--layers", "32", "--ffn-width", "14336"});
  EXPECT_DOUBLE_EQ(value_of(report, "traffic.routing_decisions.quick"), 16.0);
  EXPECT_DOUBLE_EQ(value_of(report, "traffic.routing_decisions.right"), 112.0);
  EXPECT_NEAR(value_of(report, "memory.all_experts.quick"), 704.6e6, 0.1e6);
  EXPECT_NEAR(value_of(report, "memory.all_experts.right"), 270.58e9, 0.01e9);
  EXPECT_DOUBLE_EQ(value_of(report, "cache.request.quick"), 1048576.0);
  EXPECT_DOUBLE_EQ(value_of(report, "cache.request.right"), 896.0 * 1048576.0);
  EXPECT_DOUBLE_EQ(value_of(report, "hardware.a2a_ceiling.right"), 450e9);
  const ProcessResult text = run_moe_plan({"quick"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("Kilobytes were written as megabytes"));
}

// ---- the three questions of the README ----

TEST(PlanSize, MixtralOnTwoH100) {
  const Json report = plan_report({"size", "--scenario", "mixtral-2xh100"});
  // 46,702,792,704 parameters of two bytes.
  EXPECT_DOUBLE_EQ(value_of(report, "weight_bytes"), 2.0 * 46702792704.0);
  EXPECT_DOUBLE_EQ(value_of(report, "num_ranks"), 2.0);
  EXPECT_DOUBLE_EQ(value_of(report, "gpus_count.h100_sxm"), 2.0);
  // Two GPUs in one node: with it gone nothing is left, and the report says so.
  EXPECT_DOUBLE_EQ(value_of(report, "slo_met_after_failure"), 0.0);
  EXPECT_EQ(acceptance_of(report, "plan.headroom"), "fail");
  EXPECT_TRUE(has_finding(report, "plan.no_spare"));
  EXPECT_GT(value_of(report, "headroom_ratio.h100_sxm"), 0.0);
  EXPECT_LE(value_of(report, "ttft_p99_s.h100_sxm"), 2.0);
  EXPECT_LE(value_of(report, "tpot_s.h100_sxm"), 0.05);
  // The cache of a request of about 6,000 tokens, two GPUs.
  EXPECT_GT(value_of(report, "max_requests.h100_sxm"), 20.0);
  EXPECT_LT(value_of(report, "max_requests.h100_sxm"), 120.0);
  // 2 x 8760 h x 3.07 USD.
  EXPECT_NEAR(value_of(report, "rent_usd_per_year.h100_sxm"), 2 * 8760 * 3.07, 1.0);
}

TEST(PlanSize, DeepSeekForFiftyRequestsASecond) {
  const Json report = plan_report({"size", "--scenario", "deepseek-v3-50rps"});
  for (const std::string gpu : {"h200_sxm", "b200_sxm"}) {
    EXPECT_LE(value_of(report, "ttft_p99_s." + gpu), 2.0) << gpu;
    EXPECT_LE(value_of(report, "tpot_s." + gpu), 0.05) << gpu;
    EXPECT_GE(value_of(report, "tpot_s_high." + gpu), value_of(report, "tpot_s." + gpu)) << gpu;
    EXPECT_LE(value_of(report, "tpot_s_low." + gpu), value_of(report, "tpot_s." + gpu)) << gpu;
    EXPECT_EQ(std::fmod(value_of(report, "gpus_bought_count." + gpu), 8.0), 0.0) << gpu;
    EXPECT_GE(value_of(report, "requests_per_s_after_failure." + gpu), 65.0) << gpu;
    // 50 requests/s of about 600 tokens each are 30,000 tokens/s; a GPU of either kind was
    // published between 1,500 and 10,100 of them, at other loads.
    EXPECT_GT(value_of(report, "gpus_count." + gpu), 8.0) << gpu;
    EXPECT_LT(value_of(report, "gpus_count." + gpu), 400.0) << gpu;
  }
  EXPECT_LT(value_of(report, "gpus_count.b200_sxm"), value_of(report, "gpus_count.h200_sxm"));
  EXPECT_EQ(acceptance_of(report, "plan.headroom"), "pass");
  EXPECT_EQ(acceptance_of(report, "memory.utilization"), "pass");
  EXPECT_EQ(acceptance_of(report, "parallel.layout"), "pass");
}

TEST(PlanSize, QwenDoesNotFitOneL40sInBf16) {
  const Json report = plan_report({"size", "--scenario", "qwen3-30b-l40s"});
  EXPECT_TRUE(has_finding(report, "plan.no_layout"));
  // 30,532,122,624 parameters of two bytes are 56.9 GiB; the card shows 46,068 MiB.
  EXPECT_NEAR(value_of(report, "weight_bytes") / kGiB, 56.87, 0.01);
  EXPECT_THAT(report["tables"]["part00_answer"]["rows"][0][1].get<std::string>(),
              AllOf(HasSubstr("does not fit"), HasSubstr("GiB")));
  const ProcessResult text = run_moe_plan({"size", "--scenario", "qwen3-30b-l40s"});
  EXPECT_THAT(text.out, HasSubstr("does not fit"));
  EXPECT_THAT(text.out, HasSubstr("What would work"));
  const Json narrower =
      plan_report({"size", "--scenario", "qwen3-30b-l40s", "--weight-format", "fp8-block128"});
  EXPECT_FALSE(has_finding(narrower, "plan.no_layout"));
}

TEST(PlanSize, TheReportHasAllElevenParts) {
  const Json report = plan_report({"size", "--scenario", "deepseek-v3-50rps"});
  for (const char* part : {"part01_header", "part02_workload", "part03_service_level", "part04_fit",
                           "part05_performance_h200_sxm", "part05_front", "part06_count_h200_sxm",
                           "part07_power_h200_sxm", "part08_money_h200_sxm", "part08_check",
                           "part09_sensitivity_h200_sxm", "part10_risks", "part10_assumptions",
                           "part11_reproduction"}) {
    ASSERT_TRUE(report["tables"].contains(part)) << part;
    EXPECT_FALSE(report["tables"][part]["rows"].empty()) << part;
  }
  // Every figure carries its kind and where it comes from.
  for (const auto& [name, one] : report["metrics"].items()) {
    EXPECT_FALSE(one["how"].get<std::string>().empty()) << name;
  }
  EXPECT_THAT(report["tables"]["part08_check"]["rows"][0][2].get<std::string>(), "87,072 USD");
  EXPECT_THAT(report["tables"]["part11_reproduction"]["rows"][0][1].get<std::string>(),
              HasSubstr("size --scenario deepseek-v3-50rps"));
}

TEST(PlanSize, WritesAPageThatNeedsNothingElse) {
  const TempDir dir;
  const std::string html = (dir / "plan.html").string();
  const std::string markdown = (dir / "plan.md").string();
  const ProcessResult result = run_moe_plan(
      {"size", "--scenario", "mixtral-2xh100", "-o", html, "-o", markdown, "--format", "none"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string page = read_file(html);
  EXPECT_THAT(page, AllOf(HasSubstr("11. How to make this report again"), HasSubstr("@media print"),
                          Not(HasSubstr("<script src")), Not(HasSubstr("<link "))));
  EXPECT_THAT(page, HasSubstr("\"kind\":\"tornado\""));
  const std::string text = read_file(markdown);
  std::size_t at = 0;
  for (const char* part : {"## 1. ", "## 2. ", "## 3. ", "## 4. ", "## 5. ", "## 6. ", "## 7. ",
                           "## 8. ", "## 9. ", "## 10. ", "## 11. "}) {
    const std::size_t found = text.find(part, at);
    ASSERT_NE(found, std::string::npos) << part;
    at = found;
  }
}

TEST(PlanSize, FlagsOverrideTheScenario) {
  const Json report = plan_report({"size", "--scenario", "mixtral-2xh100", "--rent", "1.0",
                                   "--requests-per-s", "1", "--growth", "0.5"});
  EXPECT_NEAR(value_of(report, "rent_usd_per_year.h100_sxm"), 2 * 8760 * 1.0, 1.0);
  EXPECT_NEAR(value_of(report, "requests_per_s_planned.h100_sxm"), 1.5, 1e-9);
}

TEST(PlanSize, ATraceIsAWorkload) {
  const Json report = plan_report({"size", "--scenario", "azure-sample"});
  EXPECT_EQ(report["metrics"]["requests_per_s_mean"]["kind"], "measured");
  EXPECT_GT(value_of(report, "gap_cv"), 1.0);
  EXPECT_GT(value_of(report, "requests_per_s_peak"), value_of(report, "requests_per_s_mean"));
}

TEST(PlanSize, TheSameQuestionGivesTheSameBytes) {
  const std::vector<std::string> args = {"size", "--scenario", "mixtral-2xh100"};
  EXPECT_EQ(report::mask_volatile(plan_report(args)).dump(),
            report::mask_volatile(plan_report(args)).dump());
}

TEST(PlanSize, AReaderThatGoesAwayIsNoError) {
  ProcessOptions options;
  options.closes_stdout_early = true;
  const ProcessResult result = run_moe_plan({"size", "--scenario", "mixtral-2xh100"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

// What readers see first is what the planner says today.
TEST(PlanSize, TheExampleReportIsUpToDate) {
  const Json example =
      checked_report(read_file(MOE_SOURCE_DIR "/reports/examples/moe-plan-size.json"));
  const Json report = plan_report({"size", "--scenario", "mixtral-2xh100"});
  EXPECT_EQ(example.at("metrics").dump(), report.at("metrics").dump());
  for (const auto& table : example.at("tables").items()) {
    // These hold the paths and the command of whoever ran it.
    if (table.key() == "part01_header" || table.key() == "part11_reproduction") continue;
    EXPECT_EQ(table.value().dump(), report.at("tables").at(table.key()).dump()) << table.key();
  }
}

// ---- accept ----

TEST(PlanAccept, MergesReportsIntoOneVerdict) {
  const TempDir dir;
  const std::string plan = (dir / "plan.json").string();
  ASSERT_EQ(run_moe_plan({"size", "--scenario", "deepseek-v3-50rps", "-o", plan, "--format", "none",
                          "--quiet"})
                .exit_code,
            0);
  const std::string bench = MOE_SOURCE_DIR "/reports/examples/moe-bench-run.json";
  const Json merged = plan_report({"accept", plan, bench});
  EXPECT_EQ(merged["subject"]["kind"], "reports");
  EXPECT_EQ(acceptance_of(merged, "plan.headroom"), "pass");
  EXPECT_THAT(acceptance_item(merged, "plan.headroom")["reason"].get<std::string>(),
              HasSubstr("plan.json: "));
  EXPECT_EQ(acceptance_of(merged, "a2a.bandwidth"), "not_measured");
  EXPECT_EQ(merged["acceptance"]["verdict"], "incomplete");
}

TEST(PlanAccept, TheGateFailsOnAFailedItemAndOnARequiredOneThatIsMissing) {
  const TempDir dir;
  const std::string plan = (dir / "plan.json").string();
  ASSERT_EQ(run_moe_plan(
                {"size", "--scenario", "mixtral-2xh100", "-o", plan, "--format", "none", "--quiet"})
                .exit_code,
            0);
  EXPECT_EQ(run_moe_plan({"accept", plan}).exit_code, 0);
  EXPECT_EQ(run_moe_plan({"accept", plan, "--gate"}).exit_code, 1);
  const ProcessResult required = run_moe_plan({"accept", plan, "--require", "a2a.bandwidth"});
  EXPECT_EQ(required.exit_code, 1);
  EXPECT_THAT(required.err, HasSubstr("a2a.bandwidth"));
  EXPECT_EQ(run_moe_plan({"accept", plan, "--require", "no.such"}).exit_code, 2);
}

}  // namespace
}  // namespace moe::test
