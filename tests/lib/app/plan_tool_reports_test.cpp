#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/app/plan/tool_reports.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using ::testing::HasSubstr;

report::Report report_of(const char* tool) {
  report::Report report;
  report.tool = {{"name", tool}};
  return report;
}

template <typename Function>
std::string failure(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

report::Report skew_report() {
  report::Report report = report_of("moe-skew");
  report::Table table =
      make_table("Load", {{kLayerColumn, "1"}, {kExpertColumn, "1"}, {kSkewCountColumn, "1"}});
  // Two layers, equally skewed, with other experts hot.
  for (const auto& [layer, expert, tokens] :
       {std::array<std::int64_t, 3>{0, 0, 30}, {0, 1, 10}, {1, 0, 25}, {1, 1, 75}}) {
    table.rows.push_back({layer, expert, tokens});
  }
  report.tables[kSkewTable] = table;
  report.metrics[kSkewBalancedness] =
      value_metric(report::MetricKind::kReplayed, "1", 0.8, "mean over maximum");
  return report;
}

TEST(SkewReport, GivesPopularityAndTheFullestRank) {
  const SkewEvidence evidence = skew_from_report(skew_report(), "skew.json");
  ASSERT_EQ(evidence.skew.popularity.size(), 2U);
  EXPECT_DOUBLE_EQ(evidence.skew.popularity[0], 0.75 + 0.75);
  EXPECT_DOUBLE_EQ(evidence.skew.popularity[1], 0.25 + 0.25);
  EXPECT_DOUBLE_EQ(evidence.skew.rank_max_over_mean, 1.25);
  EXPECT_EQ(evidence.notes.size(), 2U);
}

TEST(SkewReport, RefusesOtherToolsInvalidRunsAndEmptyReports) {
  EXPECT_THAT(failure([] { (void)skew_from_report(report_of("moe-bench"), "b.json"); }),
              HasSubstr("expected a report of moe-skew"));
  report::Report invalid = skew_report();
  invalid.validity.valid = false;
  EXPECT_THAT(failure([&] { (void)skew_from_report(invalid, "s.json"); }), HasSubstr("not valid"));
  EXPECT_THAT(failure([] { (void)skew_from_report(report_of("moe-skew"), "s.json"); }),
              HasSubstr(kSkewTable));
  report::Report unequal = skew_report();
  unequal.tables[kSkewTable].rows.push_back({std::int64_t{1}, std::int64_t{2}, std::int64_t{5}});
  EXPECT_THAT(failure([&] { (void)skew_from_report(unequal, "s.json"); }),
              HasSubstr("layers with 2 and with 3 experts"));
  report::Report wrong = skew_report();
  wrong.metrics[kSkewBalancedness].value = 1.5;
  EXPECT_THAT(failure([&] { (void)skew_from_report(wrong, "s.json"); }), HasSubstr("1.5"));
}

report::Report a2a_report(double nodes) {
  report::Report report = report_of("moe-a2a");
  report.metrics[kA2aBusBandwidth] =
      value_metric(report::MetricKind::kMeasured, "bytes/s", 320e9, "largest size");
  report.metrics[kA2aNodes] = value_metric(report::MetricKind::kMeasured, "1", nodes, "hosts");
  return report;
}

TEST(A2aReport, ReplacesTheLinkThatWasMeasured) {
  planner::Accelerator gpu;
  gpu.scale_up_bytes_per_s = 450e9;
  gpu.peer_bytes_per_s = 450e9;
  planner::ScaleOut network;
  apply(links_from_report(a2a_report(1.0), "a.json"), gpu, network);
  EXPECT_DOUBLE_EQ(gpu.scale_up_bytes_per_s, 320e9);
  EXPECT_TRUE(network.is_assumed);
  planner::Accelerator other;
  other.scale_up_bytes_per_s = 450e9;
  apply(links_from_report(a2a_report(2.0), "a.json"), other, network);
  EXPECT_DOUBLE_EQ(other.scale_up_bytes_per_s, 450e9);
  EXPECT_DOUBLE_EQ(network.bytes_per_s, 320e9);
  EXPECT_DOUBLE_EQ(network.efficiency, 1.0);
  EXPECT_FALSE(network.is_assumed);
}

TEST(A2aReport, RefusesWhatHoldsNoRate) {
  EXPECT_THAT(failure([] { (void)links_from_report(report_of("moe-a2a"), "a.json"); }),
              HasSubstr(kA2aBusBandwidth));
}

}  // namespace
}  // namespace moe::app
