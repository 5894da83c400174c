#include "lib/report/json_io.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/json/write.hpp"
#include "lib/report/embedded.hpp"

namespace moe::report {
namespace {

using json::Json;

template <typename Enum, std::size_t kCount>
Enum enum_of(const std::array<Enum, kCount>& values, const std::string& name) {
  for (const Enum value : values) {
    if (name == name_of(value)) return value;
  }
  throw Error(ErrorCode::kInput, fmt::format("unknown name \"{}\"", name));
}

constexpr std::array kMetricKinds = {MetricKind::kMeasured, MetricKind::kReplayed,
                                     MetricKind::kModelled, MetricKind::kAssumed};
constexpr std::array kSeverities = {Severity::kInfo, Severity::kWarning, Severity::kError};
constexpr std::array kItemResults = {ItemResult::kPass, ItemResult::kFail, ItemResult::kNotMeasured,
                                     ItemResult::kNotApplicable};
constexpr std::array kChartKinds = {ChartKind::kBar, ChartKind::kLine, ChartKind::kStacked,
                                    ChartKind::kTornado, ChartKind::kHeatmap};

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::optional<double> optional_number(const Json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

struct NamedPercentile {
  const char* name;
  stats::Percentile stats::Distribution::*member;
};
constexpr std::array<NamedPercentile, 4> kPercentiles = {{{"p50", &stats::Distribution::p50},
                                                          {"p90", &stats::Distribution::p90},
                                                          {"p95", &stats::Distribution::p95},
                                                          {"p99", &stats::Distribution::p99}}};

Json distribution_to_json(const stats::Distribution& distribution) {
  Json out = Json::object();
  out["count"] = distribution.count;
  out["mean"] = number_or_null(distribution.mean);
  out["stdev"] = number_or_null(distribution.stdev);
  out["mad"] = number_or_null(distribution.mad);
  out["min"] = number_or_null(distribution.min);
  Json intervals = Json::object();
  Json reasons = Json::object();
  if (!distribution.absent_reason.empty()) reasons["moments"] = distribution.absent_reason;
  for (const auto& [name, member] : kPercentiles) {
    const stats::Percentile& percentile = distribution.*member;
    out[name] = number_or_null(percentile.value);
    intervals[name] = percentile.ci95 ? Json::array({percentile.ci95->low, percentile.ci95->high})
                                      : Json(nullptr);
    if (!percentile.absent_reason.empty()) reasons[name] = percentile.absent_reason;
  }
  out["max"] = number_or_null(distribution.max);
  out["percentile_method"] = distribution.percentile_method;
  out["ci95"] = std::move(intervals);
  out["reasons"] = std::move(reasons);
  return out;
}

stats::Distribution distribution_from_json(const Json& in) {
  stats::Distribution distribution;
  distribution.count = in["count"].get<std::int64_t>();
  distribution.mean = optional_number(in["mean"]);
  distribution.stdev = optional_number(in["stdev"]);
  distribution.mad = optional_number(in["mad"]);
  distribution.min = optional_number(in["min"]);
  distribution.max = optional_number(in["max"]);
  distribution.percentile_method = in["percentile_method"].get<std::string>();
  distribution.absent_reason = in["reasons"].value("moments", "");
  for (const auto& [name, member] : kPercentiles) {
    stats::Percentile& percentile = distribution.*member;
    percentile.value = optional_number(in[name]);
    percentile.absent_reason = in["reasons"].value(name, "");
    const Json& interval = in["ci95"][name];
    if (!interval.is_null()) {
      percentile.ci95 = stats::Interval{interval[0].get<double>(), interval[1].get<double>()};
    }
  }
  return distribution;
}

Json metric_to_json(const Metric& metric) {
  Json out = Json::object();
  out["kind"] = name_of(metric.kind);
  out["unit"] = metric.unit;
  if (metric.distribution) {
    out["distribution"] = distribution_to_json(*metric.distribution);
  } else {
    out["value"] = number_or_null(metric.value);
    if (!metric.value) out["reason"] = metric.absent_reason;
  }
  out["how"] = metric.how;
  return out;
}

Metric metric_from_json(const Json& in) {
  Metric metric;
  metric.kind = enum_of(kMetricKinds, in["kind"].get<std::string>());
  metric.unit = in["unit"].get<std::string>();
  metric.how = in["how"].get<std::string>();
  if (in.contains("distribution")) {
    metric.distribution = distribution_from_json(in["distribution"]);
  } else {
    metric.value = optional_number(in["value"]);
    metric.absent_reason = in.value("reason", "");
  }
  return metric;
}

Json cell_to_json(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
          return nullptr;
        } else {
          return value;
        }
      },
      cell);
}

