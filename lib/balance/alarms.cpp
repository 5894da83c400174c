#include "lib/balance/alarms.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/base/units.hpp"

namespace moe::balance {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  while ((begin = text.find_first_not_of(" \t", begin)) != std::string_view::npos) {
    const std::size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::kUsage,
              fmt::format("alarm rule \"{}\": expected \"METRIC > NUMBER [over TIME] [for TIME]\", "
                          "with >, >=, < or <=",
                          printable(text)));
}

double threshold_of(std::string_view word, std::string_view rule) {
  const auto value = parse_number<double>(word);
  if (!value) refuse(rule);
  return *value;
}

// "5min" besides what durations are elsewhere.
double duration_of(std::string_view word) {
  const bool has_min = word.size() > 3 && word.substr(word.size() - 3) == "min";
  return parse_duration_s(has_min ? word.substr(0, word.size() - 2) : word);
}

const char* sign_of(AlarmComparison comparison) {
  switch (comparison) {
    case AlarmComparison::kAbove:
      return ">";
    case AlarmComparison::kAtLeast:
      return ">=";
    case AlarmComparison::kBelow:
      return "<";
    case AlarmComparison::kAtMost:
      return "<=";
  }
  return "";
}

bool holds(const AlarmRule& rule, double value) {
  switch (rule.comparison) {
    case AlarmComparison::kAbove:
      return value > rule.threshold;
    case AlarmComparison::kAtLeast:
      return value >= rule.threshold;
    case AlarmComparison::kBelow:
      return value < rule.threshold;
    case AlarmComparison::kAtMost:
      return value <= rule.threshold;
  }
  return false;
}

double worse(const AlarmRule& rule, double a, double b) {
  const bool wants_low =
      rule.comparison == AlarmComparison::kBelow || rule.comparison == AlarmComparison::kAtMost;
  return wants_low ? std::min(a, b) : std::max(a, b);
}

bool overlaps(const AlarmEvent& event, const AlarmLabel& label) {
  return event.ring_s <= label.end_s && event.end_s >= label.begin_s;
}

}  // namespace

AlarmRule parse_alarm_rule(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.size() < 3 || words.size() % 2 == 0) refuse(text);
  AlarmRule rule;
  rule.metric = std::string(words[0]);
  if (words[1] == ">") {
    rule.comparison = AlarmComparison::kAbove;
  } else if (words[1] == ">=") {
    rule.comparison = AlarmComparison::kAtLeast;
  } else if (words[1] == "<") {
    rule.comparison = AlarmComparison::kBelow;
  } else if (words[1] == "<=") {
    rule.comparison = AlarmComparison::kAtMost;
  } else {
    refuse(text);
  }
  rule.threshold = threshold_of(words[2], text);
  for (std::size_t i = 3; i < words.size(); i += 2) {
    if (words[i] == "over") {
      rule.over_s = duration_of(words[i + 1]);
    } else if (words[i] == "for") {
      rule.for_s = duration_of(words[i + 1]);
    } else {
      refuse(text);
    }
  }
  return rule;
}

std::string describe(const AlarmRule& rule) {
  std::string text = fmt::format("{} {} {}", rule.metric, sign_of(rule.comparison), rule.threshold);
  if (rule.over_s > 0.0) text += fmt::format(" over {}s", rule.over_s);
  if (rule.for_s > 0.0) text += fmt::format(" for {}s", rule.for_s);
  return text;
}

std::vector<AlarmEvent> replay_alarm(const AlarmRule& rule, std::span<const AlarmSample> samples) {
  std::vector<AlarmEvent> events;
  bool is_holding = false;
  AlarmEvent event;
  const auto close = [&](double end_s) {
    event.end_s = end_s;
    if (is_holding && end_s - event.begin_s >= rule.for_s) {
      event.ring_s = event.begin_s + rule.for_s;
      events.push_back(event);
    }
    is_holding = false;
  };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i > 0 && samples[i].time_s < samples[i - 1].time_s) {
      throw Error(ErrorCode::kInput, fmt::format("time runs backwards: {} s after {} s",
                                                 samples[i].time_s, samples[i - 1].time_s));
    }
    if (!samples[i].value || !holds(rule, *samples[i].value)) {
      close(samples[i].time_s);
      continue;
    }
    if (!is_holding) event = {.begin_s = samples[i].time_s, .worst = *samples[i].value};
    is_holding = true;
    event.worst = worse(rule, event.worst, *samples[i].value);
  }
  if (!samples.empty()) close(samples.back().time_s);
  return events;
}

std::optional<double> AlarmScore::precision() const {
  if (num_events == 0) return std::nullopt;
  return static_cast<double>(num_right) / static_cast<double>(num_events);
}

std::optional<double> AlarmScore::recall() const {
  if (num_labels == 0) return std::nullopt;
  return static_cast<double>(num_found) / static_cast<double>(num_labels);
}

AlarmScore score_alarm(std::span<const AlarmEvent> events, std::span<const AlarmLabel> labels) {
  AlarmScore score;
  score.num_events = static_cast<std::int64_t>(events.size());
  score.num_labels = static_cast<std::int64_t>(labels.size());
  for (const AlarmEvent& event : events) {
    const bool is_right = std::any_of(labels.begin(), labels.end(), [&](const AlarmLabel& label) {
      return overlaps(event, label);
    });
    if (is_right) ++score.num_right;
  }
  double delay_s = 0.0;
  for (const AlarmLabel& label : labels) {
    const auto found = std::find_if(events.begin(), events.end(), [&](const AlarmEvent& event) {
      return overlaps(event, label);
    });
    if (found == events.end()) continue;
    ++score.num_found;
    delay_s += std::max(0.0, found->ring_s - label.begin_s);
  }
  if (score.num_found > 0) score.delay_s = delay_s / static_cast<double>(score.num_found);
  return score;
}

std::optional<std::string> prometheus_rule(const AlarmRule& rule, const std::string& name) {
  // Gauges of vLLM's expert-parallel load balancer; its p90 is the tenth percentile of
  // balancedness.
  struct Known {
    const char* ours;
    const char* theirs;
  };
  constexpr Known kKnown[] = {{"balancedness_mean", "vllm:eplb_balancedness_avg"},
                              {"balancedness_worst", "vllm:eplb_balancedness_min"},
                              {"balancedness_p10", "vllm:eplb_balancedness_p90"}};
  for (const Known& known : kKnown) {
    if (rule.metric != known.ours) continue;
    const std::string metric = rule.over_s > 0.0 ? fmt::format("avg_over_time({}[{}s])",
                                                               known.theirs, std::ceil(rule.over_s))
                                                 : std::string(known.theirs);
    return fmt::format("- alert: {}\n  expr: {} {} {}\n  for: {}s\n", name, metric,
                       sign_of(rule.comparison), rule.threshold, std::ceil(rule.for_s));
  }
  return std::nullopt;
}

}  // namespace moe::balance
