#include "lib/app/table_builder.hpp"

#include <utility>

#include "lib/base/check.hpp"

namespace moe::app {

report::Metric value_metric(report::MetricKind kind, const std::string& unit, double value,
                            const std::string& how) {
  report::Metric metric;
  metric.kind = kind;
  metric.unit = unit;
  metric.value = value;
  metric.how = how;
  return metric;
}

report::Metric absent_metric(report::MetricKind kind, const std::string& unit,
                             const std::string& reason, const std::string& how) {
  MOE_CHECK(!reason.empty());
  report::Metric metric;
  metric.kind = kind;
  metric.unit = unit;
  metric.absent_reason = reason;
  metric.how = how;
  return metric;
}

report::Metric sampled_metric(const std::string& unit, std::span<const double> samples,
                              const std::string& absent_reason, const std::string& how) {
  if (samples.empty()) {
    return absent_metric(report::MetricKind::kMeasured, unit, absent_reason, how);
  }
  report::Metric metric;
  metric.kind = report::MetricKind::kMeasured;
  metric.unit = unit;
  metric.distribution = stats::summarize(samples);
  metric.how = how;
  return metric;
}

report::Table make_table(const std::string& title, std::vector<report::Column> columns) {
  report::Table table;
  table.title = title;
  table.columns = std::move(columns);
  return table;
}

}  // namespace moe::app
