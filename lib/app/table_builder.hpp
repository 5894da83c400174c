#pragma once

// Short ways to fill a report.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/report/report.hpp"

namespace moe::app {

[[nodiscard]] report::Metric value_metric(report::MetricKind kind, const std::string& unit,
                                          double value, const std::string& how);
[[nodiscard]] report::Metric absent_metric(report::MetricKind kind, const std::string& unit,
                                           const std::string& reason, const std::string& how);
// Absent with the reason when there are no samples.
[[nodiscard]] report::Metric sampled_metric(const std::string& unit,
                                            std::span<const double> samples,
                                            const std::string& absent_reason,
                                            const std::string& how);

// A measured table; columns as {name, unit}.
[[nodiscard]] report::Table make_table(const std::string& title,
                                       std::vector<report::Column> columns);

// Empty when there is no value.
[[nodiscard]] inline report::Cell optional_cell(const std::optional<double>& value) {
  return value ? report::Cell(*value) : report::Cell();
}

// A count as a cell; tables hold 64-bit signed integers.
[[nodiscard]] inline report::Cell count_cell(std::int64_t count) {
  return report::Cell(count);
}

}  // namespace moe::app
