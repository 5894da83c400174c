#include "lib/report/checklist.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/report/embedded.hpp"
#include "tests/lib/report/sample_report.hpp"

namespace moe::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Metric number(double value, const std::string& unit = "1",
              MetricKind kind = MetricKind::kMeasured) {
  Metric metric;
  metric.kind = kind;
  metric.unit = unit;
  metric.value = value;
  return metric;
}

Report report_of(const std::string& tool) {
  Report report;
  report.tool = {{"name", tool}};
  return report;
}

const AcceptanceItem& item_of(const Acceptance& acceptance, const std::string& id) {
  for (const AcceptanceItem& item : acceptance.items) {
    if (item.id == id) return item;
  }
  ADD_FAILURE() << "no item " << id;
  return acceptance.items.front();
}

ItemResult result_of(const Report& report, const std::string& id) {
  return item_of(evaluate(report, default_checklist()), id).result;
}

// A checklist of one item with the given rule and further keys.
Checklist checklist_of(const std::string& rule, const std::string& more = "") {
  return parse_checklist(
      R"({"schema": "moekit-checklist", "schema_version": 1, "version": "t", "items": [{"id": "t",
      "title": "T", "evidence_from": ["moe-bench"], "applies_to": "x", "kinds": ["measured"],)" +
          more + R"("rule": )" + rule + R"(, "source": "s", "advice": "do it"}]})",
      "t.json");
}

constexpr const char* kAtLeast = R"({"metric": "a", "op": ">=", "threshold": 0.8, "unit": "1"})";

TEST(DefaultChecklist, HasTheNineteenItems) {
  std::vector<std::string> ids;
  for (const ChecklistItem& item : default_checklist().items) ids.push_back(item.id);
  EXPECT_THAT(
      ids, ElementsAre("a2a.bandwidth", "skew.expert_load", "capacity.adaptive",
                       "tiering.cold_miss", "quant.quality", "quant.speedup", "kernels.fused",
                       "overlap.bubble", "comm.share", "alarm.gpu_load", "batch.tuned",
                       "parallel.layout", "spec.speedup", "experts.pruned", "experts.top_k",
                       "memory.utilization", "stress.p99", "topology.documented", "plan.headroom"));
  for (const ChecklistItem& item : default_checklist().items) {
    EXPECT_FALSE(item.source.empty() || item.advice.empty() || item.applies_to.empty()) << item.id;
    for (const MetricKind kind : item.kinds) EXPECT_NE(kind, MetricKind::kAssumed) << item.id;
  }
}

TEST(DefaultChecklist, StatesItsRules) {
  const auto rule_of = [](const std::string& id) {
    for (const ChecklistItem& item : default_checklist().items) {
      if (item.id == id) return describe(item.rule);
    }
    return std::string();
  };
  EXPECT_EQ(rule_of("a2a.bandwidth"), "a2a_busbw_ceiling_ratio >= 0.8");
  EXPECT_EQ(rule_of("skew.expert_load"),
            "expert_load_max_min_ratio <= 2 or placement_gpu_balancedness_ratio >= 0.85");
  EXPECT_EQ(
      rule_of("tiering.cold_miss"),
      "cold_miss_ratio <= 0.05 or (prefetch_enabled == 1 and prefetch_exposed_ratio <= 0.05)");
  EXPECT_EQ(rule_of("stress.p99"),
            "ttft_s p99 < 0.5 s and requests_failed_count == 0 and requests_dropped_count == 0");
  EXPECT_EQ(rule_of("experts.top_k"),
            "top_k_speedup_ratio stated and top_k_score_loss_points stated");
}

TEST(Evaluate, LeavesOutItemsOfOtherTools) {
  const Acceptance acceptance = evaluate(report_of("moe-plan"), default_checklist());
  std::vector<std::string> ids;
  for (const AcceptanceItem& item : acceptance.items) ids.push_back(item.id);
  EXPECT_THAT(ids,
              ElementsAre("comm.share", "parallel.layout", "memory.utilization", "plan.headroom"));
  EXPECT_EQ(acceptance.verdict, "incomplete");
}

