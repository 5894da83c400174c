#pragma once

// A report as text: one function, one file, one format each.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/report/report.hpp"

namespace moe::report {

enum class Format : std::uint8_t {
  kText,
  kJson,
  kMarkdown,
  kCsv,
  kHtml,
  kJunit,
  kPrometheus,
};

// "text", "json", "markdown", "csv", "html", "junit", "prometheus".
[[nodiscard]] const std::vector<std::string>& format_names();
[[nodiscard]] std::optional<Format> parse_format(std::string_view name);

// By the name's ending: .json .md .csv .html .xml .prom .txt. nullopt for any other.
[[nodiscard]] std::optional<Format> format_of_path(std::string_view path);

// Every writer: UTF-8 text that ends in a newline. write_json and the others that print numbers
// throw Error(kRuntime) when a number is not finite.
[[nodiscard]] std::string write(const Report& report, Format format);

// What a person sees on a terminal: aligned columns, human units, findings with advice, verdict.
[[nodiscard]] std::string write_text(const Report& report);
[[nodiscard]] std::string write_json(const Report& report);
[[nodiscard]] std::string write_markdown(const Report& report);

// All tables, then the metrics, as one RFC 4180 file without comments: each table is a block,
// blocks are separated by an empty line, the first column of every row is the table's name, the
// first row of a block holds the column names with their units ("ttft_s" stays, "bytes_read
// [bytes]").
[[nodiscard]] std::string write_csv(const Report& report);

// One table alone, with no name column: what spreadsheets and scripts read directly. "metrics"
// names the metrics. Throws Error(kUsage) when there is no such table; the message lists those
// there are.
[[nodiscard]] std::string write_csv_table(const Report& report, const std::string& table);

// One self-contained page: no request leaves it. Charts need Chart.js at build time; without it the
// page says so and shows the tables alone.
[[nodiscard]] std::string write_html(const Report& report);

// JUnit XML: each checklist item and the validity are a test case; not_measured and not_applicable
// are skipped.
[[nodiscard]] std::string write_junit(const Report& report);

// Prometheus text exposition format 0.0.4: gauges named moekit_<metric>, statistic as a label.
[[nodiscard]] std::string write_prometheus(const Report& report);

}  // namespace moe::report
