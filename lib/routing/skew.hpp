#pragma once

// How uneven a load is. Every figure has one definition, given here; figures that a load does not
// have (nothing routed, an idle expert) are absent, never 0 or 1.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/routing/expert_counts.hpp"

namespace moe::routing {

// Of loads x_1..x_n (experts, or GPUs) with mean mu.
struct SkewFigures {
  double total = 0.0;
  std::int64_t num_idle = 0;              // loads of zero
  std::optional<double> max_over_mean;    // straggler factor
  std::optional<double> imbalance_ratio;  // max / mu - 1, as TensorRT-LLM prints it
  std::optional<double> balancedness;     // mu / max, in (0, 1]
  std::optional<double> max_over_min;     // absent with an idle expert, where it is infinite
  std::optional<double> cv_population;    // sigma / mu, divisor n
  std::optional<double> cv_sample;        // divisor n - 1; absent for n = 1
  std::optional<double> gini;             // 2 sum i x_(i) / (n sum x) - (n + 1) / n, x ascending
  std::optional<double> entropy_bits;     // -sum p log2 p
  std::optional<double> entropy_share;    // of log2 n; absent for n = 1
};
[[nodiscard]] SkewFigures skew_of(std::span<const double> loads);
[[nodiscard]] SkewFigures skew_of(std::span<const std::int64_t> loads);

// Loads of one layer by GPU when experts lie in order, E / G on each; when G does not divide E the
// first GPUs hold one more. counts [experts], num_gpus >= 1.
[[nodiscard]] std::vector<double> linear_gpu_loads(std::span<const std::int64_t> counts,
                                                   std::int64_t num_gpus);
// GPU of an expert in the same placement.
[[nodiscard]] std::int64_t linear_gpu_of(std::int64_t expert, std::int64_t num_experts,
                                         std::int64_t num_gpus);
// Loads by GPU of slots placed in order, slots / G on each; an expert's load is split evenly over
// its slots. physical_to_logical [slots].
[[nodiscard]] std::vector<double> placed_gpu_loads(
    std::span<const std::int64_t> counts, std::span<const std::int32_t> physical_to_logical,
    std::int64_t num_gpus);

// mean_g / max_g by layer, reduced over GPUs first and over layers afterwards. Layers without load
// are left out, not counted as balanced.
struct BalancednessFigures {
  std::int64_t num_layers = 0;  // with load
  std::optional<double> mean;
  std::optional<double> worst;
  std::int64_t worst_layer_idx = -1;
  std::optional<double> p10;      // 10th percentile over layers, nearest rank
  std::optional<double> of_sums;  // sum of means / sum of maxima: what synchronous layers cost
};
// loads of each layer, [layers][gpus].
[[nodiscard]] BalancednessFigures balancedness_of(const std::vector<std::vector<double>>& loads);

// What a capacity per expert does to one window of one layer.
struct DropFigures {
  std::int64_t num_assignments = 0;
  std::int64_t num_dropped = 0;
  std::int64_t num_slots = 0;  // capacity x experts
};
[[nodiscard]] DropFigures drops_at(std::span<const std::int64_t> counts, std::int64_t capacity);
// ceil(factor * tokens * top_k / experts), the form of Switch and GShard. Exact where
// factor * tokens * top_k is a whole multiple of experts up to 1e-9.
[[nodiscard]] std::int64_t capacity_of(double factor, std::int64_t num_tokens, std::int64_t top_k,
                                       std::int64_t num_experts);
// Smallest factor that drops nothing: max * experts / (tokens * top_k).
[[nodiscard]] std::optional<double> dropless_factor(std::span<const std::int64_t> counts);

}  // namespace moe::routing