TEST(Evaluate, PassesAtTheThresholdAndNotOneBitBelow) {
  Report report = report_of("moe-bench");
  const Checklist checklist = checklist_of(kAtLeast);
  report.metrics["a"] = number(0.8);
  EXPECT_EQ(evaluate(report, checklist).items[0].result, ItemResult::kPass);
  EXPECT_EQ(evaluate(report, checklist).verdict, "pass");
  report.metrics["a"] = number(std::nextafter(0.8, 0.0));
  const Acceptance below = evaluate(report, checklist);
  EXPECT_EQ(below.items[0].result, ItemResult::kFail);
  EXPECT_EQ(below.verdict, "fail");
  EXPECT_EQ(below.items[0].advice, "do it");
  // Nor is it printed as if it had passed.
  EXPECT_EQ(below.items[0].reason, "a is 0.7999999999999999");
}

TEST(Evaluate, NeverTakesWhatIsNotThereForAPass) {
  Report report = report_of("moe-bench");
  const Checklist checklist = checklist_of(kAtLeast);
  const auto reason = [&] {
    const Acceptance acceptance = evaluate(report, checklist);
    EXPECT_EQ(acceptance.items[0].result, ItemResult::kNotMeasured);
    EXPECT_EQ(acceptance.verdict, "incomplete");
    return acceptance.items[0].reason;
  };
  EXPECT_EQ(reason(), "a is not in this report");
  report.metrics["a"].unit = "1";
  report.metrics["a"].absent_reason = "no counter";
  EXPECT_EQ(reason(), "a: no counter");
  report.metrics["a"] = number(1.0, "1", MetricKind::kAssumed);
  EXPECT_THAT(reason(), HasSubstr("a is assumed"));
  report.metrics["a"] = number(1.0, "1", MetricKind::kModelled);
  EXPECT_THAT(reason(), HasSubstr("a is modelled"));
  report.metrics["a"] = number(1.0, "s");
  EXPECT_THAT(reason(), HasSubstr("a is in \"s\" where the checklist has \"1\""));
  report.metrics["a"].distribution = stats::summarize(std::vector<double>(10, 1.0));
  report.metrics["a"].unit = "1";
  EXPECT_THAT(reason(), HasSubstr("is a distribution"));
  report.metrics["a"] = number(1.0);
  report.validity.valid = false;
  EXPECT_THAT(reason(), HasSubstr("not valid"));
}

TEST(Evaluate, RefusesAPercentileThatTheSamplesDoNotSupport) {
  Report report = report_of("moe-bench");
  report.metrics["load_over_trace_peak_ratio"] = number(1.5);
  report.metrics["requests_failed_count"] = number(0);
  report.metrics["requests_dropped_count"] = number(0);
  Metric& ttft = report.metrics["ttft_s"];
  ttft.unit = "s";
  ttft.distribution = stats::summarize(std::vector<double>(458, 0.1));
  EXPECT_EQ(result_of(report, "stress.p99"), ItemResult::kNotMeasured);
  EXPECT_EQ(item_of(evaluate(report, default_checklist()), "stress.p99").reason,
            "ttft_s p99: p99 needs 459 samples, there are 458");
  ttft.distribution = stats::summarize(std::vector<double>(459, 0.1));
  EXPECT_EQ(result_of(report, "stress.p99"), ItemResult::kPass);
  ttft.distribution = stats::summarize(std::vector<double>(459, 0.5));  // the rule is <, not <=
  EXPECT_EQ(result_of(report, "stress.p99"), ItemResult::kFail);
  ttft.distribution = stats::summarize(std::vector<double>(459, 0.1));
  report.metrics["requests_failed_count"] = number(1);
  EXPECT_EQ(result_of(report, "stress.p99"), ItemResult::kFail);
  report.metrics["load_over_trace_peak_ratio"] = number(1.49);
  EXPECT_EQ(result_of(report, "stress.p99"), ItemResult::kNotMeasured);
}

