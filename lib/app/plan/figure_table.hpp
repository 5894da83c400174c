#pragma once

// A table of single figures in different units for people, and the same figures as metrics in base
// units for machines: each with its kind, its band and its source.

#include <optional>
#include <string>

#include "lib/report/report.hpp"

namespace moe::app {

struct Band {
  double low = 0.0;
  double high = 0.0;
};

class FigureTable {
 public:
  // The table stands in the report under `name` once finish() was called; metrics get ".SUFFIX"
  // when it is not empty.
  FigureTable(report::Report& report, std::string name, const std::string& title,
              std::string suffix = {});

  // `metric` without the suffix; a band becomes two metrics METRIC_low and METRIC_high.
  void add(const std::string& figure, const std::string& metric, report::MetricKind kind,
           const std::string& unit, double value, const std::string& source,
           std::optional<Band> band = std::nullopt);
  void add_absent(const std::string& figure, const std::string& metric, report::MetricKind kind,
                  const std::string& unit, const std::string& reason);
  // Words, not a number; no metric.
  void add_text(const std::string& figure, const std::string& value, const std::string& kind,
                const std::string& source);
  void finish();

 private:
  [[nodiscard]] std::string full_name(const std::string& metric) const;

  report::Report& report_;
  std::string name_;
  std::string suffix_;
  report::Table table_;
};

// "1,234,567 USD"; cents below 1000.
[[nodiscard]] std::string format_usd(double usd);

// "h200-sxm" -> "h200_sxm": as part of a metric's or table's name.
[[nodiscard]] std::string name_part(const std::string& text);

}  // namespace moe::app
