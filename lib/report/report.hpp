#pragma once

// The report document of all four tools (reports/schema/report.schema.json). Plain data: tools fill
// it, writers print it, the checklist reads it. It knows no engine. Units are base units, spelled
// in the metric's name.
//
// The one header that includes the whole of nlohmann/json: a report holds JSON objects by value.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::report {

inline constexpr const char* kSchemaName = "moekit-report";
inline constexpr int kSchemaVersion = 1;

// What a number rests on.
enum class MetricKind : std::uint8_t { kMeasured, kReplayed, kModelled, kAssumed };

struct Metric {
  MetricKind kind = MetricKind::kMeasured;
  std::string unit;  // "s", "bytes", "tokens/s", "1" for a ratio or a count
  // Exactly one of: a value, a distribution, or neither with a reason.
  std::optional<double> value;
  std::optional<stats::Distribution> distribution;
  std::string absent_reason;
  std::string how;  // definition, in words: what was timed or computed, from what
};

using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

struct Column {
  std::string name;
  std::string unit;  // empty for text
};

struct Table {
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  // Long (per layer and expert, per request): the text table and Markdown give its size only, the
  // other formats all of it.
  bool is_detail = false;
};

// kTornado: horizontal bars around zero, for what moves a result down and up.
enum class ChartKind : std::uint8_t { kBar, kLine, kStacked, kTornado, kHeatmap };

// How the HTML report draws a table. Names are those of Report::tables and of its columns.
struct Chart {
  std::string title;
  ChartKind kind = ChartKind::kBar;
  std::string table;
  // Bar, line and stacked: x is the category or abscissa, each of y is one series. Heat map: x is
  // the column whose values become the map's columns, y is {the column of its rows, the value}.
  std::string x;
  std::vector<std::string> y;
  // Bar and line: a column whose values split the rows into series of their own ("prompt_tokens" in
  // a sweep of batch and prompt). Empty: none.
  std::string group_by;
};

enum class Severity : std::uint8_t { kInfo, kWarning, kError };

struct Finding {
  std::string code;  // "routing.collapsed", stable, lower case with dots
  Severity severity = Severity::kInfo;
  std::string message;
  std::string advice;
  json::Json evidence;  // object or null
};

struct Validity {
  bool valid = true;
  bool partial = false;  // stopped early; what is there is right but not all
  std::vector<std::string> reasons;
};

enum class ItemResult : std::uint8_t { kPass, kFail, kNotMeasured, kNotApplicable };

struct AcceptanceItem {
  std::string id;
  std::string title;
  ItemResult result = ItemResult::kNotMeasured;
  std::optional<double> measured;  // what the rule's first comparison read
  std::string unit;                // of measured
  std::string rule;                // "busbw >= 0.80 x ceiling", with the threshold in force
  std::string reason;              // why not measured, or what was seen
  std::string advice;              // when it failed
};

struct Acceptance {
  std::string checklist_version;
  std::string verdict = "incomplete";  // pass, fail, incomplete
  std::vector<AcceptanceItem> items;
};

struct Report {
  // tool, run, environment, subject, settings: free-form objects whose keys the schema lists.
  json::Json tool;
  json::Json run;
  json::Json environment;
  json::Json subject;
  json::Json settings;
  std::map<std::string, Metric> metrics;
  std::map<std::string, Table> tables;
  std::vector<Chart> charts;
  std::vector<std::string> highlights;  // metrics a reader wants first, in that order
  std::vector<Finding> findings;
  Validity validity;
  Acceptance acceptance;
};

}  // namespace moe::report
