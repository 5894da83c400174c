#pragma once

// Alarm rules replayed over a series: when would it have rung, for how long, and, where the truth
// is known, was it right.
//
// A rule is a text: "gpu_load_sigma_ratio > 0.5 over 5min for 1min". `over` is the time that the
// metric is taken over, `for` how long it must hold before the alarm rings; both may be left out.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::balance {

enum class AlarmComparison : std::uint8_t { kAbove, kAtLeast, kBelow, kAtMost };

struct AlarmRule {
  std::string metric;
  AlarmComparison comparison = AlarmComparison::kAbove;
  double threshold = 0.0;
  double over_s = 0.0;
  double for_s = 0.0;
};

// Throws Error(kUsage) with the rule's text and what was expected.
[[nodiscard]] AlarmRule parse_alarm_rule(std::string_view text);
[[nodiscard]] std::string describe(const AlarmRule& rule);

// A value over [time_s - over, time_s]; absent where nothing was routed.
struct AlarmSample {
  double time_s = 0.0;
  std::optional<double> value;
};

struct AlarmEvent {
  double begin_s = 0.0;  // the condition first held
  double ring_s = 0.0;   // held for `for`
  double end_s = 0.0;    // the first sample at which it no longer held, or the last sample
  double worst = 0.0;
};

// Samples ascend in time. An absent value ends a stretch: silence is not an alarm. Throws
// Error(kInput) when time runs backwards.
[[nodiscard]] std::vector<AlarmEvent> replay_alarm(const AlarmRule& rule,
                                                   std::span<const AlarmSample> samples);

// A stretch of time in which an alarm is wanted.
struct AlarmLabel {
  double begin_s = 0.0;
  double end_s = 0.0;
};

struct AlarmScore {
  std::int64_t num_events = 0;
  std::int64_t num_right = 0;  // events that ring within or overlap a label
  std::int64_t num_labels = 0;
  std::int64_t num_found = 0;     // labels that an event overlaps
  std::optional<double> delay_s;  // mean time from a found label's begin to the first ring
  [[nodiscard]] std::optional<double> precision() const;
  [[nodiscard]] std::optional<double> recall() const;
};

[[nodiscard]] AlarmScore score_alarm(std::span<const AlarmEvent> events,
                                     std::span<const AlarmLabel> labels);

// A Prometheus alerting rule for the metrics that servers in the field export; nullopt when the
// metric has none there. `name` becomes the alert's name.
[[nodiscard]] std::optional<std::string> prometheus_rule(const AlarmRule& rule,
                                                         const std::string& name);

}  // namespace moe::balance
