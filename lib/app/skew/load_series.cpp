#include "lib/app/skew/load_series.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/balance/balancedness.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

constexpr const char* kMetrics[] = {"gpu_load_sigma_ratio", "gpu_load_sigma_ratio_worst_layer",
                                    "balancedness_mean",    "balancedness_worst",
                                    "balancedness_p10",     "expert_load_max_over_mean"};

// Standard deviation / mean, of time where GPUs differ in speed.
double sigma_ratio(const std::vector<double>& loads, const std::vector<double>& speeds) {
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t gpu = 0; gpu < loads.size(); ++gpu) {
    const double time = loads[gpu] / speeds[gpu];
    sum += time;
    squares += time * time;
  }
  const double count = static_cast<double>(loads.size());
  const double mean = sum / count;
  if (mean <= 0.0) return 0.0;
  return std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
}

}  // namespace

LoadSeries::LoadSeries(const routing::ExpertCounts& counts, const balance::Placement& placement,
                       const balance::Cluster& cluster, double assumed_window_s)
    : counts_(&counts), placement_(&placement), cluster_(&cluster) {
  for (std::size_t i = 0; i < counts.windows.size(); ++i) {
    const routing::Window& window = counts.windows[i];
    if (assumed_window_s > 0.0) {
      begin_s_.push_back(assumed_window_s * static_cast<double>(i));
      end_s_.push_back(assumed_window_s * static_cast<double>(i + 1));
    } else if (window.begin_s && window.end_s) {
      begin_s_.push_back(*window.begin_s);
      end_s_.push_back(*window.end_s);
    } else {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: no time stamps; give --window in tokens or steps and "
                              "--assumed-window-s",
                              counts.info.name));
    }
  }
}

std::string LoadSeries::metric_names() {
  return fmt::format("{}", fmt::join(std::begin(kMetrics), std::end(kMetrics), ", "));
}

std::optional<double> LoadSeries::value(const std::string& metric,
                                        const std::vector<double>& counts) const {
  balance::LoadMatrix loads{.num_layers = placement_->num_layers,
                            .num_experts = placement_->num_experts,
                            .values = counts};
  if (balance::total(counts) <= 0.0) return std::nullopt;
  if (metric.rfind("balancedness", 0) == 0) {
    const auto summary = balance::balance_of(*placement_, loads, cluster_->speed);
    if (metric == "balancedness_mean") return summary.mean;
    return metric == "balancedness_worst" ? summary.worst : summary.p10;
  }
  if (metric == "expert_load_max_over_mean") {
    double largest = 0.0;
    for (std::int32_t layer = 0; layer < loads.num_layers; ++layer) {
      const auto row = loads.layer(layer);
      const double mean = balance::total(row) / static_cast<double>(row.size());
      if (mean > 0.0) {
        largest = std::max(largest, *std::max_element(row.begin(), row.end()) / mean);
      }
    }
    return largest;
  }
  std::vector<double> sum(static_cast<std::size_t>(placement_->num_gpus()), 0.0);
  double worst = 0.0;
  for (std::int32_t layer = 0; layer < loads.num_layers; ++layer) {
    const std::vector<double> of_layer = balance::gpu_loads(*placement_, layer, loads.layer(layer));
    worst = std::max(worst, sigma_ratio(of_layer, cluster_->speed));
    for (std::size_t gpu = 0; gpu < sum.size(); ++gpu) sum[gpu] += of_layer[gpu];
  }
  return metric == "gpu_load_sigma_ratio" ? sigma_ratio(sum, cluster_->speed) : worst;
}

std::vector<balance::AlarmSample> LoadSeries::samples(const std::string& metric,
                                                      double over_s) const {
  if (std::find(std::begin(kMetrics), std::end(kMetrics), metric) == std::end(kMetrics)) {
    throw Error(ErrorCode::kUsage, fmt::format("no metric \"{}\"; there are {}, and those of "
                                               "--series",
                                               metric, metric_names()));
  }
  std::vector<balance::AlarmSample> samples;
  std::vector<double> sum(static_cast<std::size_t>(counts_->num_layers() * counts_->num_experts()),
                          0.0);
  std::size_t begin = 0;
  // Sums are of whole numbers below 2^53: adding and taking away is exact.
  const auto add = [&](std::size_t window, double sign) {
    const auto counts = counts_->window(static_cast<std::int64_t>(window));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += sign * static_cast<double>(counts[i]);
  };
  for (std::size_t i = 0; i < end_s_.size(); ++i) {
    add(i, 1.0);
    while (begin < i && end_s_[begin] <= end_s_[i] - over_s * (1.0 - 1e-9)) {
      add(begin++, -1.0);
    }
    const bool is_whole = end_s_[i] - begin_s_.front() >= over_s * (1.0 - 1e-9);
    samples.push_back({end_s_[i], is_whole ? value(metric, sum) : std::nullopt});
  }
  return samples;
}

}  // namespace moe::app
