#pragma once

// Spread of load over time, for alarm rules: figures of the last so many seconds, window by window.

#include <string>
#include <vector>

#include "lib/balance/alarms.hpp"
#include "lib/balance/placement.hpp"
#include "lib/routing/expert_counts.hpp"

namespace moe::app {

class LoadSeries {
 public:
  // assumed_window_s > 0: windows without time stamps take that long. Throws Error(kInput) when
  // windows have neither. References outlive this.
  LoadSeries(const routing::ExpertCounts& counts, const balance::Placement& placement,
             const balance::Cluster& cluster, double assumed_window_s);

  // "gpu_load_sigma_ratio, ...".
  [[nodiscard]] static std::string metric_names();

  // One sample a window: the metric of the counts of (t - over, t], absent before that much time
  // has passed and without load. Throws Error(kUsage) for a metric that is not known.
  [[nodiscard]] std::vector<balance::AlarmSample> samples(const std::string& metric,
                                                          double over_s) const;

 private:
  [[nodiscard]] std::optional<double> value(const std::string& metric,
                                            const std::vector<double>& counts) const;

  const routing::ExpertCounts* counts_;
  const balance::Placement* placement_;
  const balance::Cluster* cluster_;
  std::vector<double> begin_s_;
  std::vector<double> end_s_;
};

}  // namespace moe::app