TEST(Evaluate, KnowsWhatDoesNotApply) {
  Report report = report_of("moe-skew");
  report.metrics["engine_dropless"] = number(1);
  EXPECT_EQ(result_of(report, "capacity.adaptive"), ItemResult::kNotApplicable);
  report.metrics["engine_dropless"] = number(0);
  EXPECT_EQ(result_of(report, "capacity.adaptive"), ItemResult::kNotMeasured);
  report.metrics["capacity_window_s"] = number(0.5, "s");
  report.metrics["capacity_factor_start_ratio"] = number(1.3);
  report.metrics["capacity_factor_max_ratio"] = number(2.0);
  report.metrics["capacity_dropped_tokens_count"] = number(1);
  EXPECT_EQ(result_of(report, "capacity.adaptive"), ItemResult::kFail);
}

TEST(Evaluate, TakesEitherOfTwoWays) {
  Report report = report_of("moe-skew");
  report.metrics["routed_tokens_count"] = number(10'000);
  report.metrics["expert_load_max_min_ratio"] = number(5.0);
  EXPECT_EQ(result_of(report, "skew.expert_load"), ItemResult::kNotMeasured);
  report.metrics["placement_gpu_balancedness_ratio"] = number(0.84);
  EXPECT_EQ(result_of(report, "skew.expert_load"), ItemResult::kFail);
  report.metrics["placement_gpu_balancedness_ratio"] = number(0.85);
  EXPECT_EQ(result_of(report, "skew.expert_load"), ItemResult::kPass);
  report.metrics["routed_tokens_count"] = number(9'999);
  EXPECT_EQ(result_of(report, "skew.expert_load"), ItemResult::kNotMeasured);
}

// Results of a conjunction and a disjunction over all pairs of true, false and unknown.
TEST(Evaluate, KnowsThreeOutcomes) {
  const auto outcome = [](const std::string& word, char a, char b) {
    Report report = report_of("moe-bench");
    if (a != '?') report.metrics["a"] = number(a == 't' ? 1 : 0);
    if (b != '?') report.metrics["b"] = number(b == 't' ? 1 : 0);
    const std::string rule =
        "{\"" + word + R"(": [{"metric": "a", "op": "==", "threshold": 1, "unit":
        "1"}, {"metric": "b", "op": "==", "threshold": 1, "unit": "1"}]})";
    const ItemResult result = evaluate(report, checklist_of(rule)).items[0].result;
    return result == ItemResult::kPass ? 't' : result == ItemResult::kFail ? 'f' : '?';
  };
  std::string conjunction;
  std::string disjunction;
  for (const char a : {'t', 'f', '?'}) {
    for (const char b : {'t', 'f', '?'}) {
      conjunction += outcome("all_of", a, b);
      disjunction += outcome("any_of", a, b);
    }
  }
  EXPECT_EQ(conjunction, "tf?fff?f?");
  EXPECT_EQ(disjunction, "ttttf?t??");
}

TEST(Evaluate, ComparesInEveryWay) {
  const auto passes = [](const std::string& op, double value) {
    Report report = report_of("moe-bench");
    report.metrics["a"] = number(value);
    const Checklist checklist =
        checklist_of(R"({"metric": "a", "op": ")" + op + R"(", "threshold": 2, "unit": "1"})");
    return evaluate(report, checklist).items[0].result == ItemResult::kPass;
  };
  EXPECT_TRUE(passes("<", 1.0) && !passes("<", 2.0));
  EXPECT_TRUE(passes("<=", 2.0) && !passes("<=", 2.1));
  EXPECT_TRUE(passes(">", 3.0) && !passes(">", 2.0));
  EXPECT_TRUE(passes(">=", 2.0) && !passes(">=", 1.9));
  EXPECT_TRUE(passes("==", 2.0) && !passes("==", 2.0 + 1e-15 * 4));
  EXPECT_FALSE(passes("<", std::nan("")) || passes(">=", std::nan("")));
}

