#include <algorithm>

#include <fmt/format.h>

#include "lib/report/embedded.hpp"
#include "lib/report/html_parts.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/markup.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {
namespace {

std::string heading(const std::string& title) {
  return fmt::format("<h2>{}</h2>\n", escape_markup(title));
}

std::string badge(const std::string& style, const std::string& text) {
  return fmt::format("<span class=\"badge {}\">{}</span>", style, escape_markup(text));
}

std::string head(const Report& report) {
  const std::vector<std::string> lines = headline(report);
  std::string out = fmt::format("<header>\n<h1>{}</h1>\n", escape_markup(lines.front()));
  for (std::size_t i = 1; i < lines.size(); ++i) {
    out += fmt::format("<p>{}</p>\n", escape_markup(lines[i]));
  }
  out += "<div class=\"badges\">";
  out += report.validity.valid ? badge("pass", "valid run") : badge("fail", "not a valid run");
  if (report.validity.partial) out += badge("warning", "partial: stopped early");
  if (!report.acceptance.checklist_version.empty()) {
    out += badge(report.acceptance.verdict, "acceptance: " + report.acceptance.verdict);
  }
  return out + "</div>\n</header>\n";
}

std::string card(const std::string& name, const Metric& metric) {
  std::string value = "-";
  std::string more = metric.absent_reason;
  if (metric.value) {
    value = human_value(*metric.value, metric.unit);
    more = name_of(metric.kind);
  } else if (metric.distribution) {
    const stats::Distribution& d = *metric.distribution;
    const bool has_median = d.p50.value.has_value();
    const auto middle = has_median ? d.p50.value : d.mean;
    if (middle) value = human_value(*middle, metric.unit);
    more = fmt::format("{} of {} samples, {}", has_median ? "median" : "mean", d.count,
                       name_of(metric.kind));
  }
  // The unit in smaller type: "12.3" and "ms".
  std::string shown = escape_markup(value);
  if (const auto blank = shown.find(' '); blank != std::string::npos) {
    shown = fmt::format("{}<span class=\"unit\">{}</span>", shown.substr(0, blank),
                        shown.substr(blank));
  }
  return fmt::format(
      "<div class=\"card\"><div class=\"label\">{}</div><div class=\"value\">{}</div>"
      "<div class=\"more\">{}</div></div>\n",
      escape_markup(human_label(name, metric.unit)), shown, escape_markup(more));
}

std::string cards(const Report& report) {
  std::string out;
  for (const std::string& name : report.highlights) {
    const auto found = report.metrics.find(name);
    if (found != report.metrics.end()) out += card(name, found->second);
  }
  return out.empty() ? out : "<div class=\"cards\">\n" + out + "</div>\n";
}

std::string findings(const Report& report) {
  if (report.findings.empty()) return {};
  std::string out = heading("Findings");
  for (const Finding& finding : report.findings) {
    out += fmt::format("<div class=\"finding\">{} {} <code>{}</code>",
                       badge(name_of(finding.severity), name_of(finding.severity)),
                       escape_markup(finding.message), escape_markup(finding.code));
    if (!finding.advice.empty()) {
      out += fmt::format("<p class=\"advice\">{}</p>", escape_markup(finding.advice));
    }
    out += "</div>\n";
  }
  return out;
}

std::string charts(const Report& report) {
  if (report.charts.empty()) return {};
  std::string out = heading("Charts");
  if (!embedded::chart_js().empty()) {
    out += html_canvases(report);
    out +=
        "<noscript><p class=\"note\">Charts need JavaScript; every figure is in the tables "
        "below.</p></noscript>\n";
  } else {
    out +=
        "<p class=\"note\">This program was built without Chart.js, so the page has no line and "
        "bar charts; every figure is in the tables below.</p>\n";
  }
  for (const Chart& chart : report.charts) {
    const auto table = report.tables.find(chart.table);
    if (chart.kind != ChartKind::kHeatmap || table == report.tables.end()) continue;
    out += html_heatmap(chart, table->second);
  }
  return out;
}

std::string section(const HumanTable& table) {
  return table.rows.empty() ? std::string() : heading(table.title) + html_table(table);
}

std::string tables(const Report& report) {
  std::string out;
  for (const auto& [name, table] : report.tables) {
    const HumanTable layout = layout_table(name, table);
    if (table.rows.empty()) continue;
    if (table.is_detail) {
      out += fmt::format("<details><summary>{} ({} rows)</summary>\n{}</details>\n",
                         escape_markup(layout.title), table.rows.size(), html_table(layout));
    } else {
      out += fmt::format("<h3>{}</h3>\n{}", escape_markup(layout.title), html_table(layout));
    }
  }
  return out.empty() ? out : heading("Tables") + out;
}

std::string acceptance(const Acceptance& acceptance) {
  if (acceptance.checklist_version.empty()) return {};
  std::string out =
      heading("Acceptance") +
      fmt::format("<p>{} Checklist {}: {}.</p>\n", badge(acceptance.verdict, acceptance.verdict),
                  escape_markup(acceptance.checklist_version), count_results(acceptance));
  out +=
      "<div class=\"scroll\"><table><thead><tr><th>item</th><th>result</th><th>rule</th>"
      "<th>what was seen</th></tr></thead>\n<tbody>\n";
  for (const AcceptanceItem& item : acceptance.items) {
    out +=
        fmt::format("<tr><td>{}<br><code>{}</code></td><td>{}</td><td>{}</td><td class=\"wide\">{}",
                    escape_markup(item.title), escape_markup(item.id),
                    badge(name_of(item.result), human_result(item.result)),
                    escape_markup(item.rule), escape_markup(item.reason));
    if (item.result == ItemResult::kFail && !item.advice.empty()) {
      out += fmt::format("<p class=\"advice\">{}</p>", escape_markup(item.advice));
    }
    out += "</td></tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string validity(const Validity& validity) {
  if (validity.reasons.empty()) return {};
  std::string out = heading("Validity") + "<ul>\n";
  for (const std::string& reason : validity.reasons) {
    out += fmt::format("<li>{}</li>\n", escape_markup(reason));
  }
  return out + "</ul>\n";
}

std::string definitions(const Report& report) {
  HumanTable table;
  table.columns = {
      {"metric", "", false}, {"unit", "", false}, {"kind", "", false}, {"definition", "", false}};
  for (const auto& [name, metric] : report.metrics) {
    if (!metric.how.empty() && !is_of_one_point(name))
      table.rows.push_back({name, metric.unit, name_of(metric.kind), metric.how});
  }
  if (table.rows.empty()) return {};
  return "<details><summary>Definitions of the metrics</summary>\n" + html_table(table) +
         "</details>\n";
}

std::string details(const std::string& title, const json::Json& object) {
  if (!object.is_object() || object.empty()) return {};
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", escape_markup(title),
                     html_pairs(object));
}

std::string scripts(const Report& report) {
  if (embedded::chart_js().empty() || report.charts.empty()) return {};
  // None of the library's text may end the element that holds it.
  std::string library(embedded::chart_js());
  for (std::size_t at = 0; (at = library.find("</script", at)) != std::string::npos; at += 8) {
    library.replace(at, 8, "<\\/script");
  }
  return fmt::format(
      "<script id=\"chart-data\" type=\"application/json\">{}</script>\n"
      "<script>{}</script>\n<script>{}</script>\n",
      chart_data(report), library, embedded::report_js());
}

}  // namespace

std::string write_html(const Report& report) {
  require_finite(report);
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";
  out += fmt::format("<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
                     escape_markup(headline(report).front()), embedded::report_css());
  out += head(report) + cards(report) + findings(report);
  if (const std::string part = html_distributions(report); !part.empty()) {
    out += heading("Distributions") + part;
  }
  out += charts(report);
  out += section(layout_values(report));
  out += tables(report);
  out += section(layout_absent(report));
  out += acceptance(report.acceptance) + validity(report.validity);
  out += heading("How this was made") + definitions(report);
  out += details("Run", report.run) + details("Tool", report.tool);
  out += details("Subject", report.subject) + details("Settings", report.settings);
  out += details("Environment", report.environment);
  out += fmt::format(
      "<footer>{} version {}. Percentiles by nearest rank; intervals from order "
      "statistics.</footer>\n",
      kSchemaName, kSchemaVersion);
  return out + scripts(report) + "</body>\n</html>\n";
}

}  // namespace moe::report
