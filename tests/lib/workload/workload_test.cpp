#include "lib/workload/workload.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::workload {
namespace {

using ::testing::HasSubstr;

Workload parse(const std::string& text, const std::filesystem::path& directory = ".") {
  return parse_workload(json::parse(text, "w"), "w", directory);
}

std::string workload_refusal(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no workload_refusal";
}

TEST(Workload, ReadsNumbersAndDistributions) {
  const Workload w = parse(R"({
    "input_tokens": {"p50": 1200, "p99": 9000, "max": 32768}, "output_tokens": 300,
    "arrivals": {"requests_per_s": 50, "process": "gamma", "gap_cv": 1.4, "peak_over_mean": 1.6},
    "prefix_hit_ratio": 0.3})");
  EXPECT_EQ(w.output_tokens.max(), 300);
  EXPECT_LE(w.input_tokens.max(), 32768);
  EXPECT_NEAR(static_cast<double>(w.input_tokens.quantile(0.99)), 9000.0, 150.0);
  EXPECT_NEAR(w.mean_requests_per_s(), 50.0, 1e-9);
  EXPECT_NEAR(w.peak_requests_per_s(), 80.0, 1e-9);
  EXPECT_DOUBLE_EQ(w.process.gap_cv, 1.4);
  EXPECT_DOUBLE_EQ(w.prefix_hit_ratio, 0.3);
}

TEST(Workload, ReadsHourlyRatesAndAClosedLoop) {
  const Workload hourly = parse(R"({"input_tokens": 10, "output_tokens": 10,
    "arrivals": {"hourly_requests_per_s": [1, 3, 2]}})");
  EXPECT_DOUBLE_EQ(hourly.mean_requests_per_s(), 2.0);
  EXPECT_DOUBLE_EQ(hourly.peak_requests_per_s(), 3.0);
  const Workload closed = parse(R"({"input_tokens": 10, "output_tokens": 10,
    "arrivals": {"concurrency": 64}})");
  EXPECT_EQ(closed.concurrency, 64);
  EXPECT_FALSE(closed.arrivals);
}

TEST(Workload, TakesFromATraceWhatIsNotGiven) {
  const test::TempDir dir;
  std::string text = "arrival_s,input_tokens,output_tokens\n";
  for (int i = 0; i < 600; ++i) {
    const int time_ds = i < 300 ? i * 2 : 600 + (i - 300) * 30;  // 5 a second, then one in 3 s
    text += std::to_string(time_ds / 10) + "." + std::to_string(time_ds % 10) + ",100,20\n";
  }
  test::write_file(dir / "t.csv", text);
  const Workload w =
      parse(R"({"trace": {"path": "t.csv", "rate_scale": 2}, "output_tokens": 50})", dir.path());
  EXPECT_DOUBLE_EQ(w.input_tokens.mean(), 100.0);
  EXPECT_EQ(w.output_tokens.max(), 50);
  EXPECT_NEAR(w.peak_requests_per_s(), 10.0, 0.2);
  EXPECT_NEAR(w.mean_requests_per_s(), 2.0 * 599.0 / 957.0, 0.05);
  EXPECT_THAT(w.lengths_source, HasSubstr("trace t.csv"));
}

TEST(Workload, SaysWhatIsWrong) {
  const std::string lengths = R"("input_tokens": 10, "output_tokens": 10)";
  EXPECT_THAT(workload_refusal("{" + lengths + "}"), HasSubstr("\"arrivals\" is missing"));
  EXPECT_THAT(workload_refusal(R"({"output_tokens": 10})"),
              HasSubstr("\"input_tokens\" is missing"));
  EXPECT_THAT(workload_refusal("{" + lengths + R"(, "arrivals": {}})"),
              HasSubstr("exactly one of"));
  EXPECT_THAT(
      workload_refusal("{" + lengths + R"(, "arrivals": {"requests_per_s": 5, "concurrency": 3}})"),
      HasSubstr("exactly one of"));
  EXPECT_THAT(workload_refusal("{" + lengths + R"(, "arivals": {"requests_per_s": 5}})"),
              HasSubstr("unknown key \"arivals\""));
  EXPECT_THAT(
      workload_refusal("{" + lengths + R"(, "arrivals": {"requests_per_s": 5, "gap_cv": 2}})"),
      HasSubstr("belongs to gamma"));
  EXPECT_THAT(workload_refusal("{" + lengths +
                               R"(, "arrivals": {"requests_per_s": 5}, "prefix_hit_ratio": 1})"),
              HasSubstr("prefix_hit_ratio"));
  EXPECT_THAT(workload_refusal(R"({"input_tokens": {"mean": 10, "p99": 20}, "output_tokens": 1,
                          "arrivals": {"requests_per_s": 5}})"),
              HasSubstr("either"));
  EXPECT_THAT(workload_refusal(R"({"input_tokens": 1.5, "output_tokens": 1,
                          "arrivals": {"requests_per_s": 5}})"),
              HasSubstr("whole number"));
  EXPECT_THAT(workload_refusal(R"({"trace": {"path": "missing.csv"}})"), HasSubstr("missing.csv"));
}

}  // namespace
}  // namespace moe::workload
