#pragma once

// Figures and tables as people read them: units scaled, names without their unit suffix, columns
// laid out as text. Shared by the text, Markdown and HTML writers. JSON, CSV and Prometheus print
// base units and do not use this.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/report/report.hpp"

namespace moe::report {

// (0.0123, "s") -> "12.30 ms"; (3.2e10, "bytes/s") -> "32.00 GB/s"; (0.25, "1") -> "0.25".
[[nodiscard]] std::string human_value(double value, std::string_view unit);

// `value` with as many digits as it takes to fall on the same side of `threshold` as it really
// does: 0.7996 beside 0.8 is "0.7996", not "0.8".
[[nodiscard]] std::string human_beside(double value, double threshold, std::string_view unit);

// Four significant digits; whole numbers in full.
[[nodiscard]] std::string human_number(double value);

// "kv_cache_bytes" -> "kv cache", "ttft_s" -> "ttft": without the suffix that repeats the unit.
[[nodiscard]] std::string human_label(std::string_view name, std::string_view unit);

// "tokens/s" as the reader sees it; "" for "1".
[[nodiscard]] std::string human_unit(std::string_view unit);

// One line, without control characters: text from files must not steer a terminal.
[[nodiscard]] std::string printable(std::string_view text);

// Columns that text of UTF-8 takes on a terminal (wide East Asian characters take two).
[[nodiscard]] std::size_t display_width(std::string_view text);

// How a set of figures in one unit is scaled: printed number = value / factor.
struct Scale {
  double factor = 1.0;
  std::string unit;  // "ms"; "" for none
};

// The scale for figures whose largest magnitude is `largest`.
[[nodiscard]] Scale human_scale(std::string_view unit, double largest);

// nullopt for text, flags and empty cells.
[[nodiscard]] std::optional<double> number_of(const Cell& cell);

struct HumanColumn {
  std::string label;
  std::string unit;  // scaled: "ms"; "" for none
  bool is_number = false;
};

struct HumanTable {
  std::string name;  // key in Report::tables, or "" for one that stands for metrics
  std::string title;
  std::vector<HumanColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::string note;  // below the table
};

// Every number of a column in one scale.
[[nodiscard]] HumanTable layout_table(const std::string& name, const Table& table);

// Metrics whose name has a point ("itl_s.batch_4") belong to one point of a sweep: there can be
// hundreds, and the sweep's table shows them. These layouts leave them to the machine formats.
[[nodiscard]] bool is_of_one_point(const std::string& metric_name);

// "120 figures of single points of the sweep stand in the JSON and CSV reports"; "" for none.
[[nodiscard]] std::string describe_left_out(const Report& report);

// The metrics with a distribution, one a row; then those with one value; then those with none and
// why. A table without rows is left out by the writers.
[[nodiscard]] HumanTable layout_distributions(const Report& report);
[[nodiscard]] HumanTable layout_values(const Report& report);
[[nodiscard]] HumanTable layout_absent(const Report& report);

// Throws Error(kRuntime) that names the place of a number that is not finite. Every writer begins
// with it.
void require_finite(const Report& report);

// "tinymoe-qwen3 (checkpoint)", "12.3 s on host, AMD ..., 2 threads, avx2": head lines for people.
[[nodiscard]] std::vector<std::string> headline(const Report& report);

// "not_measured" -> "not measured".
[[nodiscard]] std::string human_result(ItemResult result);

// "1 pass, 0 fail, 17 not measured, 1 not applicable".
[[nodiscard]] std::string count_results(const Acceptance& acceptance);

}  // namespace moe::report
