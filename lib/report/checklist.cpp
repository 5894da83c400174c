#include "lib/report/checklist.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/json/schema_check.hpp"
#include "lib/report/embedded.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"

namespace moe::report {
namespace {

using json::Json;

constexpr std::array<std::pair<std::string_view, Comparison>, 5> kComparisons = {
    {{"<", Comparison::kLess},
     {"<=", Comparison::kLessEqual},
     {">", Comparison::kGreater},
     {">=", Comparison::kGreaterEqual},
     {"==", Comparison::kEqual}}};

std::string_view symbol_of(Comparison comparison) {
  for (const auto& [symbol, value] : kComparisons) {
    if (value == comparison) return symbol;
  }
  return "?";
}

Condition condition_from_json(const Json& in) {
  Condition condition;
  for (const auto& [key, kind] :
       {std::pair{"all_of", ConditionKind::kAllOf}, std::pair{"any_of", ConditionKind::kAnyOf}}) {
    if (!in.contains(key)) continue;
    condition.kind = kind;
    for (const Json& child : in[key]) condition.children.push_back(condition_from_json(child));
    return condition;
  }
  condition.metric = in["metric"].get<std::string>();
  condition.statistic = in.value("statistic", "value");
  const std::string op = in["op"].get<std::string>();
  if (op == "present") {
    condition.kind = ConditionKind::kPresent;
    return condition;
  }
  for (const auto& [symbol, comparison] : kComparisons) {
    if (op == symbol) condition.comparison = comparison;
  }
  condition.threshold = in["threshold"].get<double>();
  condition.unit = in["unit"].get<std::string>();
  return condition;
}

MetricKind kind_from_name(const std::string& name) {
  if (name == name_of(MetricKind::kReplayed)) return MetricKind::kReplayed;
  if (name == name_of(MetricKind::kModelled)) return MetricKind::kModelled;
  return MetricKind::kMeasured;
}

ChecklistItem item_from_json(const Json& in) {
  ChecklistItem item;
  item.id = in["id"].get<std::string>();
  item.title = in["title"].get<std::string>();
  item.evidence_from = in["evidence_from"].get<std::vector<std::string>>();
  item.applies_to = in["applies_to"].get<std::string>();
  for (const Json& kind : in["kinds"])
    item.kinds.push_back(kind_from_name(kind.get<std::string>()));
  if (in.contains("not_applicable_when")) {
    item.not_applicable_when = condition_from_json(in["not_applicable_when"]);
  }
  if (in.contains("requires")) item.precondition = condition_from_json(in["requires"]);
  item.rule = condition_from_json(in["rule"]);
  item.source = in["source"].get<std::string>();
  item.advice = in["advice"].get<std::string>();
  return item;
}

std::string describe_nested(const Condition& condition, bool is_inner) {
  switch (condition.kind) {
    case ConditionKind::kPresent:
      return condition.metric + " stated";
    case ConditionKind::kCompare: {
      const std::string statistic =
          condition.statistic == "value" ? "" : fmt::format(" {}", condition.statistic);
      const std::string unit = human_unit(condition.unit);
      return fmt::format("{}{} {} {}{}{}", condition.metric, statistic,
                         symbol_of(condition.comparison), condition.threshold,
                         unit.empty() ? "" : " ", unit);
    }
    case ConditionKind::kAllOf:
    case ConditionKind::kAnyOf: {
      const char* word = condition.kind == ConditionKind::kAllOf ? " and " : " or ";
      std::string text;
      for (const Condition& child : condition.children) {
        text += (text.empty() ? "" : word) + describe_nested(child, true);
      }
      const bool in_brackets = is_inner && condition.children.size() > 1;
      return in_brackets ? fmt::format("({})", text) : text;
    }
  }
  return {};
}

}  // namespace

std::string describe(const Condition& condition) {
  return describe_nested(condition, false);
}

Checklist parse_checklist(std::string_view text, const std::string& where) {
  static const Json schema = json::parse(embedded::checklist_schema(), "checklist.schema.json");
  const Json document = json::parse(text, where);
  if (const auto errors = json::check_schema(document, schema); !errors.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: not a valid checklist: {}: {}", where,
                            errors.front().pointer.empty() ? "/" : errors.front().pointer,
                            errors.front().message));
  }
  Checklist checklist;
  checklist.version = document["version"].get<std::string>();
  std::set<std::string> ids;
  for (const Json& one : document["items"]) {
    checklist.items.push_back(item_from_json(one));
    if (!ids.insert(checklist.items.back().id).second) {
      throw Error(ErrorCode::kInput, fmt::format("{}: two items have the id \"{}\"", where,
                                                 checklist.items.back().id));
    }
  }
  return checklist;
}

Checklist read_checklist(const std::string& path) {
  const Json document = json::parse_file(path);
  return parse_checklist(document.dump(), path);
}

const Checklist& default_checklist() {
  static const Checklist checklist = parse_checklist(embedded::checklist(), "checklist.json");
  return checklist;
}

std::vector<std::string> gate_failures(const Acceptance& acceptance, const GateOptions& options) {
  std::vector<std::string> failing;
  std::set<std::string> open(options.require.begin(), options.require.end());
  for (const AcceptanceItem& item : acceptance.items) {
    const bool is_required = open.erase(item.id) != 0;
    const bool is_failure = item.result == ItemResult::kFail;
    if ((options.gate && is_failure) || (is_required && item.result != ItemResult::kPass)) {
      failing.push_back(item.id);
    }
  }
  for (const std::string& id : options.require) {
    if (open.erase(id) != 0) failing.push_back(id);
  }
  return failing;
}

std::vector<std::string> unknown_ids(const Checklist& checklist,
                                     const std::vector<std::string>& ids) {
  std::vector<std::string> unknown;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(unknown), [&](const std::string& id) {
    return std::none_of(checklist.items.begin(), checklist.items.end(),
                        [&](const ChecklistItem& item) { return item.id == id; });
  });
  return unknown;
}

}  // namespace moe::report
