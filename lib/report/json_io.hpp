#pragma once

// A report as JSON (reports/schema/report.schema.json) and back.

#include <string>
#include <string_view>
#include <vector>

#include "lib/json/schema_check.hpp"
#include "lib/report/report.hpp"

namespace moe::report {

// Keys in the order of the schema. Does not look for NaN: json::dump refuses it.
[[nodiscard]] json::Json to_json(const Report& report);

// Checks against the schema, then fills a Report: to_json(from_json(j)) == j. Throws Error(kInput)
// that names the place, or the schema version when it is not one this build reads.
[[nodiscard]] Report from_json(const json::Json& document, const std::string& where);

// Parses and reads; hostile text is refused with Error(kInput). `where` names it in messages.
[[nodiscard]] Report parse_report(std::string_view text, const std::string& where);
[[nodiscard]] Report read_report(const std::string& path);

// Violations of the report schema, and of what a schema cannot say: rows as wide as their table,
// charts that name existing columns. Empty when the document is a valid report.
[[nodiscard]] std::vector<json::SchemaError> check_report(const json::Json& document);

// The same document with every field that the schema marks volatile replaced by null, so that two
// runs of one input can be compared byte by byte. Measured figures are volatile, too; a table's
// rows and a finding's evidence are masked when the report holds any measured metric.
[[nodiscard]] json::Json mask_volatile(const json::Json& document);

// Names used in JSON and in every writer.
[[nodiscard]] const char* name_of(MetricKind kind);
[[nodiscard]] const char* name_of(Severity severity);
[[nodiscard]] const char* name_of(ItemResult result);
[[nodiscard]] const char* name_of(ChartKind kind);

}  // namespace moe::report
