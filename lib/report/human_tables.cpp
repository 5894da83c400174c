// Tables laid out for people: one scale a column, numbers as text.

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"

namespace moe::report {
namespace {

// Digits after the point so that the middle magnitude of the column shows four significant ones.
int pick_decimals(std::vector<double> magnitudes) {
  const bool all_whole = std::all_of(magnitudes.begin(), magnitudes.end(),
                                     [](double value) { return std::floor(value) == value; });
  if (all_whole) return 0;
  magnitudes.erase(std::remove(magnitudes.begin(), magnitudes.end(), 0.0), magnitudes.end());
  const auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  return std::clamp(3 - static_cast<int>(std::floor(std::log10(*middle))), 1, 4);
}

std::string text_of(const Cell& cell, const Scale& scale, int decimals) {
  if (std::holds_alternative<std::monostate>(cell)) return "-";
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "yes" : "no";
  if (const auto* text = std::get_if<std::string>(&cell)) return printable(*text);
  const double value = *number_of(cell) / scale.factor;
  if (!std::isfinite(value)) return fmt::format("{}", value);
  // Whole numbers beyond a double's 53 bits would lose digits on the way.
  if (const auto* whole = std::get_if<std::int64_t>(&cell); whole && scale.factor == 1.0) {
    return fmt::format("{}", *whole);
  }
  const std::string fixed = fmt::format("{:.{}f}", value, decimals);
  // A value that the column's digits would show as zero gets its own.
  return value != 0.0 && std::stod(fixed) == 0.0 ? human_number(value) : fixed;
}

double largest_of_unit(const Table& table, const std::string& unit) {
  double largest = 0.0;
  for (const auto& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (table.columns[c].unit != unit) continue;
      const auto number = number_of(row[c]);
      if (number && std::isfinite(*number)) largest = std::max(largest, std::abs(*number));
    }
  }
  return largest;
}

std::string distribution_note(bool some_absent) {
  return some_absent ? "-: too few samples (p50 needs 7, p90 44, p95 90, p99 459)" : "";
}

}  // namespace

// No number gets longer than four digits before the point where a larger unit exists.
Scale human_scale(std::string_view unit, double largest) {
  if (unit == "s") {
    if (largest >= 10.0) return {1.0, "s"};
    if (largest >= 1e-2) return {1e-3, "ms"};
    return {1e-6, "us"};
  }
  if (unit == "bytes") {
    if (largest >= 10.0 * 1073741824.0) return {1073741824.0, "GiB"};
    if (largest >= 10.0 * 1048576.0) return {1048576.0, "MiB"};
    if (largest >= 10.0 * 1024.0) return {1024.0, "KiB"};
    return {1.0, "B"};
  }
  if (unit == "bytes/s" || unit == "flop/s" || unit == "ops/s") {
    const std::string base = unit == "bytes/s" ? "B/s" : std::string(unit);
    if (largest >= 1e13) return {1e12, "T" + base};
    if (largest >= 1e9) return {1e9, "G" + base};
    if (largest >= 1e6) return {1e6, "M" + base};
    return {1.0, base};
  }
  return {1.0, human_unit(unit)};
}

std::optional<double> number_of(const Cell& cell) {
  if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&cell)) return *real;
  return std::nullopt;
}

HumanTable layout_table(const std::string& name, const Table& table) {
  HumanTable out;
  out.name = name;
  out.title = printable(table.title);
  for (const auto& row : table.rows) MOE_CHECK(row.size() == table.columns.size());
  out.rows.assign(table.rows.size(), {});
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    std::vector<double> magnitudes;
    bool all_numbers = true;
    for (const auto& row : table.rows) {
      if (const auto number = number_of(row[c]); number && std::isfinite(*number)) {
        magnitudes.push_back(std::abs(*number));
      } else if (!std::holds_alternative<std::monostate>(row[c])) {
        all_numbers = false;
      }
    }
    Scale scale;
    if (!magnitudes.empty()) {
      // Columns of one unit share a scale, so that they can be compared, unless one is far smaller.
      const double own = *std::max_element(magnitudes.begin(), magnitudes.end());
      const double shared = largest_of_unit(table, column.unit);
      scale = human_scale(column.unit, own < 1e-3 * shared ? own : shared);
    }
    for (double& magnitude : magnitudes) magnitude /= scale.factor;
    const int decimals = pick_decimals(magnitudes);
    const std::string label = human_label(column.name, column.unit);
    const bool says_unit = label.ends_with(scale.unit);  // "output tokens/s"
    out.columns.push_back(
        {label, says_unit ? std::string() : scale.unit, all_numbers && !magnitudes.empty()});
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      out.rows[r].push_back(text_of(table.rows[r][c], scale, decimals));
    }
  }
  return out;
}

bool is_of_one_point(const std::string& metric_name) {
  return metric_name.find('.') != std::string::npos;
}

std::string describe_left_out(const Report& report) {
  const auto count = std::count_if(report.metrics.begin(), report.metrics.end(),
                                   [](const auto& entry) { return is_of_one_point(entry.first); });
  if (count == 0) return {};
  return fmt::format("{} figures of single points of the sweep stand in the JSON and CSV reports.",
                     count);
}

HumanTable layout_distributions(const Report& report) {
  HumanTable out;
  out.title = "Distributions";
  out.columns = {{"metric", "", false}, {"samples", "", true}, {"p50", "", true},
                 {"p90", "", true},     {"p95", "", true},     {"p99", "", true},
                 {"mean", "", true},    {"min", "", true},     {"max", "", true}};
  bool some_absent = false;
  for (const auto& entry : report.metrics) {  // clang 14 captures no structured binding in show
    const std::string& name = entry.first;
    const Metric& metric = entry.second;
    if (!metric.distribution || is_of_one_point(name)) continue;
    const stats::Distribution& d = *metric.distribution;
    const auto show = [&](const std::optional<double>& value) {
      if (!value) some_absent = true;
      return value ? human_value(*value, metric.unit) : std::string("-");
    };
    std::string label = human_label(name, metric.unit);
    if (metric.kind != MetricKind::kMeasured) label += fmt::format(" ({})", name_of(metric.kind));
    out.rows.push_back({std::move(label), fmt::format("{}", d.count), show(d.p50.value),
                        show(d.p90.value), show(d.p95.value), show(d.p99.value), show(d.mean),
                        show(d.min), show(d.max)});
  }
  out.note = distribution_note(some_absent);
  return out;
}

HumanTable layout_values(const Report& report) {
  HumanTable out;
  out.title = "Figures";
  out.columns = {{"metric", "", false}, {"value", "", true}, {"kind", "", false}};
  for (const auto& [name, metric] : report.metrics) {
    if (metric.distribution || !metric.value || is_of_one_point(name)) continue;
    out.rows.push_back({human_label(name, metric.unit), human_value(*metric.value, metric.unit),
                        name_of(metric.kind)});
  }
  out.note = describe_left_out(report);
  return out;
}

HumanTable layout_absent(const Report& report) {
  HumanTable out;
  out.title = "Not measured";
  out.columns = {{"metric", "", false}, {"reason", "", false}};
  for (const auto& [name, metric] : report.metrics) {
    if (metric.distribution || metric.value || is_of_one_point(name)) continue;
    out.rows.push_back({human_label(name, metric.unit), printable(metric.absent_reason)});
  }
  return out;
}

}  // namespace moe::report
