#include "lib/balance/balancedness.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::balance {
namespace {

struct LayerTimes {
  double mean = 0.0;
  double max = 0.0;
};

LayerTimes layer_times(std::span<const double> loads, std::span<const double> speeds) {
  double sum = 0.0;
  double total_speed = 0.0;
  LayerTimes times;
  for (std::size_t gpu = 0; gpu < loads.size(); ++gpu) {
    const double speed = speeds.empty() ? 1.0 : speeds[gpu];
    sum += loads[gpu];
    total_speed += speed;
    times.max = std::max(times.max, loads[gpu] / speed);
  }
  times.mean = sum / total_speed;
  return times;
}

}  // namespace

std::optional<double> balancedness(std::span<const double> loads, std::span<const double> speeds) {
  MOE_CHECK(!loads.empty() && (speeds.empty() || speeds.size() == loads.size()));
  const LayerTimes times = layer_times(loads, speeds);
  if (times.max <= 0.0) return std::nullopt;
  // Rounding of the sum can lift the quotient of equal loads above 1 by a few units in the last
  // place.
  return std::min(1.0, times.mean / times.max);
}

BalanceSummary balance_of(const Placement& placement, const LoadMatrix& loads,
                          std::span<const double> speeds) {
  if (loads.num_layers != placement.num_layers || loads.num_experts != placement.num_experts) {
    throw Error(ErrorCode::kInput,
                fmt::format("the plan is for {} layers x {} experts, the loads are of {} x {}",
                            placement.num_layers, placement.num_experts, loads.num_layers,
                            loads.num_experts));
  }
  BalanceSummary summary;
  std::vector<double> values;
  double sum_of_means = 0.0;
  double sum_of_maxima = 0.0;
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const std::vector<double> per_gpu = gpu_loads(placement, layer, loads.layer(layer));
    const std::optional<double> value = balancedness(per_gpu, speeds);
    summary.layers.push_back(value);
    if (!value) continue;
    const LayerTimes times = layer_times(per_gpu, speeds);
    sum_of_means += times.mean;
    sum_of_maxima += times.max;
    values.push_back(*value);
    if (!summary.worst || *value < *summary.worst) {
      summary.worst = *value;
      summary.worst_layer = layer;
    }
  }
  summary.num_layers = static_cast<std::int32_t>(values.size());
  if (values.empty()) return summary;
  summary.mean = total(values) / static_cast<double>(values.size());
  summary.of_sums = std::min(1.0, sum_of_means / sum_of_maxima);
  std::sort(values.begin(), values.end());
  summary.p10 = stats::percentile_of_sorted(values, 0.1);
  return summary;
}

}  // namespace moe::balance
