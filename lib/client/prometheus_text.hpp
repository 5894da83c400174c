#pragma once

// The text of a /metrics page (Prometheus text format 0.0.4, OpenMetrics 1.0 as far as servers use
// it). A line that is not understood is counted and passed over: a page of thousands of lines is
// not lost to one.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moe::client {

struct MetricSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0.0;  // NaN and infinities as they stand on the page

  // Empty when there is no such label.
  [[nodiscard]] std::string_view label(std::string_view key) const;
};

struct MetricsPage {
  std::vector<MetricSample> samples;
  std::int64_t num_bad_lines = 0;

  [[nodiscard]] bool has_prefix(std::string_view prefix) const;
  // Over all finite samples of this name, whatever their labels. Absent when there is none.
  [[nodiscard]] std::optional<double> sum(std::string_view name) const;
  [[nodiscard]] std::optional<double> mean(std::string_view name) const;
};

// A bucket's samples are those up to and including its end.
struct HistogramBucket {
  double end = 0.0;    // infinity for the last
  double count = 0.0;  // cumulative
};

// Sum of all series of one histogram or summary.
struct MetricHistogram {
  double count = 0.0;
  double sum = 0.0;
  std::vector<HistogramBucket> buckets;  // by end; empty for a summary

  [[nodiscard]] std::optional<double> mean() const;
  // The bucket that holds the p-quantile: (begin, end]. Absent without samples or buckets.
  [[nodiscard]] std::optional<std::pair<double, double>> quantile_bucket(double p) const;
};

// Lines beyond this many are not read.
inline constexpr std::size_t kMaxMetricLines = 200000;

[[nodiscard]] MetricsPage parse_metrics_page(std::string_view text);

// Absent when the page has no NAME_count.
[[nodiscard]] std::optional<MetricHistogram> histogram_of(const MetricsPage& page,
                                                          std::string_view name);

// What was added between two readings. Absent when a count went down: the server was restarted.
[[nodiscard]] std::optional<MetricHistogram> added(const MetricHistogram& before,
                                                   const MetricHistogram& after);

}  // namespace moe::client
