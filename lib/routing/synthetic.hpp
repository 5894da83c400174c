#pragma once

// Token traces with a known truth: what a metric, an alarm or a control law should find in them.

#include <cstdint>
#include <vector>

#include "lib/routing/expert_counts.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing {

enum class SyntheticKind : std::uint8_t {
  kZipf,    // expert of rank r has popularity r^-s, ranks shuffled in each layer, forever
  kDrift,   // popularity moves from one such order to another, evenly over the trace
  kSwitch,  // the order changes at once at event_s: another domain
  kBurst,   // one expert of each layer rises to burst_factor times its share, see burst_ramp_s
};

struct SyntheticSpec {
  SyntheticKind kind = SyntheticKind::kZipf;
  std::int32_t num_layers = 4;
  std::int32_t num_experts = 64;
  std::int32_t top_k = 8;
  std::int64_t num_tokens = 16384;
  std::int64_t tokens_per_step = 64;
  double step_s = 0.05;      // time between forward passes
  double zipf_s = 0.8;       // 0: all experts alike
  double event_s = 20.0;     // when a switch or burst begins
  double burst_ramp_s = 10;  // the burst's rise; it stays up for as long, then falls at once
  double burst_factor = 3.0;
  std::uint64_t seed = 1;
};

// Popularity of every expert in one layer at a time, as shares that sum to 1: the truth. A token
// draws top_k experts one after the other without repetition by these shares.
class SyntheticTruth {
 public:
  // Throws Error(kUsage) for a spec that cannot be met.
  explicit SyntheticTruth(const SyntheticSpec& spec);

  [[nodiscard]] std::vector<double> shares(std::int64_t layer, double time_s) const;
  // The expert whose share a burst raises.
  [[nodiscard]] std::int32_t burst_expert(std::int64_t layer) const;
  [[nodiscard]] double duration_s() const;

 private:
  SyntheticSpec spec_;
  std::vector<std::vector<double>> before_;  // [layers][experts]
  std::vector<std::vector<double>> after_;
  std::vector<std::int32_t> burst_experts_;
};

// A token source of the spec: the same tokens for the same spec on every machine.
[[nodiscard]] RoutingInput make_synthetic(const SyntheticSpec& spec, std::int64_t block_tokens);

}  // namespace moe::routing
