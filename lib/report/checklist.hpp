#pragma once

// The acceptance checklist: data (reports/checklist.json, or a file of the user's) and its
// evaluation against reports. Four results: pass, fail, not_measured, not_applicable. A figure that
// is absent, assumed, of a kind the item does not take, or from a run that is not valid is
// not_measured, never a pass; numbers are compared as they are, never as they are printed.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/report/report.hpp"

namespace moe::report {

enum class ConditionKind : std::uint8_t { kCompare, kPresent, kAllOf, kAnyOf };
enum class Comparison : std::uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual, kEqual };

// A comparison of one metric with a threshold, the presence of one, or a conjunction or
// disjunction.
struct Condition {
  ConditionKind kind = ConditionKind::kCompare;
  std::string metric;
  std::string statistic = "value";  // value, count, mean, stdev, mad, min, p50, p90, p95, p99, max
  Comparison comparison = Comparison::kGreaterEqual;
  double threshold = 0.0;
  std::string unit;  // of the threshold, and so of the metric
  std::vector<Condition> children;
};

struct ChecklistItem {
  std::string id;
  std::string title;
  std::vector<std::string> evidence_from;  // tools
  std::string applies_to;
  std::vector<MetricKind> kinds;                 // that count as evidence; never kAssumed
  std::optional<Condition> not_applicable_when;  // holds: not_applicable
  std::optional<Condition> precondition;         // does not hold: not_measured
  Condition rule;
  std::string source;
  std::string advice;
};

struct Checklist {
  std::string version;
  std::vector<ChecklistItem> items;
};

// The checklist that is compiled in.
[[nodiscard]] const Checklist& default_checklist();

// Throws Error(kInput) that names the place. `where` names the source in messages.
[[nodiscard]] Checklist parse_checklist(std::string_view text, const std::string& where);
[[nodiscard]] Checklist read_checklist(const std::string& path);

// The items that the report's tool can give evidence for, in the checklist's order.
[[nodiscard]] Acceptance evaluate(const Report& report, const Checklist& checklist);

// Evaluates reports of one system into one verdict over every item: fail where any report fails it,
// else pass where any passes it, else not_applicable where any says so, else not_measured.
// `names` says where each report came from, one a report.
[[nodiscard]] Acceptance evaluate_together(std::span<const Report> reports,
                                           const std::vector<std::string>& names,
                                           const Checklist& checklist);

struct GateOptions {
  bool gate = false;                 // every item that failed counts
  std::vector<std::string> require;  // ids that must pass: anything but a pass counts
};

// Ids that close the gate, in the order of the items, then required ids without an item.
[[nodiscard]] std::vector<std::string> gate_failures(const Acceptance& acceptance,
                                                     const GateOptions& options);

// Those of `ids` that are no item of the checklist: a typing error in --require.
[[nodiscard]] std::vector<std::string> unknown_ids(const Checklist& checklist,
                                                   const std::vector<std::string>& ids);

// "ttft_s p99 < 0.5 s and requests_failed_count == 0".
[[nodiscard]] std::string describe(const Condition& condition);

}  // namespace moe::report
