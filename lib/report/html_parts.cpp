#include "lib/report/html_parts.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "lib/report/json_io.hpp"
#include "lib/report/markup.hpp"

namespace moe::report {
namespace {

std::string header_row(const std::vector<HumanColumn>& columns) {
  std::string out = "<thead><tr>";
  for (const HumanColumn& column : columns) {
    out += fmt::format("<th{}>{}", column.is_number ? " class=\"n\"" : "",
                       escape_markup(column.label));
    if (!column.unit.empty()) out += fmt::format("<small>{}</small>", escape_markup(column.unit));
    out += "</th>";
  }
  return out + "</tr></thead>\n";
}

std::string body_cell(const HumanColumn& column, const std::string& text) {
  const bool is_long = !column.is_number && display_width(text) > 40;
  return fmt::format("<td{}>{}</td>",
                     column.is_number ? " class=\"n\""
                     : is_long        ? " class=\"wide\""
                                      : "",
                     escape_markup(text));
}

std::string boxed(const std::string& rows) {
  return "<div class=\"scroll\"><table>\n" + rows + "</table></div>\n";
}

// 160 x 18 units: a line from min to max, a box from p50 to p90, marks at p50 and p99.
std::string strip(const stats::Distribution& d) {
  if (!d.min || !d.max || !(*d.max > *d.min)) return {};
  const auto x = [&](double value) { return 2.0 + 156.0 * ((value - *d.min) / (*d.max - *d.min)); };
  const auto mark = [&](const char* style, double value) {
    return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"3\" y2=\"15\"/>", style,
                       x(value), x(value));
  };
  std::string out =
      "<svg class=\"strip\" viewBox=\"0 0 160 18\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-label=\"range\"><line class=\"range\" x1=\"2\" x2=\"158\" y1=\"9\" y2=\"9\"/>";
  if (d.p50.value && d.p90.value) {
    out += fmt::format("<rect class=\"body\" x=\"{:.1f}\" y=\"4\" width=\"{:.1f}\" height=\"10\"/>",
                       x(*d.p50.value), x(*d.p90.value) - x(*d.p50.value));
  }
  if (d.p50.value) out += mark("middle", *d.p50.value);
  if (d.p99.value) out += mark("tail", *d.p99.value);
  return out + "</svg>";
}

std::size_t column_index(const Table& table, const std::string& name) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](const Column& column) { return column.name == name; });
  return static_cast<std::size_t>(found - table.columns.begin());
}

std::string label_of_cell(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return printable(*text);
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "yes" : "no";
  const auto number = number_of(cell);
  return number ? human_number(*number) : "-";
}

// Distinct labels of a column in order of appearance.
std::vector<std::string> distinct_labels(const Table& table, std::size_t column) {
  std::vector<std::string> labels;
  std::map<std::string, bool> seen;
  for (const auto& row : table.rows) {
    std::string label = label_of_cell(row[column]);
    if (seen.emplace(label, true).second) labels.push_back(std::move(label));
  }
  return labels;
}

bool has_all_columns(const Chart& chart, const Table& table) {
  const auto there = [&](const std::string& name) {
    return column_index(table, name) < table.columns.size();
  };
  return there(chart.x) && std::all_of(chart.y.begin(), chart.y.end(), there) &&
         (chart.group_by.empty() || there(chart.group_by));
}

// The rows a chart draws: those that have a number to show, each with its place on the x axis. Rows
// of one series that share an x get places of their own, so that none hides another.
struct PlacedRow {
  const std::vector<Cell>* cells;
  std::size_t place;
  std::string group;
};

std::vector<PlacedRow> place_rows(const Table& table, std::size_t x,
                                  const std::vector<std::size_t>& y, std::size_t group,
                                  std::vector<std::string>& labels) {
  std::vector<PlacedRow> rows;
  std::map<std::pair<std::string, std::string>, int> num_seen;  // group, label
  std::map<std::pair<std::string, int>, std::size_t> places;    // label, how often seen before
  for (const auto& row : table.rows) {
    const bool has_number = std::any_of(
        y.begin(), y.end(), [&](std::size_t c) { return number_of(row[c]).has_value(); });
    if (!has_number) continue;
    const std::string label = label_of_cell(row[x]);
    std::string name = group < row.size() ? label_of_cell(row[group]) : std::string();
    const int repeat = num_seen[{name, label}]++;
    const auto [place, is_new] = places.emplace(std::pair{label, repeat}, labels.size());
    if (is_new) labels.push_back(label);
    rows.push_back({&row, place->second, std::move(name)});
  }
  return rows;
}

