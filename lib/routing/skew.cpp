#include "lib/routing/skew.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/base/check.hpp"

namespace moe::routing {
namespace {

constexpr double kLowShare = 0.10;

}  // namespace

SkewFigures skew_of(std::span<const double> loads) {
  SkewFigures figures;
  if (loads.empty()) return figures;
  std::vector<double> sorted(loads.begin(), loads.end());
  std::sort(sorted.begin(), sorted.end());
  MOE_CHECK(sorted.front() >= 0.0);
  const auto n = static_cast<double>(sorted.size());
  double rank_sum = 0.0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    figures.total += sorted[i];
    rank_sum += static_cast<double>(i + 1) * sorted[i];
    if (sorted[i] == 0.0) ++figures.num_idle;
  }
  if (figures.total <= 0.0) return figures;
  const double mean = figures.total / n;
  const double max = sorted.back();
  figures.max_over_mean = max / mean;
  figures.imbalance_ratio = max / mean - 1.0;
  figures.balancedness = mean / max;
  if (sorted.front() > 0.0) figures.max_over_min = max / sorted.front();
  double squares = 0.0;
  double entropy = 0.0;
  for (const double load : sorted) {
    squares += (load - mean) * (load - mean);
    const double share = load / figures.total;
    if (share > 0.0) entropy -= share * std::log2(share);
  }
  figures.cv_population = std::sqrt(squares / n) / mean;
  figures.gini = std::max(0.0, 2.0 * rank_sum / (n * figures.total) - (n + 1.0) / n);
  figures.entropy_bits = std::max(0.0, entropy);
  if (sorted.size() > 1) {
    figures.cv_sample = std::sqrt(squares / (n - 1.0)) / mean;
    figures.entropy_share = *figures.entropy_bits / std::log2(n);
  }
  return figures;
}

SkewFigures skew_of(std::span<const std::int64_t> loads) {
  const std::vector<double> reals(loads.begin(), loads.end());
  return skew_of(std::span<const double>(reals));
}

std::int64_t linear_gpu_of(std::int64_t expert, std::int64_t num_experts, std::int64_t num_gpus) {
  const std::int64_t each = num_experts / num_gpus;
  const std::int64_t num_larger = num_experts % num_gpus;  // the first GPUs hold one more
  const std::int64_t in_larger = num_larger * (each + 1);
  if (expert < in_larger) return expert / (each + 1);
  return num_larger + (expert - in_larger) / each;
}

std::vector<double> linear_gpu_loads(std::span<const std::int64_t> counts, std::int64_t num_gpus) {
  MOE_CHECK(num_gpus >= 1);
  std::vector<double> loads(static_cast<std::size_t>(num_gpus), 0.0);
  const auto num_experts = static_cast<std::int64_t>(counts.size());
  for (std::int64_t e = 0; e < num_experts; ++e) {
    loads[static_cast<std::size_t>(linear_gpu_of(e, num_experts, num_gpus))] +=
        static_cast<double>(counts[static_cast<std::size_t>(e)]);
  }
  return loads;
}

std::vector<double> placed_gpu_loads(std::span<const std::int64_t> counts,
                                     std::span<const std::int32_t> physical_to_logical,
                                     std::int64_t num_gpus) {
  MOE_CHECK(num_gpus >= 1);
  std::vector<std::int64_t> num_replicas(counts.size(), 0);
  for (const std::int32_t expert : physical_to_logical) {
    ++num_replicas[static_cast<std::size_t>(expert)];
  }
  std::vector<double> loads(static_cast<std::size_t>(num_gpus), 0.0);
  const auto num_slots = static_cast<std::int64_t>(physical_to_logical.size());
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    const auto expert =
        static_cast<std::size_t>(physical_to_logical[static_cast<std::size_t>(slot)]);
    loads[static_cast<std::size_t>(linear_gpu_of(slot, num_slots, num_gpus))] +=
        static_cast<double>(counts[expert]) / static_cast<double>(num_replicas[expert]);
  }
  return loads;
}

BalancednessFigures balancedness_of(const std::vector<std::vector<double>>& loads) {
  BalancednessFigures figures;
  std::vector<double> of_layer;
  double mean_sum = 0.0;
  double max_sum = 0.0;
  for (std::size_t l = 0; l < loads.size(); ++l) {
    const SkewFigures skew = skew_of(std::span<const double>(loads[l]));
    if (!skew.balancedness.has_value()) continue;
    of_layer.push_back(*skew.balancedness);
    const double mean = skew.total / static_cast<double>(loads[l].size());
    mean_sum += mean;
    max_sum += mean * *skew.max_over_mean;
    if (!figures.worst.has_value() || *skew.balancedness < *figures.worst) {
      figures.worst = skew.balancedness;
      figures.worst_layer_idx = static_cast<std::int64_t>(l);
    }
  }
  figures.num_layers = static_cast<std::int64_t>(of_layer.size());
  if (of_layer.empty()) return figures;
  const auto n = static_cast<double>(of_layer.size());
  figures.mean = std::accumulate(of_layer.begin(), of_layer.end(), 0.0) / n;
  figures.of_sums = mean_sum / max_sum;
  std::sort(of_layer.begin(), of_layer.end());
  const auto rank = static_cast<std::size_t>(std::max(1.0, std::ceil(kLowShare * n)));
  figures.p10 = of_layer[rank - 1];
  return figures;
}

DropFigures drops_at(std::span<const std::int64_t> counts, std::int64_t capacity) {
  DropFigures figures;
  for (const std::int64_t count : counts) {
    figures.num_assignments += count;
    figures.num_dropped += std::max<std::int64_t>(0, count - capacity);
  }
  figures.num_slots = capacity * static_cast<std::int64_t>(counts.size());
  return figures;
}

std::int64_t capacity_of(double factor, std::int64_t num_tokens, std::int64_t top_k,
                         std::int64_t num_experts) {
  const double wanted = factor * static_cast<double>(num_tokens) * static_cast<double>(top_k) /
                        static_cast<double>(num_experts);
  // 1.1 * 240 is 264.00000000000006 in binary; the slack keeps such products whole.
  return static_cast<std::int64_t>(std::ceil(wanted - 1e-9 * std::max(1.0, wanted)));
}

std::optional<double> dropless_factor(std::span<const std::int64_t> counts) {
  return skew_of(counts).max_over_mean;
}

}  // namespace moe::routing
