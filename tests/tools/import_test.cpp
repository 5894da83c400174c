// Goal: moe-bench import judges files of other clients by our report, and says what they hide.

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

std::string data(const std::string& name) {
  return (std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/client-reports" / name).string();
}

Json report_of(std::vector<std::string> args, int exit_code) {
  args.insert(args.begin(), "import");
  return bench_report(args, exit_code);
}

TEST(ImportCommand, SamplesAreSummarizedByOurDefinitions) {
  const Json report = report_of({data("vllm-bench-serve/base_c4.json")}, 0);
  const Json& ttft = report["metrics"]["ttft_s"]["distribution"];
  EXPECT_EQ(ttft["count"], 40);
  EXPECT_NEAR(ttft["mean"].get<double>(), 0.2094986732, 1e-9);
  EXPECT_TRUE(ttft["p99"].is_null());  // 40 samples carry none, whatever the tool prints
  EXPECT_FALSE(ttft["p50"].is_null());
  EXPECT_EQ(report["subject"]["measured_by"], "vllm bench serve");
  EXPECT_EQ(report["tables"]["as_printed"]["rows"].size(), 4U);
  EXPECT_TRUE(report["validity"]["valid"].get<bool>());
}

TEST(ImportCommand, EveryToolIsReadAndTextNamesIt) {
  for (const char* name :
       {"aiperf/base_c4.json", "guidellm/base_c4.json", "inference-perf/base_c4_summary.json",
        "against-vllm/vllm_bench_throughput.json"}) {
    const ProcessResult result = run_moe_bench({"import", data(name)});
    EXPECT_EQ(result.exit_code, 0) << name << result.err;
    EXPECT_THAT(result.out, HasSubstr("tokens/s")) << name;
  }
}

TEST(ImportCommand, ARunThatMeasuredNothingEndsWithSeven) {
  const Json report = report_of({data("vllm-bench-serve/crlfburst_c4.json")}, 7);
  EXPECT_FALSE(report["validity"]["valid"].get<bool>());
  EXPECT_FALSE(report["metrics"].contains("ttft_s"));
  (void)report_of({data("inference-perf/crlfburst_c4_summary.json")}, 7);
  (void)report_of({data("vllm-bench-serve/role5_c4.json")}, 7);
}

TEST(ImportCommand, TheStressItemIsJudgedWhenThePeakIsGiven) {
  const Json report = report_of(
      {data("vllm-bench-serve/base_c4.json"), "--trace-peak", "1", "--require", "stress.p99"}, 1);
  EXPECT_EQ(acceptance_of(report, "stress.p99"), "not_measured");  // a p99 takes 459 requests
}

TEST(ImportCommand, RecordsGiveTheSamplesThatASummaryLacks) {
  const Json report = report_of(
      {data("aiperf/base_c4.json"), "--records", data("aiperf/base_c4_records.jsonl")}, 0);
  EXPECT_EQ(report["metrics"]["ttft_s"]["distribution"]["count"], 12);
}

TEST(ImportCommand, AWrongFileIsOneLineAndThree) {
  const TempDir folder;
  write_file(folder / "cut.json", R"({"completed": 1, "request_throughput")");
  for (const std::string& file :
       {(folder / "cut.json").string(), (folder / "none").string(), data("truth.json")}) {
    const ProcessResult result = run_moe_bench({"import", file});
    EXPECT_EQ(result.exit_code, 3) << file;
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
  }
  const ProcessResult result =
      run_moe_bench({"import", data("guidellm/base_c4.json"), "--benchmark", "2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the file holds 1"));
}

}  // namespace
}  // namespace moe::test