json::Json series_data(const std::vector<PlacedRow>& rows, const std::string& group, std::size_t y,
                       std::size_t num_places, double factor) {
  json::Json data = json::Json::array();
  for (std::size_t i = 0; i < num_places; ++i) data.push_back(nullptr);
  for (const PlacedRow& row : rows) {
    const auto number = number_of((*row.cells)[y]);
    if (number && row.group == group) data[row.place] = *number / factor;
  }
  return data;
}

double largest_magnitude(const Table& table, std::size_t column) {
  double largest = 0.0;
  for (const auto& row : table.rows) {
    largest = std::max(largest, std::abs(number_of(row[column]).value_or(0.0)));
  }
  return largest;
}

// The first two units of the y columns, each with one scale for all its series: an axis each.
struct Axis {
  std::string unit;
  Scale scale;
};

std::vector<Axis> make_axes(const Table& table, const std::vector<std::size_t>& y) {
  std::map<std::string, double> largest;
  for (const std::size_t column : y) {
    double& most = largest[table.columns[column].unit];
    most = std::max(most, largest_magnitude(table, column));
  }
  std::vector<Axis> axes;
  for (const std::size_t column : y) {
    const std::string& unit = table.columns[column].unit;
    const bool is_known =
        std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.unit == unit; });
    if (!is_known && axes.size() < 2) axes.push_back({unit, human_scale(unit, largest[unit])});
  }
  return axes;
}

json::Json chart_to_data(const Chart& chart, const Table& table) {
  const std::size_t x = column_index(table, chart.x);
  const std::size_t group =
      chart.group_by.empty() ? table.columns.size() : column_index(table, chart.group_by);
  std::vector<std::size_t> y;
  for (const std::string& name : chart.y) y.push_back(column_index(table, name));
  std::vector<std::string> labels;
  const std::vector<PlacedRow> rows = place_rows(table, x, y, group, labels);
  const std::vector<std::string> groups =
      chart.group_by.empty() ? std::vector<std::string>{""} : distinct_labels(table, group);
  const std::vector<Axis> axes = make_axes(table, y);
  json::Json series = json::Json::array();
  for (const std::size_t column : y) {
    const Column& of = table.columns[column];
    const auto axis = std::find_if(axes.begin(), axes.end(),
                                   [&](const Axis& one) { return one.unit == of.unit; });
    if (axis == axes.end()) continue;  // a third unit has no axis; the table shows it
    for (const std::string& name : groups) {
      std::string label = human_label(of.name, of.unit);
      if (!chart.group_by.empty()) {
        const std::string by = human_label(chart.group_by, table.columns[group].unit);
        label = y.size() > 1 ? fmt::format("{}, {} {}", label, by, name)
                             : fmt::format("{} {}", by, name);
      }
      series.push_back(
          {{"label", label},
           {"axis", axis - axes.begin()},
           {"data", series_data(rows, name, column, labels.size(), axis->scale.factor)}});
    }
  }
  json::Json units = json::Json::array();
  for (const Axis& axis : axes) units.push_back(axis.scale.unit);
  return {{"kind", name_of(chart.kind)},
          {"x", human_label(chart.x, table.columns[x].unit)},
          {"labels", labels},
          {"units", units},
          {"series", series}};
}

// The charts report.js draws, with their tables.
std::vector<std::pair<const Chart*, const Table*>> drawable(const Report& report) {
  std::vector<std::pair<const Chart*, const Table*>> out;
  for (const Chart& chart : report.charts) {
    const auto table = report.tables.find(chart.table);
    if (chart.kind == ChartKind::kHeatmap || table == report.tables.end()) continue;
    if (has_all_columns(chart, table->second)) out.emplace_back(&chart, &table->second);
  }
  return out;
}

void append_pairs(std::string& out, const json::Json& value, const std::string& path) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, member] : value.items()) {
      append_pairs(out, member, path.empty() ? key : fmt::format("{}.{}", path, key));
    }
    return;
  }
  std::string text = value.is_string() ? value.get<std::string>()
                     : value.is_null()
                         ? "-"
                         : value.dump(-1, ' ', false, json::Json::error_handler_t::replace);
  out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_markup(path), escape_markup(text));
}

}  // namespace