TEST(EvaluateTogether, FailsWhereAnyReportFails) {
  std::vector<Report> reports = {report_of("moe-bench"), report_of("moe-a2a")};
  for (Report& report : reports) report.metrics["num_ranks"] = number(8);
  reports[0].metrics["comm_share_ratio"] = number(0.2);
  reports[1].metrics["comm_share_ratio"] = number(0.5);
  const Acceptance merged = evaluate_together(reports, {"a.json", "b.json"}, default_checklist());
  EXPECT_EQ(merged.items.size(), 19U);
  EXPECT_EQ(item_of(merged, "comm.share").result, ItemResult::kFail);
  EXPECT_EQ(item_of(merged, "comm.share").reason, "b.json: comm_share_ratio is 0.5");
  EXPECT_EQ(merged.verdict, "fail");
  reports[1].metrics["comm_share_ratio"] = number(0.3);
  const Acceptance passed = evaluate_together(reports, {"a.json", "b.json"}, default_checklist());
  EXPECT_EQ(item_of(passed, "comm.share").result, ItemResult::kPass);
  EXPECT_EQ(passed.verdict, "incomplete");  // the other items
  EXPECT_EQ(item_of(passed, "plan.headroom").reason, "no report of moe-plan");
}

TEST(EvaluateTogether, DoesNotLetAnInvalidReportHideAPass) {
  std::vector<Report> reports = {report_of("moe-bench"), report_of("moe-bench")};
  for (Report& report : reports) report.metrics["a"] = number(1.0);
  reports[0].validity.valid = false;
  const Acceptance merged = evaluate_together(reports, {"a", "b"}, checklist_of(kAtLeast));
  EXPECT_EQ(merged.items[0].result, ItemResult::kPass);
  EXPECT_EQ(merged.items[0].reason, "b: a is 1");
}

TEST(Gate, CountsFailuresAndWhatIsRequired) {
  Acceptance acceptance;
  const auto add = [&](const char* id, ItemResult result) {
    acceptance.items.push_back({id, "T", result, {}, "1", "r", "", ""});
  };
  add("p", ItemResult::kPass);
  add("f", ItemResult::kFail);
  add("m", ItemResult::kNotMeasured);
  add("n", ItemResult::kNotApplicable);
  EXPECT_THAT(gate_failures(acceptance, {false, {}}), ElementsAre());
  EXPECT_THAT(gate_failures(acceptance, {true, {}}), ElementsAre("f"));
  EXPECT_THAT(gate_failures(acceptance, {false, {"p"}}), ElementsAre());
  EXPECT_THAT(gate_failures(acceptance, {false, {"f", "m", "n"}}), ElementsAre("f", "m", "n"));
  EXPECT_THAT(gate_failures(acceptance, {true, {"m", "f"}}), ElementsAre("f", "m"));
  EXPECT_THAT(gate_failures(acceptance, {false, {"other", "other"}}), ElementsAre("other"));
}

TEST(Gate, FindsIdsThatAreNoItem) {
  EXPECT_THAT(unknown_ids(default_checklist(), {"comm.share", "comm.shares"}),
              ElementsAre("comm.shares"));
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_checklist(text, "mine.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return {};
}

TEST(ParseChecklist, SaysWhatIsWrong) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text(embedded::checklist());
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return refusal(text.replace(at, from.size(), to));
  };
  EXPECT_EQ(changed("\"op\": \">=\"", "\"op\": \"=>\"").substr(0, 43),
            "mine.json: not a valid checklist: /items/0/");
  EXPECT_THAT(changed("\"measured\"", "\"assumed\""), HasSubstr("/items/0/kinds/0"));
  EXPECT_THAT(changed("\"skew.expert_load\"", "\"a2a.bandwidth\""),
              HasSubstr("two items have the id \"a2a.bandwidth\""));
  EXPECT_THAT(changed("\"threshold\": 0.8", "\"threshold\": \"0.8\""), HasSubstr("/items/0/rule"));
  EXPECT_THAT(refusal("{}"), HasSubstr("missing \"schema\""));
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
}

TEST(ParseChecklist, TakesAFileOfTheUsers) {
  const Checklist checklist = checklist_of(kAtLeast);
  EXPECT_EQ(checklist.version, "t");
  Report report = report_of("moe-bench");
  report.metrics["a"] = number(0.9);
  EXPECT_EQ(evaluate(report, checklist).checklist_version, "t");
}

}  // namespace
}  // namespace moe::report
