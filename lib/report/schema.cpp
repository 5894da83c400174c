// What the report schema says about a document: is it valid, and which of its fields may differ
// between two runs.

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "lib/json/write.hpp"
#include "lib/report/embedded.hpp"
#include "lib/report/json_io.hpp"

namespace moe::report {
namespace {

using json::Json;
using json::SchemaError;

const Json& report_schema() {
  static const Json schema = json::parse(embedded::report_schema(), "report.schema.json");
  return schema;
}

std::set<std::string> column_names(const Json& table) {
  std::set<std::string> names;
  for (const Json& column : table["columns"]) names.insert(column["name"].get<std::string>());
  return names;
}

void check_tables(const Json& tables, std::vector<SchemaError>& errors) {
  for (const auto& [name, table] : tables.items()) {
    const std::string at = json::pointer_to("/tables", name);
    const std::size_t width = table["columns"].size();
    if (column_names(table).size() != width) {
      errors.push_back({at + "/columns", "two columns have the same name"});
    }
    for (std::size_t i = 0; i < table["rows"].size(); ++i) {
      if (table["rows"][i].size() == width) continue;
      errors.push_back({fmt::format("{}/rows/{}", at, i),
                        fmt::format("expected {} cells, one a column, found {}", width,
                                    table["rows"][i].size())});
    }
  }
}

void check_charts(const Json& document, std::vector<SchemaError>& errors) {
  const Json& tables = document["tables"];
  for (std::size_t i = 0; i < document["charts"].size(); ++i) {
    const Json& chart = document["charts"][i];
    const std::string at = fmt::format("/charts/{}", i);
    const auto table = tables.find(chart["table"].get<std::string>());
    if (table == tables.end()) {
      errors.push_back({at + "/table", fmt::format("no table {}", chart["table"].dump())});
      continue;
    }
    const std::set<std::string> names = column_names(*table);
    const auto check_column = [&](const Json& column, const std::string& where) {
      if (names.count(column.get<std::string>()) != 0) return;
      errors.push_back(
          {where, fmt::format("no column {} in table {}", column.dump(), chart["table"].dump())});
    };
    check_column(chart["x"], at + "/x");
    for (const Json& column : chart["y"]) check_column(column, at + "/y");
    if (!chart["group_by"].is_null()) check_column(chart["group_by"], at + "/group_by");
    if (chart["kind"] == "heatmap" && chart["y"].size() != 2) {
      errors.push_back({at + "/y", "a heat map has two: the column of its rows, the value"});
    }
  }
}

bool is_marked(const Json& schema, bool has_measured) {
  return schema.value("x-volatile", false) ||
         (has_measured && schema.value("x-volatile-when-measured", false));
}

const Json& resolve(const Json& schema) {
  const auto ref = schema.find("$ref");
  if (ref == schema.end()) return schema;
  const std::string name = ref->get<std::string>().substr(std::string("#/$defs/").size());
  return report_schema()["$defs"][name];
}

void mask(Json& value, const Json& schema, bool has_measured) {
  if (!schema.is_object()) return;
  // A mark may stand beside a $ref.
  if (is_marked(schema, has_measured)) {
    value = nullptr;
    return;
  }
  const Json& rules = resolve(schema);
  if (is_marked(rules, has_measured)) {
    value = nullptr;
  } else if (value.is_object()) {
    // A metric says of itself whether it is measured.
    const bool measured = value.contains("kind") && value.contains("how")
                              ? value["kind"] == "measured"
                              : has_measured;
    for (auto& [key, member] : value.items()) {
      if (rules.contains("properties") && rules["properties"].contains(key)) {
        mask(member, rules["properties"][key], measured);
      } else if (rules.contains("additionalProperties")) {
        mask(member, rules["additionalProperties"], measured);
      }
    }
  } else if (value.is_array() && rules.contains("items")) {
    for (Json& member : value) mask(member, rules["items"], has_measured);
  }
}

}  // namespace

std::vector<SchemaError> check_report(const Json& document) {
  std::vector<SchemaError> errors = json::check_schema(document, report_schema());
  if (!errors.empty()) return errors;
  check_tables(document["tables"], errors);
  check_charts(document, errors);
  for (const Json& name : document["highlights"]) {
    if (document["metrics"].contains(name.get<std::string>())) continue;
    errors.push_back({"/highlights", fmt::format("no metric {}", name.dump())});
  }
  return errors;
}

Json mask_volatile(const Json& document) {
  const Json& metrics = document["metrics"];
  const bool has_measured = std::any_of(metrics.begin(), metrics.end(), [](const Json& metric) {
    return metric["kind"] == "measured";
  });
  Json masked = document;
  mask(masked, report_schema(), has_measured);
  return masked;
}

}  // namespace moe::report