Cell cell_from_json(const Json& in) {
  if (in.is_null()) return std::monostate{};
  if (in.is_boolean()) return in.get<bool>();
  if (in.is_string()) return in.get<std::string>();
  // An integer beyond 63 bits is kept as a double rather than wrapped.
  const bool fits =
      in.is_number_integer() && !(in.is_number_unsigned() && in.get<std::uint64_t>() >> 63U != 0);
  if (fits) return in.get<std::int64_t>();
  return in.get<double>();
}

Json table_to_json(const Table& table) {
  Json out = Json::object();
  out["title"] = table.title;
  out["detail"] = table.is_detail;
  Json columns = Json::array();
  for (const Column& column : table.columns) {
    columns.push_back(Json{{"name", column.name}, {"unit", column.unit}});
  }
  out["columns"] = std::move(columns);
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) cells.push_back(cell_to_json(cell));
    rows.push_back(std::move(cells));
  }
  out["rows"] = std::move(rows);
  return out;
}

Table table_from_json(const Json& in) {
  Table table;
  table.title = in["title"].get<std::string>();
  table.is_detail = in["detail"].get<bool>();
  for (const Json& column : in["columns"]) {
    table.columns.push_back({column["name"].get<std::string>(), column["unit"].get<std::string>()});
  }
  for (const Json& cells : in["rows"]) {
    std::vector<Cell>& row = table.rows.emplace_back();
    for (const Json& cell : cells) row.push_back(cell_from_json(cell));
  }
  return table;
}

Json acceptance_to_json(const Acceptance& acceptance) {
  Json items = Json::array();
  for (const AcceptanceItem& item : acceptance.items) {
    Json out = Json::object();
    out["id"] = item.id;
    out["title"] = item.title;
    out["result"] = name_of(item.result);
    out["measured"] = number_or_null(item.measured);
    out["unit"] = item.unit;
    out["rule"] = item.rule;
    out["reason"] = item.reason;
    out["advice"] = item.advice;
    items.push_back(std::move(out));
  }
  Json out = Json::object();
  out["checklist_version"] = acceptance.checklist_version;
  out["verdict"] = acceptance.verdict;
  out["items"] = std::move(items);
  return out;
}

Acceptance acceptance_from_json(const Json& in) {
  Acceptance acceptance;
  acceptance.checklist_version = in["checklist_version"].get<std::string>();
  acceptance.verdict = in["verdict"].get<std::string>();
  for (const Json& one : in["items"]) {
    AcceptanceItem& item = acceptance.items.emplace_back();
    item.id = one["id"].get<std::string>();
    item.title = one["title"].get<std::string>();
    item.result = enum_of(kItemResults, one["result"].get<std::string>());
    item.measured = optional_number(one["measured"]);
    item.unit = one["unit"].get<std::string>();
    item.rule = one["rule"].get<std::string>();
    item.reason = one["reason"].get<std::string>();
    item.advice = one["advice"].get<std::string>();
  }
  return acceptance;
}

Json findings_to_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json out = Json::object();
    out["code"] = finding.code;
    out["severity"] = name_of(finding.severity);
    out["message"] = finding.message;
    out["advice"] = finding.advice;
    out["evidence"] = finding.evidence;
    list.push_back(std::move(out));
  }
  return list;
}

Json charts_to_json(const std::vector<Chart>& charts) {
  Json list = Json::array();
  for (const Chart& chart : charts) {
    list.push_back(
        Json{{"title", chart.title},
             {"kind", name_of(chart.kind)},
             {"table", chart.table},
             {"x", chart.x},
             {"y", chart.y},
             {"group_by", chart.group_by.empty() ? Json(nullptr) : Json(chart.group_by)}});
  }
  return list;
}

void check_version(const Json& document, const std::string& where) {
  const bool is_report = document.is_object() && document.contains("schema") &&
                         document["schema"] == kSchemaName && document.contains("schema_version");
  if (!is_report) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a report (\"schema\": \"{}\" with a \"schema_version\")",
                            where, kSchemaName));
  }
  if (document["schema_version"] != kSchemaVersion) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: schema_version {} is not one that this build "
                            "reads ({})",
                            where, document["schema_version"].dump(), kSchemaVersion));
  }
}

}  // namespace

