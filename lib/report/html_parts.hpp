#pragma once

// Pieces of the HTML report: each returns markup with every text escaped.

#include <string>
#include <string_view>

#include "lib/report/human.hpp"
#include "lib/report/report.hpp"

namespace moe::report {

// <table> in a scroll box; empty when the table has no rows.
[[nodiscard]] std::string html_table(const HumanTable& table);

// The distributions with a drawing of each: range, p50 to p90, and p99.
[[nodiscard]] std::string html_distributions(const Report& report);

// A table coloured by value, for a heat map chart. `table` holds the chart's columns.
[[nodiscard]] std::string html_heatmap(const Chart& chart, const Table& table);

// The canvases, and the JSON that report.js reads for them: bar, line and stacked charts.
[[nodiscard]] std::string html_canvases(const Report& report);
[[nodiscard]] std::string chart_data(const Report& report);

// Nested objects as rows "cpu.model | ...".
[[nodiscard]] std::string html_pairs(const json::Json& object);

}  // namespace moe::report
