#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {
namespace {

constexpr const char* kMetricsTable = "metrics";

using Row = std::vector<Cell>;

// RFC 4180 quoting. Text that a spreadsheet would run as a formula gets a quote in front.
std::string field(const std::string& text) {
  std::string out = text;
  if (!text.empty() && (text[0] == '=' || text[0] == '+' || text[0] == '@' || text[0] == '-')) {
    out.insert(0, 1, '\'');
  }
  if (out.find_first_of(",\"\r\n") == std::string::npos) return out;
  std::string quoted = "\"";
  for (const char c : out) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string field(const Cell& cell) {
  if (std::holds_alternative<std::monostate>(cell)) return {};
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *whole);
  if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{}", *real);
  return field(std::get<std::string>(cell));
}

Cell cell_of(const std::optional<double>& value) {
  return value ? Cell(*value) : Cell(std::monostate{});
}

Row metric_row(const std::string& name, const Metric& metric) {
  Row row = {name, std::string(name_of(metric.kind)), metric.unit};
  if (metric.distribution) {
    const stats::Distribution& d = *metric.distribution;
    row.insert(row.end(),
               {std::monostate{}, d.count, cell_of(d.mean), cell_of(d.stdev), cell_of(d.mad),
                cell_of(d.min), cell_of(d.p50.value), cell_of(d.p90.value), cell_of(d.p95.value),
                cell_of(d.p99.value), cell_of(d.max), std::monostate{}});
  } else {
    row.push_back(cell_of(metric.value));
    row.insert(row.end(), 10, std::monostate{});
    row.push_back(metric.value ? Cell(std::monostate{}) : Cell(metric.absent_reason));
  }
  return row;
}

Table metrics_table(const Report& report) {
  Table table;
  for (const char* name : {"name", "kind", "unit", "value", "count", "mean", "stdev", "mad", "min",
                           "p50", "p90", "p95", "p99", "max", "absent_reason"}) {
    table.columns.push_back({name, ""});
  }
  for (const auto& [name, metric] : report.metrics) table.rows.push_back(metric_row(name, metric));
  return table;
}

// "ttft_s" says its unit; "bytes_read" in "MiB" would not.
std::string header_of(const Column& column) {
  const std::string stem = human_label(column.name, column.unit);
  const bool says_unit = column.unit.empty() || column.unit == "1" ||
                         stem.size() < column.name.size() || column.name.ends_with("_per_s");
  return says_unit ? column.name : fmt::format("{} [{}]", column.name, column.unit);
}

void append_table(std::string& out, const Table& table, const std::string& first_field) {
  const std::string header_start = first_field.empty() ? "" : "table,";
  const std::string row_start = first_field.empty() ? "" : field(first_field) + ",";
  out += header_start;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    out += fmt::format("{}{}", c == 0 ? "" : ",", field(header_of(table.columns[c])));
  }
  out += '\n';
  for (const auto& row : table.rows) {
    MOE_CHECK(row.size() == table.columns.size());
    out += row_start;
    for (std::size_t c = 0; c < row.size(); ++c) {
      out += fmt::format("{}{}", c == 0 ? "" : ",", field(row[c]));
    }
    out += '\n';
  }
}

}  // namespace

std::string write_csv(const Report& report) {
  require_finite(report);
  std::string out;
  for (const auto& [name, table] : report.tables) {
    append_table(out, table, name);
    out += '\n';
  }
  append_table(out, metrics_table(report), kMetricsTable);
  return out;
}

std::string write_csv_table(const Report& report, const std::string& name) {
  require_finite(report);
  std::string out;
  if (const auto found = report.tables.find(name); found != report.tables.end()) {
    append_table(out, found->second, "");
  } else if (name == kMetricsTable) {
    append_table(out, metrics_table(report), "");
  } else {
    std::string known;
    for (const auto& [key, table] : report.tables) known += key + ", ";
    throw Error(ErrorCode::kUsage, fmt::format("no table \"{}\" in this report; there are {}{}",
                                               name, known, kMetricsTable));
  }
  return out;
}

}  // namespace moe::report