const char* name_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::kMeasured:
      return "measured";
    case MetricKind::kReplayed:
      return "replayed";
    case MetricKind::kModelled:
      return "modelled";
    case MetricKind::kAssumed:
      return "assumed";
  }
  return "assumed";
}

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kError:
      return "error";
  }
  return "error";
}

const char* name_of(ItemResult result) {
  switch (result) {
    case ItemResult::kPass:
      return "pass";
    case ItemResult::kFail:
      return "fail";
    case ItemResult::kNotMeasured:
      return "not_measured";
    case ItemResult::kNotApplicable:
      return "not_applicable";
  }
  return "not_measured";
}

const char* name_of(ChartKind kind) {
  switch (kind) {
    case ChartKind::kBar:
      return "bar";
    case ChartKind::kLine:
      return "line";
    case ChartKind::kStacked:
      return "stacked";
    case ChartKind::kTornado:
      return "tornado";
    case ChartKind::kHeatmap:
      return "heatmap";
  }
  return "bar";
}

Json to_json(const Report& report) {
  Json out = Json::object();
  out["schema"] = kSchemaName;
  out["schema_version"] = kSchemaVersion;
  out["tool"] = report.tool;
  out["run"] = report.run;
  out["environment"] = report.environment;
  out["subject"] = report.subject;
  out["settings"] = report.settings;
  Json metrics = Json::object();
  for (const auto& [name, metric] : report.metrics) metrics[name] = metric_to_json(metric);
  out["metrics"] = std::move(metrics);
  Json tables = Json::object();
  for (const auto& [name, table] : report.tables) tables[name] = table_to_json(table);
  out["tables"] = std::move(tables);
  out["charts"] = charts_to_json(report.charts);
  out["highlights"] = report.highlights;
  out["findings"] = findings_to_json(report.findings);
  out["validity"] = Json{{"valid", report.validity.valid},
                         {"partial", report.validity.partial},
                         {"reasons", report.validity.reasons}};
  out["acceptance"] = acceptance_to_json(report.acceptance);
  return out;
}

Report from_json(const Json& document, const std::string& where) {
  check_version(document, where);
  if (const auto errors = check_report(document); !errors.empty()) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: not a valid report: {}: {}{}", where,
                    errors.front().pointer.empty() ? "/" : errors.front().pointer,
                    errors.front().message,
                    errors.size() > 1 ? fmt::format(" (and {} more)", errors.size() - 1) : ""));
  }
  Report report;
  report.tool = document["tool"];
  report.run = document["run"];
  report.environment = document["environment"];
  report.subject = document["subject"];
  report.settings = document["settings"];
  for (const auto& [name, metric] : document["metrics"].items()) {
    report.metrics[name] = metric_from_json(metric);
  }
  for (const auto& [name, table] : document["tables"].items()) {
    report.tables[name] = table_from_json(table);
  }
  for (const Json& chart : document["charts"]) {
    report.charts.push_back(
        {chart["title"].get<std::string>(), enum_of(kChartKinds, chart["kind"].get<std::string>()),
         chart["table"].get<std::string>(), chart["x"].get<std::string>(),
         chart["y"].get<std::vector<std::string>>(),
         chart["group_by"].is_null() ? "" : chart["group_by"].get<std::string>()});
  }
  report.highlights = document["highlights"].get<std::vector<std::string>>();
  for (const Json& finding : document["findings"]) {
    report.findings.push_back({finding["code"].get<std::string>(),
                               enum_of(kSeverities, finding["severity"].get<std::string>()),
                               finding["message"].get<std::string>(),
                               finding["advice"].get<std::string>(), finding["evidence"]});
  }
  const Json& validity = document["validity"];
  report.validity = {validity["valid"].get<bool>(), validity["partial"].get<bool>(),
                     validity["reasons"].get<std::vector<std::string>>()};
  report.acceptance = acceptance_from_json(document["acceptance"]);
  return report;
}

Report parse_report(std::string_view text, const std::string& where) {
  return from_json(json::parse(text, where), where);
}

Report read_report(const std::string& path) {
  return from_json(json::parse_file(path), path);
}

}  // namespace moe::report
