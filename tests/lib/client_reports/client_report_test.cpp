// Goal: the files of four clients are read to the figures that stand in them, by our definitions.

#include "lib/client_reports/client_report.hpp"

#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::client_reports {
namespace {

using ::testing::HasSubstr;

std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/client-reports" / name;
}

ClientReport read(const std::string& name, const std::string& records = "") {
  return read_client_reports(data(name), records.empty() ? std::filesystem::path() : data(records))
      .front();
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(ClientReport, VllmServeKeepsItsSamples) {
  const ClientReport report = read("vllm-bench-serve/base_c4.json");
  EXPECT_EQ(report.tool, Tool::kVllmServe);
  EXPECT_EQ(report.model, "scripted");
  EXPECT_EQ(report.load, "4 streams");
  EXPECT_EQ(*report.completed, 40);
  EXPECT_EQ(*report.failed, 0);
  EXPECT_EQ(*report.dropped, 0);
  EXPECT_EQ(*report.output_tokens, 2000);
  EXPECT_NEAR(*report.output_tokens_per_s, 168.02674793402164, 1e-9);
  const Latency& ttft = report.latencies.at("ttft_s");
  ASSERT_EQ(ttft.samples_s.size(), 40U);
  EXPECT_NEAR(mean(ttft.samples_s), 209.4986732001189e-3, 1e-9);
  EXPECT_NEAR(*ttft.mean_s, 209.4986732001189e-3, 1e-12);
  // Its own TPOT is defined as ours, so the two agree.
  const Latency& tpot = report.latencies.at("tpot_s");
  EXPECT_NEAR(mean(tpot.samples_s), 20.00000248316127e-3, 1e-9);
  EXPECT_NEAR(mean(report.latencies.at("e2el_s").samples_s), 1189.4987948750213e-3, 1e-9);
  EXPECT_NEAR(mean(report.latencies.at("icl_s").samples_s), 19.600002433498048e-3, 1e-9);
}

TEST(ClientReport, AiperfHasASummaryAndItsRecordsHaveSamples) {
  const ClientReport summary = read("aiperf/base_c4.json");
  EXPECT_EQ(summary.tool, Tool::kAiperf);
  EXPECT_EQ(summary.version, "0.13.0");
  EXPECT_EQ(summary.model, "scripted");
  EXPECT_EQ(summary.target, "http://127.0.0.1:18210");
  EXPECT_EQ(summary.load, "4 streams");
  EXPECT_EQ(*summary.completed, 40);
  EXPECT_EQ(*summary.failed, 0);
  const Latency& ttft = summary.latencies.at("ttft_s");
  EXPECT_TRUE(ttft.samples_s.empty());
  EXPECT_NEAR(*ttft.mean_s, 205.73478147499998e-3, 1e-12);
  EXPECT_EQ(*ttft.count, 40);
  // What it calls ITL is a mean a request.
  EXPECT_EQ(summary.latencies.at("tpot_s").their_name, "inter_token_latency");
  EXPECT_EQ(summary.latencies.at("icl_s").their_name, "inter_chunk_latency");
  const ClientReport both = read("aiperf/base_c4.json", "aiperf/base_c4_records.jsonl");
  ASSERT_EQ(both.latencies.at("ttft_s").samples_s.size(), 12U);
  EXPECT_NEAR(both.latencies.at("ttft_s").samples_s.front(), 216.89067899999998e-3, 1e-12);
  // 49 gaps in the time from the first token to the last.
  EXPECT_NEAR(both.latencies.at("tpot_s").samples_s.front(),
              (1194.5003709999999 - 216.89067899999998) / 49.0 * 1e-3, 1e-9);
}

TEST(ClientReport, GuidellmRequestsAreMeasuredToTheLastToken) {
  const ClientReport report = read("guidellm/base_c4.json");
  EXPECT_EQ(report.tool, Tool::kGuidellm);
  EXPECT_EQ(report.version, "0.8.1");
  EXPECT_EQ(report.load, "4 streams");
  EXPECT_EQ(*report.completed, 40);
  EXPECT_EQ(*report.input_tokens, 320);
  const Latency& ttft = report.latencies.at("ttft_s");
  ASSERT_EQ(ttft.samples_s.size(), 40U);
  EXPECT_NEAR(mean(ttft.samples_s), 202.96428799629211e-3, 1e-9);
  // Its own TPOT says 23.66 ms on this stream; the truth is 20.
  EXPECT_NEAR(mean(report.latencies.at("tpot_s").samples_s), 0.020, 1e-4);
}

TEST(ClientReport, InferencePerfIsInSeconds) {
  const ClientReport report = read("inference-perf/base_c4_summary.json");
  EXPECT_EQ(report.tool, Tool::kInferencePerf);
  EXPECT_EQ(*report.completed, 40);
  EXPECT_NEAR(*report.latencies.at("ttft_s").mean_s, 0.20513725162509217, 1e-15);
  EXPECT_EQ(*report.dropped, 0);
  EXPECT_EQ(read("inference-perf/base_c4_stage_0.json").load, "4 streams");
  const ClientReport both =
      read("inference-perf/base_c4_summary.json", "inference-perf/base_c4_per_request_first4.json");
  ASSERT_EQ(both.latencies.at("ttft_s").samples_s.size(), 4U);
  EXPECT_NEAR(both.latencies.at("ttft_s").samples_s[0], 4289.169214335 - 4288.961293365, 1e-9);
}

TEST(ClientReport, VllmThroughputHasRatesOnly) {
  const ClientReport report = read("against-vllm/vllm_bench_throughput.json");
  EXPECT_EQ(report.tool, Tool::kVllmThroughput);
  EXPECT_EQ(*report.completed, 40);
  EXPECT_NEAR(*report.total_tokens_per_s, 249.54084465129066, 1e-9);
  EXPECT_TRUE(report.latencies.empty());
}

std::string error_of(const std::string& text, const std::string& records = "") {
  const test::TempDir folder;
  test::write_file(folder / "report.json", text);
  if (!records.empty()) test::write_file(folder / "records.jsonl", records);
  try {
    (void)read_client_reports(folder / "report.json",
                              records.empty() ? std::filesystem::path() : folder / "records.jsonl");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "none";
}

TEST(ClientReport, WhatIsNoReportIsRefused) {
  EXPECT_THAT(error_of("{}"), HasSubstr("not a report of vllm bench serve"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_of("{\"completed\":"), HasSubstr("report.json"));
  EXPECT_THAT(error_of(R"({"benchmarks":[]})"), HasSubstr("1 to 1000 benchmarks"));
  const std::string aiperf = R"({"aiperf_version":"1","request_count":{"avg":1}})";
  EXPECT_THAT(error_of(aiperf, "{\"metrics\":{}}\n{oops"), HasSubstr("records.jsonl:2"));
  EXPECT_THAT(error_of(aiperf, "[1]"), HasSubstr("not a file of single requests of AIPerf"));
  EXPECT_THAT(error_of(R"({"request_throughput":1,"completed":1})", "{}"),
              HasSubstr("in its own file"));
}

TEST(ClientReport, OddValuesAreAbsentAndNeverNegative) {
  const json::Json document = json::parse(
      R"({"request_throughput":"fast","completed":2,"failed":-1,"duration":null,
          "mean_ttft_ms":true,"ttfts":[1,2],"output_lens":[3,-4],"latencies":[0.5,9],
          "itls":[["x",1],7],"errors":["",""],"max_concurrency":1e300})",
      "odd");
  const ClientReport report = parse_client_reports(document, "odd").front();
  EXPECT_FALSE(report.requests_per_s);
  EXPECT_FALSE(report.failed);
  EXPECT_FALSE(report.duration_s);
  for (const auto& [name, latency] : report.latencies) {
    for (const double sample_s : latency.samples_s) EXPECT_GE(sample_s, 0.0) << name;
  }
  EXPECT_FALSE(report.latencies.contains("tpot_s"));  // its last token came before its first
}

}  // namespace
}  // namespace moe::client_reports
