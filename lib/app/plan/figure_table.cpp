#include "lib/app/plan/figure_table.hpp"

#include <cctype>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lib/app/table_builder.hpp"
#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"

namespace moe::app {

std::string name_part(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return out;
}

std::string format_usd(double usd) {
  if (usd == 0.0) return "0 USD";
  const double magnitude = std::abs(usd);
  const char* sign = usd < 0.0 ? "-" : "";
  if (magnitude < 1000.0)
    return fmt::format("{}{:.{}f} USD", sign, magnitude, magnitude < 1 ? 4 : 2);
  std::string digits = fmt::format("{:.0f}", magnitude);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return fmt::format("{}{} USD", sign, digits);
}

FigureTable::FigureTable(report::Report& report, std::string name, const std::string& title,
                         std::string suffix)
    : report_(report), name_(std::move(name)), suffix_(std::move(suffix)) {
  table_ = make_table(title,
                      {{"figure", ""}, {"value", ""}, {"band", ""}, {"kind", ""}, {"source", ""}});
}

std::string FigureTable::full_name(const std::string& metric) const {
  return suffix_.empty() ? metric : fmt::format("{}.{}", metric, suffix_);
}

void FigureTable::add(const std::string& figure, const std::string& metric, report::MetricKind kind,
                      const std::string& unit, double value, const std::string& source,
                      std::optional<Band> band) {
  report_.metrics[full_name(metric)] = value_metric(kind, unit, value, figure + ": " + source);
  std::string range;
  if (band) {
    range = fmt::format("{} to {}", report::human_value(band->low, unit),
                        report::human_value(band->high, unit));
    report_.metrics[full_name(metric + "_low")] =
        value_metric(kind, unit, band->low, figure + ", low end of the band: " + source);
    report_.metrics[full_name(metric + "_high")] =
        value_metric(kind, unit, band->high, figure + ", high end of the band: " + source);
  }
  table_.rows.push_back({figure,
                         unit == "USD" ? format_usd(value) : report::human_value(value, unit),
                         range, std::string(name_of(kind)), source});
}

void FigureTable::add_absent(const std::string& figure, const std::string& metric,
                             report::MetricKind kind, const std::string& unit,
                             const std::string& reason) {
  report_.metrics[full_name(metric)] = absent_metric(kind, unit, reason, figure);
  table_.rows.push_back(
      {figure, std::string("-"), std::string(), std::string(name_of(kind)), reason});
}

void FigureTable::add_text(const std::string& figure, const std::string& value,
                           const std::string& kind, const std::string& source) {
  table_.rows.push_back({figure, value, std::string(), kind, source});
}

void FigureTable::finish() {
  report_.tables[name_] = std::move(table_);
}

}  // namespace moe::app
