#include "lib/stats/stopping.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/units.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::stats {

std::optional<double> median_half_width_ratio(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const Percentile middle = percentile(sorted, 0.5);
  if (!middle.value || !middle.ci95) return std::nullopt;
  const double half_width = (middle.ci95->high - middle.ci95->low) / 2.0;
  if (half_width == 0.0) return 0.0;
  if (*middle.value == 0.0) return std::nullopt;
  return half_width / std::abs(*middle.value);
}

StopDecision decide_stop(const StoppingRules& rules, std::span<const double> samples,
                         double elapsed_s) {
  MOE_CHECK(rules.min_samples >= 0 && rules.max_samples >= 0);
  StopDecision decision;
  decision.num_samples = static_cast<std::int64_t>(samples.size());
  decision.elapsed_s = elapsed_s;
  decision.half_width_ratio = median_half_width_ratio(samples);
  if (rules.target_half_width_ratio) {
    decision.target_met =
        decision.half_width_ratio && *decision.half_width_ratio <= *rules.target_half_width_ratio;
  }
  const bool enough = decision.num_samples >= rules.min_samples;
  const bool full = rules.max_samples > 0 && decision.num_samples >= rules.max_samples;
  if (enough && rules.target_half_width_ratio && decision.target_met) {
    decision.reason = StopReason::kConverged;
  } else if (enough && full) {
    decision.reason = StopReason::kSampleCount;
  } else if (rules.time_budget_s && elapsed_s >= *rules.time_budget_s) {
    decision.reason = StopReason::kTimeBudget;
  }
  return decision;
}

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kContinue:
      return "continue";
    case StopReason::kConverged:
      return "converged";
    case StopReason::kSampleCount:
      return "sample_count";
    case StopReason::kTimeBudget:
      return "time_budget";
  }
  return "continue";
}

std::string describe(const StoppingRules& rules, const StopDecision& decision) {
  std::string text =
      fmt::format("{} after {} samples in {}", decision.stop() ? "stopped" : "running",
                  decision.num_samples, format_duration(decision.elapsed_s));
  switch (decision.reason) {
    case StopReason::kContinue:
      break;
    case StopReason::kConverged:
      text += ": converged";
      break;
    case StopReason::kSampleCount:
      text += fmt::format(": sample count of {} reached", rules.max_samples);
      break;
    case StopReason::kTimeBudget:
      text += fmt::format(": time budget of {} used", format_duration(*rules.time_budget_s));
      break;
  }
  if (decision.half_width_ratio) {
    text += fmt::format("; the median's interval is +-{:.1f} %", *decision.half_width_ratio * 100);
  } else {
    text += "; too few samples for an interval of the median";
  }
  if (rules.target_half_width_ratio) {
    text += fmt::format(", target {:.1f} %", *rules.target_half_width_ratio * 100);
  }
  return text;
}

}  // namespace moe::stats
