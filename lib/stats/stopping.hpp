#pragma once

// When to stop taking samples, and why it stopped. Rules are plain data and the decision is a pure
// function, so a report can state both. No clock here: the caller passes the time gone by.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace moe::stats {

struct StoppingRules {
  std::int64_t min_samples = 1;  // nothing but the time budget stops before this many
  std::int64_t max_samples = 0;  // 0: no limit
  // Half the width of the 95 % confidence interval of the median, over the median: 0.05 is 5 %.
  std::optional<double> target_half_width_ratio = std::nullopt;
  std::optional<double> time_budget_s = std::nullopt;
};

enum class StopReason : std::uint8_t { kContinue, kConverged, kSampleCount, kTimeBudget };

struct StopDecision {
  StopReason reason = StopReason::kContinue;
  std::int64_t num_samples = 0;
  double elapsed_s = 0.0;
  // Absent while there are too few samples for an interval, or when the median is zero.
  std::optional<double> half_width_ratio;
  // False when a target was set and not reached: the figures are noisier than was asked for.
  bool target_met = true;

  [[nodiscard]] bool stop() const { return reason != StopReason::kContinue; }
};

// Half-width of the median's 95 % interval over the median; nullopt below 7 samples or when the
// median is zero while the interval has a width.
[[nodiscard]] std::optional<double> median_half_width_ratio(std::span<const double> samples);

// Looks at the rules in the order converged, sample count, time budget. Sorts a copy: call it after
// a repetition, not inside a timed region.
[[nodiscard]] StopDecision decide_stop(const StoppingRules& rules, std::span<const double> samples,
                                       double elapsed_s);

// "converged", "sample_count", "time_budget"; "continue" while running.
[[nodiscard]] const char* stop_reason_name(StopReason reason);

// One sentence for reports: "stopped after 30 samples in 2.10 s: time budget of 2.00 s used; the
// median's interval is +-7.1 %, target 5.0 %".
[[nodiscard]] std::string describe(const StoppingRules& rules, const StopDecision& decision);

}  // namespace moe::stats
