// Goal: what the four clients got wrong on known streams is found in their own files.

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/client_reports/client_report.hpp"

namespace moe::client_reports {
namespace {

ClientReport read_client(const std::string& name) {
  return read_client_reports(std::filesystem::path(MOE_SOURCE_DIR) / "tests/data/client-reports" /
                             name)
      .front();
}

bool has(const ClientReport& report, const std::string& code) {
  for (const Doubt& doubt : report.doubts) {
    if (doubt.code == code) return true;
  }
  return false;
}

TEST(Doubts, ARoleEventTakenForTheFirstTokenIsSeen) {
  const ClientReport report = read_client("vllm-bench-serve/role5_c4.json");
  EXPECT_TRUE(has(report, "import.prelude_counted"));
  EXPECT_FALSE(has(read_client("vllm-bench-serve/base_c4.json"), "import.prelude_counted"));
  EXPECT_FALSE(has(read_client("vllm-bench-serve/per2_c4.json"), "import.prelude_counted"));
}

TEST(Doubts, BundledTokensAreSeen) {
  EXPECT_TRUE(has(read_client("vllm-bench-serve/per2_c4.json"), "import.bundled_tokens"));
  EXPECT_FALSE(has(read_client("vllm-bench-serve/base_c4.json"), "import.bundled_tokens"));
}

TEST(Doubts, TheClosingEventIsSeenAsAGapTooMany) {
  EXPECT_TRUE(has(read_client("vllm-bench-serve/base_c4.json"), "import.extra_gap"));
}

TEST(Doubts, ARunWithoutASuccessMeasuredNothing) {
  const ClientReport vllm = read_client("vllm-bench-serve/crlfburst_c4.json");
  EXPECT_FALSE(vllm.has_results);
  EXPECT_TRUE(has(vllm, "import.nothing_measured"));
  EXPECT_TRUE(vllm.latencies.empty());
  EXPECT_FALSE(vllm.output_tokens_per_s);
  EXPECT_EQ(*vllm.failed, 24);
  const ClientReport guidellm = read_client("guidellm/fail25_c4.json");
  EXPECT_FALSE(guidellm.has_results);
  EXPECT_EQ(*guidellm.failed, 24);
}

TEST(Doubts, SuccessesWithoutATokenAreNone) {
  const ClientReport report = read_client("inference-perf/crlfburst_c4_summary.json");
  EXPECT_FALSE(report.has_results);
  EXPECT_TRUE(has(report, "import.empty_successes"));
}

// The truth: none of these 24 requests may count as a success, and the tools count all of them.
TEST(Doubts, StreamsThatWereCutAreSeenWhereTheFileKnowsWhatWasAsked) {
  for (const char* name : {"aiperf/cutclean25_c4.json", "guidellm/cutclean25_c4.json"}) {
    const ClientReport report = read_client(name);
    EXPECT_EQ(*report.completed, 24) << name;
    EXPECT_TRUE(has(report, "import.short_outputs")) << name;
  }
  EXPECT_FALSE(has(read_client("aiperf/base_c4.json"), "import.short_outputs"));
  EXPECT_FALSE(has(read_client("guidellm/base_c4.json"), "import.short_outputs"));
}

TEST(Doubts, FailuresAndThinTailsAreSaid) {
  const ClientReport report = read_client("aiperf/fail25_c4.json");
  EXPECT_EQ(*report.failed, 1);
  EXPECT_TRUE(has(report, "import.failed_requests"));
  EXPECT_TRUE(has(report, "import.short_outputs"));
  EXPECT_TRUE(has(report, "import.too_few_for_p99"));
  EXPECT_TRUE(has(report, "import.no_samples"));
  EXPECT_FALSE(has(read_client("vllm-bench-serve/base_c4.json"), "import.no_samples"));
}

TEST(Doubts, EveryToolHasItsDefinitionsListed) {
  for (const char* name : {"vllm-bench-serve/base_c4.json", "aiperf/base_c4.json",
                           "guidellm/base_c4.json", "inference-perf/base_c4_summary.json"}) {
    EXPECT_TRUE(has(read_client(name), "import.definition.success")) << name;
  }
}

}  // namespace
}  // namespace moe::client_reports
