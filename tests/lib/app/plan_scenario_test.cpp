#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/app/plan/scenario.hpp"
#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::app {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSmall = R"({
  "schema": "moekit-scenario", "schema_version": 1,
  "model": {"config": "Mixtral-8x7B-v0.1"}, "hardware": {"gpus": ["h100-sxm", "h200-sxm"]},
  "workload": {"input_tokens": 100, "output_tokens": 10, "arrivals": {"requests_per_s": 5}},
  "sizing": {"load_ratio": 0.7}, "slo": {"ttft_statistic": "mean"},
  "prices": {"gpu_usd": 30000, "energy_usd_per_kwh": 0.1},
  "prices_by_gpu": {"h200-sxm": {"gpu_usd": 35000}}})";

Scenario parse(const std::string& text) {
  return parse_scenario(json::parse(text, "s.json"), "s.json", ".");
}

std::string failure(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

// The small scenario with `from` replaced by `to`.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Scenario, ReadsWhatIsGivenAndKeepsDefaults) {
  const Scenario s = parse(kSmall);
  EXPECT_EQ(s.model, "Mixtral-8x7B-v0.1");
  EXPECT_EQ(s.gpus.size(), 2U);
  EXPECT_DOUBLE_EQ(s.load_ratio, 0.7);
  EXPECT_FALSE(s.is_ttft_p99);
  EXPECT_DOUBLE_EQ(s.growth_ratio, 0.3);
  EXPECT_EQ(s.engine, "vllm");
  EXPECT_FALSE(s.prices.rent_per_gpu_hour);
}

TEST(Scenario, PricesOfOneGpuTypeRestOnTheCommonOnes) {
  const Scenario s = parse(kSmall);
  EXPECT_DOUBLE_EQ(*s.prices.gpu, 30000.0);
  const planner::Prices& h200 = s.by_gpu.at("h200-sxm");
  EXPECT_DOUBLE_EQ(*h200.gpu, 35000.0);
  EXPECT_DOUBLE_EQ(*h200.energy_per_kwh, 0.1);
}

TEST(Scenario, AssumptionsSayWhatWasGiven) {
  bool saw_load = false;
  bool saw_growth = false;
  for (const Assumption& one : list_assumptions(parse(kSmall))) {
    EXPECT_FALSE(one.value.empty()) << one.name;
    EXPECT_FALSE(one.source.empty()) << one.name;
    if (one.name == "planned load") saw_load = one.is_given;
    if (one.name == "growth") saw_growth = !one.is_given;
  }
  EXPECT_TRUE(saw_load);
  EXPECT_TRUE(saw_growth);
}

TEST(Scenario, NamesThePlaceOfWhatItRefuses) {
  EXPECT_THAT(failure(with("\"load_ratio\": 0.7", "\"load_ratio\": 1.7")),
              HasSubstr("/sizing/load_ratio"));
  EXPECT_THAT(failure(with("\"load_ratio\"", "\"lode_ratio\"")), HasSubstr("lode_ratio"));
  EXPECT_THAT(failure(with("\"schema_version\": 1", "\"schema_version\": 2")),
              HasSubstr("schema_version"));
  EXPECT_THAT(failure(with("[\"h100-sxm\", \"h200-sxm\"]", "[]")), HasSubstr("/hardware/gpus"));
  EXPECT_THAT(failure(with("\"requests_per_s\": 5", "\"requests_per_s\": -5")),
              HasSubstr("workload: arrivals"));
  EXPECT_THAT(failure("[]"), HasSubstr("not a valid scenario"));
}

TEST(Scenario, EveryCommittedPlanReads) {
  const std::filesystem::path folder = std::filesystem::path(MOE_SOURCE_DIR) / "scenarios/plans";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const Scenario s = read_scenario(entry.path());
    EXPECT_FALSE(s.title.empty());
    EXPECT_THAT(s.content_hash, HasSubstr("fnv1a64:"));
    ++count;
  }
  EXPECT_GE(count, 3);
}

TEST(Scenario, ATraceIsFoundBesideTheFile) {
  const test::TempDir dir;
  test::write_file(dir / "t.csv",
                   "arrival_s,input_tokens,output_tokens\n0,100,10\n1,100,10\n2,100,10\n");
  test::write_file(dir / "s.json",
                   with("{\"input_tokens\": 100, \"output_tokens\": 10, \"arrivals\": "
                        "{\"requests_per_s\": 5}}",
                        "{\"trace\": {\"path\": \"t.csv\"}}"));
  const Scenario s = read_scenario(dir / "s.json");
  EXPECT_NEAR(s.workload.mean_requests_per_s(), 1.0, 1e-9);
}

}  // namespace
}  // namespace moe::app