std::string html_table(const HumanTable& table) {
  if (table.rows.empty()) return {};
  std::string rows = header_row(table.columns) + "<tbody>\n";
  for (const auto& row : table.rows) {
    rows += "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) rows += body_cell(table.columns[c], row[c]);
    rows += "</tr>\n";
  }
  std::string out = boxed(rows + "</tbody>\n");
  if (!table.note.empty())
    out += fmt::format("<p class=\"note\">{}</p>\n", escape_markup(table.note));
  return out;
}

std::string html_distributions(const Report& report) {
  const HumanTable table = layout_distributions(report);
  if (table.rows.empty()) return {};
  std::vector<HumanColumn> columns = table.columns;
  columns.push_back({"min to max", "", false});
  std::string rows = header_row(columns) + "<tbody>\n";
  std::size_t index = 0;
  for (const auto& [name, metric] : report.metrics) {
    if (!metric.distribution || is_of_one_point(name)) continue;
    rows += "<tr>";
    const auto& row = table.rows[index++];
    for (std::size_t c = 0; c < row.size(); ++c) rows += body_cell(table.columns[c], row[c]);
    rows += fmt::format("<td>{}</td></tr>\n", strip(*metric.distribution));
  }
  std::string out = boxed(rows + "</tbody>\n");
  out +=
      "<p class=\"note\">Line: minimum to maximum. Box: p50 to p90. Marks: p50, and p99 where the "
      "samples support it. ";
  return out + escape_markup(table.note) + "</p>\n";
}

std::string html_heatmap(const Chart& chart, const Table& table) {
  if (chart.y.size() != 2 || !has_all_columns(chart, table)) return {};
  const std::size_t x = column_index(table, chart.x);
  const std::size_t y = column_index(table, chart.y[0]);
  const std::size_t value = column_index(table, chart.y[1]);
  std::map<std::pair<std::string, std::string>, double> at;
  double largest = 0.0;
  for (const auto& row : table.rows) {
    if (const auto number = number_of(row[value])) {
      at[{label_of_cell(row[y]), label_of_cell(row[x])}] = *number;
      largest = std::max(largest, std::abs(*number));
    }
  }
  const Scale scale = human_scale(table.columns[value].unit, largest);
  const std::vector<std::string> labels = distinct_labels(table, x);
  std::string rows = fmt::format("<thead><tr><th>{} \\ {}</th>",
                                 escape_markup(human_label(chart.y[0], table.columns[y].unit)),
                                 escape_markup(human_label(chart.x, table.columns[x].unit)));
  for (const std::string& label : labels) rows += fmt::format("<th>{}</th>", escape_markup(label));
  rows += "</tr></thead>\n<tbody>\n";
  for (const std::string& row_label : distinct_labels(table, y)) {
    rows += fmt::format("<tr><th>{}</th>", escape_markup(row_label));
    for (const std::string& label : labels) {
      const auto found = at.find({row_label, label});
      if (found == at.end()) {
        rows += "<td class=\"none\">-</td>";
        continue;
      }
      const double share = largest > 0.0 ? std::abs(found->second) / largest : 0.0;
      rows += fmt::format("<td{} style=\"--v:{:.2f}\">{}</td>", share > 0.55 ? " class=\"hi\"" : "",
                          share, escape_markup(human_number(found->second / scale.factor)));
    }
    rows += "</tr>\n";
  }
  return fmt::format("<figure class=\"heat\"><figcaption>{}{}</figcaption>\n{}</figure>\n",
                     escape_markup(chart.title),
                     scale.unit.empty() ? "" : " (" + escape_markup(scale.unit) + ")",
                     boxed(rows + "</tbody>\n"));
}

std::string html_canvases(const Report& report) {
  std::string out;
  const auto charts = drawable(report);
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const std::string title = escape_markup(charts[i].first->title);
    out += fmt::format(
        "<figure><figcaption>{}</figcaption><div class=\"plot\"><canvas "
        "id=\"chart-{}\" role=\"img\" aria-label=\"{}\"></canvas></div></figure>\n",
        title, i, title);
  }
  return out.empty() ? out : "<div class=\"charts\">\n" + out + "</div>\n";
}

std::string chart_data(const Report& report) {
  json::Json list = json::Json::array();
  for (const auto& [chart, table] : drawable(report)) list.push_back(chart_to_data(*chart, *table));
  return escape_script_json(list.dump(-1, ' ', false, json::Json::error_handler_t::replace));
}

std::string html_pairs(const json::Json& object) {
  std::string rows;
  append_pairs(rows, object, "");
  return "<div class=\"scroll\"><table class=\"pairs\"><tbody>\n" + rows +
         "</tbody></table></div>\n";
}

}  // namespace moe::report
