// Evaluation of the checklist: conditions have three outcomes, items four.

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/report/checklist.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"

namespace moe::report {
namespace {

enum class Outcome : std::uint8_t { kTrue, kFalse, kUnknown };

struct ConditionResult {
  Outcome outcome = Outcome::kUnknown;
  std::string seen;              // "ttft_s p99 is 0.31 s", or why it is unknown
  std::optional<double> number;  // of the comparison that decided
  std::string unit;
};

// A metric's figure, or why there is none.
struct Figure {
  std::optional<double> value;
  std::string
      absent_reason;  // " is not in this report", ": no energy counter": goes on from a name
};

// The reason that a metric itself gives.
std::string given(const std::string& reason) {
  return reason.empty() ? std::string(" has no value") : fmt::format(": {}", reason);
}

Figure figure_of_distribution(const stats::Distribution& d, const std::string& statistic) {
  const std::array<std::pair<const char*, const stats::Percentile*>, 4> percentiles = {
      {{"p50", &d.p50}, {"p90", &d.p90}, {"p95", &d.p95}, {"p99", &d.p99}}};
  for (const auto& [name, percentile] : percentiles) {
    if (statistic == name) return {percentile->value, given(percentile->absent_reason)};
  }
  const std::array<std::pair<const char*, std::optional<double>>, 5> moments = {
      {{"mean", d.mean}, {"stdev", d.stdev}, {"mad", d.mad}, {"min", d.min}, {"max", d.max}}};
  for (const auto& [name, value] : moments) {
    if (statistic == name) return {value, given(d.absent_reason)};
  }
  if (statistic == "count") return {static_cast<double>(d.count), ""};
  return {std::nullopt, " is a distribution, and the rule reads one value"};
}

// What a condition takes as evidence. Facts that only say whether an item applies (how many ranks,
// how many bits) may rest on anything but an assumption.
using Kinds = std::vector<MetricKind>;
const Kinds kKindsOfFacts = {MetricKind::kMeasured, MetricKind::kReplayed, MetricKind::kModelled};

Figure figure_of(const Report& report, const Kinds& kinds, const Condition& leaf) {
  const auto found = report.metrics.find(leaf.metric);
  if (found == report.metrics.end()) return {std::nullopt, " is not in this report"};
  const Metric& metric = found->second;
  if (std::find(kinds.begin(), kinds.end(), metric.kind) == kinds.end()) {
    return {std::nullopt,
            fmt::format(" is {}, which this item does not take as evidence", name_of(metric.kind))};
  }
  if (leaf.kind == ConditionKind::kCompare && metric.unit != leaf.unit) {
    return {std::nullopt,
            fmt::format(" is in \"{}\" where the checklist has \"{}\"", metric.unit, leaf.unit)};
  }
  if (metric.distribution) {
    if (leaf.kind == ConditionKind::kPresent) {
      return {metric.distribution->mean, given(metric.distribution->absent_reason)};
    }
    return figure_of_distribution(*metric.distribution, leaf.statistic);
  }
  if (!metric.value) {
    return {std::nullopt, given(metric.absent_reason)};
  }
  if (leaf.kind == ConditionKind::kCompare && leaf.statistic != "value") {
    return {std::nullopt, fmt::format(" has no {}: it is one value", leaf.statistic)};
  }
  return {metric.value, ""};
}

bool compares(double value, Comparison comparison, double threshold) {
  switch (comparison) {
    case Comparison::kLess:
      return value < threshold;
    case Comparison::kLessEqual:
      return value <= threshold;
    case Comparison::kGreater:
      return value > threshold;
    case Comparison::kGreaterEqual:
      return value >= threshold;
    case Comparison::kEqual:
      return value == threshold;
  }
  return false;
}

ConditionResult evaluate_leaf(const Report& report, const Kinds& kinds, const Condition& leaf) {
  const Figure figure = figure_of(report, kinds, leaf);
  const std::string name = leaf.kind == ConditionKind::kPresent || leaf.statistic == "value"
                               ? leaf.metric
                               : fmt::format("{} {}", leaf.metric, leaf.statistic);
  ConditionResult result;
  result.unit = leaf.unit;
  if (!figure.value) {
    result.seen = name + figure.absent_reason;
    return result;
  }
  result.number = figure.value;
  if (leaf.kind == ConditionKind::kPresent) {
    result.unit = report.metrics.at(leaf.metric).unit;
    result.outcome = Outcome::kTrue;
    result.seen = fmt::format("{} is {}", name, human_value(*figure.value, result.unit));
    return result;
  }
  const bool holds = compares(*figure.value, leaf.comparison, leaf.threshold);
  result.outcome = holds ? Outcome::kTrue : Outcome::kFalse;
  result.seen =
      fmt::format("{} is {}", name, human_beside(*figure.value, leaf.threshold, leaf.unit));
  return result;
}

// all_of: false where one is false, else unknown where one is unknown. any_of: the other way round.
ConditionResult evaluate_condition(const Report& report, const Kinds& kinds,
                                   const Condition& condition) {
  if (condition.kind != ConditionKind::kAllOf && condition.kind != ConditionKind::kAnyOf) {
    return evaluate_leaf(report, kinds, condition);
  }
  const Outcome decisive =
      condition.kind == ConditionKind::kAllOf ? Outcome::kFalse : Outcome::kTrue;
  std::vector<ConditionResult> parts;
  for (const Condition& child : condition.children) {
    parts.push_back(evaluate_condition(report, kinds, child));
  }
  const auto first_with = [&](Outcome outcome) {
    return std::find_if(parts.begin(), parts.end(),
                        [outcome](const ConditionResult& part) { return part.outcome == outcome; });
  };
  auto deciding = first_with(decisive);
  if (deciding == parts.end()) deciding = first_with(Outcome::kUnknown);
  if (deciding == parts.end()) deciding = parts.begin();
  ConditionResult result;
  result.outcome = deciding->outcome;
  result.number = deciding->number;
  result.unit = deciding->unit;
  // Where the answer is unknown only what is missing matters; otherwise all that was seen.
  std::set<std::string> said;
  for (const ConditionResult& part : parts) {
    if (result.outcome == Outcome::kUnknown && part.outcome != Outcome::kUnknown) continue;
    if (!said.insert(part.seen).second) continue;
    result.seen += (result.seen.empty() ? "" : "; ") + part.seen;
  }
  return result;
}

std::string tool_of(const Report& report) {
  const bool there =
      report.tool.is_object() && report.tool.contains("name") && report.tool["name"].is_string();
  return there ? report.tool["name"].get<std::string>() : std::string();
}

AcceptanceItem evaluate_item(const Report& report, const ChecklistItem& item) {
  AcceptanceItem out;
  out.id = item.id;
  out.title = item.title;
  out.rule = describe(item.rule);
  if (item.not_applicable_when) {
    const ConditionResult when =
        evaluate_condition(report, kKindsOfFacts, *item.not_applicable_when);
    if (when.outcome == Outcome::kTrue) {
      out.result = ItemResult::kNotApplicable;
      out.reason = fmt::format("applies to {}; {}", item.applies_to, when.seen);
      return out;
    }
  }
  if (!report.validity.valid) {
    out.reason = "the run is not valid, so its figures prove nothing";
    return out;
  }
  if (item.precondition) {
    const ConditionResult before = evaluate_condition(report, kKindsOfFacts, *item.precondition);
    if (before.outcome != Outcome::kTrue) {
      out.reason = fmt::format("needs {}; {}", describe(*item.precondition), before.seen);
      return out;
    }
  }
  const ConditionResult rule = evaluate_condition(report, item.kinds, item.rule);
  out.reason = rule.seen;
  if (rule.outcome == Outcome::kUnknown) return out;
  out.measured = rule.number;
  out.unit = rule.unit;
  out.result = rule.outcome == Outcome::kTrue ? ItemResult::kPass : ItemResult::kFail;
  if (out.result == ItemResult::kFail) out.advice = item.advice;
  return out;
}

// fail where any item failed; pass where at least one passed and none is not_measured.
std::string verdict_of(const std::vector<AcceptanceItem>& items) {
  bool some_pass = false;
  bool some_open = false;
  for (const AcceptanceItem& item : items) {
    if (item.result == ItemResult::kFail) return "fail";
    some_pass = some_pass || item.result == ItemResult::kPass;
    some_open = some_open || item.result == ItemResult::kNotMeasured;
  }
  return some_pass && !some_open ? "pass" : "incomplete";
}

// Which of two results of one item stands.
int weight_of(ItemResult result) {
  switch (result) {
    case ItemResult::kFail:
      return 3;
    case ItemResult::kPass:
      return 2;
    case ItemResult::kNotApplicable:
      return 1;
    case ItemResult::kNotMeasured:
      return 0;
  }
  return 0;
}

}  // namespace

Acceptance evaluate(const Report& report, const Checklist& checklist) {
  const std::string tool = tool_of(report);
  Acceptance acceptance;
  acceptance.checklist_version = checklist.version;
  for (const ChecklistItem& item : checklist.items) {
    const auto& tools = item.evidence_from;
    if (std::find(tools.begin(), tools.end(), tool) == tools.end()) continue;
    acceptance.items.push_back(evaluate_item(report, item));
  }
  acceptance.verdict = verdict_of(acceptance.items);
  return acceptance;
}

Acceptance evaluate_together(std::span<const Report> reports, const std::vector<std::string>& names,
                             const Checklist& checklist) {
  MOE_CHECK(reports.size() == names.size());
  Acceptance acceptance;
  acceptance.checklist_version = checklist.version;
  for (const ChecklistItem& item : checklist.items) {
    AcceptanceItem merged;
    merged.id = item.id;
    merged.title = item.title;
    merged.rule = describe(item.rule);
    merged.reason = fmt::format("no report of {}", fmt::join(item.evidence_from, " or "));
    bool has_evidence = false;
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const auto& tools = item.evidence_from;
      if (std::find(tools.begin(), tools.end(), tool_of(reports[i])) == tools.end()) continue;
      AcceptanceItem one = evaluate_item(reports[i], item);
      one.reason = fmt::format("{}: {}", names[i], one.reason);
      if (!has_evidence || weight_of(one.result) > weight_of(merged.result)) {
        merged = std::move(one);
      }
      has_evidence = true;
    }
    acceptance.items.push_back(std::move(merged));
  }
  acceptance.verdict = verdict_of(acceptance.items);
  return acceptance;
}

}  // namespace moe::report
