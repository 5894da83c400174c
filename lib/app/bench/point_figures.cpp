#include "lib/app/bench/point_figures.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/fnv1a.hpp"

namespace moe::app {
namespace {

// Times are differences of doubles of a clock that counts from boot: a few hundred days leave
// 1e-8 s. A check that two sums of them agree must not fail on that.
constexpr double kTimeSlackS = 1e-6;

// T_0 .. T_(n-1): when the last request of the batch had its token.
std::vector<double> step_times(const engine::RunBatchResult& run) {
  std::vector<double> times;
  for (const engine::RequestResult& request : run.requests) {
    times.resize(std::max(times.size(), request.token_times_s.size()), 0.0);
    for (std::size_t i = 0; i < request.token_times_s.size(); ++i) {
      times[i] = std::max(times[i], request.token_times_s[i]);
    }
  }
  return times;
}

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Collects what is implausible, each sentence once.
class Violations {
 public:
  explicit Violations(std::vector<std::string>& out) : out_(out) {}

  void expect(bool condition, const std::string& sentence) {
    if (condition) return;
    if (std::find(out_.begin(), out_.end(), sentence) == out_.end()) out_.push_back(sentence);
  }

 private:
  std::vector<std::string>& out_;
};

void check_counts(const BenchPoint& point, const engine::RunBatchResult& run,
                  const ModelFacts& model, Violations& violations) {
  std::int64_t num_output = 0;
  for (const engine::RequestResult& request : run.requests) {
    num_output += static_cast<std::int64_t>(request.token_ids.size());
    violations.expect(request.token_ids.size() == request.token_times_s.size(),
                      "a request has more tokens than times, or fewer");
  }
  violations.expect(static_cast<std::int64_t>(run.requests.size()) == point.batch,
                    "the number of requests is not the batch");
  violations.expect(num_output == point.batch * point.output_tokens,
                    "the tokens received are not batch x output tokens");
  violations.expect(run.prefill.num_tokens == point.batch * point.prompt_tokens,
                    "the tokens of the prefill are not batch x prompt tokens");
  violations.expect(run.decode.num_tokens - run.decode.num_recomputed_tokens ==
                        point.batch * (point.output_tokens - 1),
                    "the tokens of the decode steps are not batch x (output tokens - 1)");
  for (const engine::ForwardStats* stats : {&run.prefill, &run.decode}) {
    for (std::size_t layer = 0; layer < stats->expert_tokens.size(); ++layer) {
      const std::vector<std::int32_t>& tokens = stats->expert_tokens[layer];
      if (tokens.empty() || model.num_experts[layer] == 0) continue;
      const std::int64_t routed = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
      const std::int64_t all = stats->num_tokens * model.top_k;
      // The last layer runs only for the tokens whose logits are wanted: one of each prompt, and
      // those of a decode step, none of a text that is run again.
      const bool is_last = layer + 1 == stats->expert_tokens.size();
      const std::int64_t wanted =
          stats == &run.prefill ? point.batch : stats->num_tokens - stats->num_recomputed_tokens;
      const std::int64_t least = is_last ? wanted * model.top_k : all;
      violations.expect(
          routed >= least && routed <= all && routed % model.top_k == 0,
          fmt::format("layer {}: the expert counts do not add up to tokens x top_k", layer));
    }
  }
}

void check_times(const engine::RunBatchResult& run, std::span<const double> times,
                 std::span<const double> gaps, Violations& violations) {
  const double slack_s = kTimeSlackS * (1.0 + run.total_s);
  violations.expect(!times.empty() && times.front() > 0.0, "no time passed before the first token");
  for (const double gap : gaps) violations.expect(gap > 0.0, "token times do not ascend");
  if (!times.empty()) {
    violations.expect(std::abs(times.front() + sum(gaps) - times.back()) <= slack_s,
                      "TTFT plus the sum of the gaps is not the time of the last token");
    violations.expect(std::abs(times.back() - run.total_s) <= 1e-3 + 0.01 * run.total_s,
                      "the last token's time is not the duration of the run");
  }
  double steps_s = 0.0;
  for (const engine::DecodeStep& step : run.steps) steps_s += step.duration_s;
  violations.expect(steps_s <= run.decode_s + slack_s,
                    "the decode steps together are longer than the decode phase");
  for (const engine::ForwardStats* stats : {&run.prefill, &run.decode}) {
    violations.expect(sum(stats->stage_s) <= stats->wall_s * 1.001 + slack_s,
                      "the stages together are longer than the forward passes");
  }
}

void add_repetition(const engine::RunBatchResult& run, const ModelFacts& model,
                    PointFigures& figures, std::vector<TokenEvent>& events) {
  const BenchPoint& point = figures.point;
  Violations violations(figures.violations);
  const std::vector<double> times = step_times(run);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  check_counts(point, run, model, violations);
  check_times(run, times, gaps, violations);
  if (times.empty()) return;

  const auto batch = static_cast<double>(point.batch);
  const auto num_input = static_cast<double>(point.batch * point.prompt_tokens);
  const auto num_output = static_cast<double>(point.batch * point.output_tokens);
  const double ttft_s = times.front();
  const double e2el_s = times.back();
  figures.ttft_s.push_back(ttft_s);
  figures.e2el_s.push_back(e2el_s);
  figures.prefill_tokens_per_s.push_back(num_input / ttft_s);
  figures.batch_throughput_tokens_per_s.push_back((num_input + num_output) / e2el_s);
  if (!gaps.empty() && e2el_s > ttft_s) {
    const auto num_gaps = static_cast<double>(gaps.size());
    figures.tpot_s.push_back((e2el_s - ttft_s) / num_gaps);
    figures.itl_batch_normalised_s.push_back((e2el_s - ttft_s) / (batch * num_gaps));
    figures.decode_tokens_per_s.push_back(batch * num_gaps / (e2el_s - ttft_s));
  }
  figures.itl_s.insert(figures.itl_s.end(), gaps.begin(), gaps.end());
  for (const double time_s : times) {
    events.push_back({figures.duration_s + time_s, point.batch});
  }
  figures.duration_s += e2el_s;
  engine::accumulate(run.prefill, figures.prefill);
  engine::accumulate(run.decode, figures.decode);
  for (const engine::DecodeStep& step : run.steps) {
    figures.distinct_experts_per_step.resize(step.distinct_experts.size(), 0.0);
    for (std::size_t layer = 0; layer < step.distinct_experts.size(); ++layer) {
      figures.distinct_experts_per_step[layer] += step.distinct_experts[layer];
    }
  }
  figures.num_decode_steps += static_cast<std::int64_t>(run.steps.size());
}

void add_states(const engine::RunBatchResult& run, const engine::WidthReference& cores,
                PointFigures& figures) {
  figures.probe_s += run.probe_s;
  if (run.probes.empty()) return;
  figures.ttft_states.push_back(cores.state(run.probes_of(run.prefill_probes)));
  for (const engine::DecodeStep& step : run.steps) {
    figures.itl_states.push_back(cores.state(run.probes_of(step.probes)));
  }
}

// Seconds that a pass takes at least.
double bound_s(std::int64_t bytes, std::int64_t operations, double bytes_per_s, double ops_per_s) {
  return std::max(static_cast<double>(bytes) / bytes_per_s,
                  static_cast<double>(operations) / ops_per_s);
}

void add_roofline_shares(std::span<const engine::RunBatchResult> repetitions,
                         const PointConditions& conditions, PointFigures& figures) {
  const std::span<const engine::RooflineSample> limits = conditions.limits;
  if (limits.empty()) return;
  MOE_CHECK(limits.size() == repetitions.size() + 1);
  for (const engine::RooflineSample& sample : limits) {
    // A clock too coarse for a sample gives none; then there is no roofline.
    if (sample.read_bytes_per_s <= 0.0 || sample.ops_per_s <= 0.0) return;
  }
  for (const engine::RooflineSample& sample : limits) {
    figures.read_limits_bytes_per_s.push_back(sample.read_bytes_per_s);
    figures.peak_limits_ops_per_s.push_back(sample.ops_per_s);
    if (conditions.cores != nullptr) {
      figures.limit_states.push_back(conditions.cores->state(sample.probes));
    }
  }
  for (std::size_t r = 0; r < repetitions.size(); ++r) {
    const engine::RunBatchResult& run = repetitions[r];
    const std::vector<double> times = step_times(run);
    if (times.empty() || times.front() <= 0.0) continue;
    const double read = (limits[r].read_bytes_per_s + limits[r + 1].read_bytes_per_s) / 2.0;
    const double peak = (limits[r].ops_per_s + limits[r + 1].ops_per_s) / 2.0;
    figures.prefill_roofline_ratios.push_back(
        bound_s(run.prefill.weight_bytes_read + run.prefill.kv_bytes_read, run.prefill.flops, read,
                peak) /
        times.front());
    double steps_bound_s = 0.0;
    for (const engine::DecodeStep& step : run.steps) {
      steps_bound_s += bound_s(step.weight_bytes_read + step.kv_bytes_read, step.flops, read, peak);
    }
    const double decode_s = times.back() - times.front();
    if (decode_s > 0.0) figures.decode_roofline_ratios.push_back(steps_bound_s / decode_s);
  }
}

void add_throughput(std::span<const TokenEvent> events, PointFigures& figures) {
  const BenchPoint& point = figures.point;
  if (figures.duration_s <= 0.0) return;
  const double num_requests = static_cast<double>(point.batch * figures.num_repetitions);
  figures.requests_per_s = num_requests / figures.duration_s;
  figures.input_tokens_per_s = figures.requests_per_s * static_cast<double>(point.prompt_tokens);
  figures.output_tokens_per_s = figures.requests_per_s * static_cast<double>(point.output_tokens);
  figures.total_tokens_per_s = figures.input_tokens_per_s + figures.output_tokens_per_s;
  figures.peak_output_tokens_per_s = peak_rate(events, 1.0);
  if (!figures.peak_output_tokens_per_s) {
    figures.peak_absent_reason = fmt::format(
        "the repetitions last {:.3g} s together; a rate over one second needs that long",
        figures.duration_s);
    return;
  }
  Violations(figures.violations)
      .expect(*figures.peak_output_tokens_per_s >= figures.output_tokens_per_s * (1.0 - 1e-9),
              "the peak output rate is below the mean");
}

}  // namespace

std::optional<double> peak_rate(std::span<const TokenEvent> events, double window_s) {
  if (events.empty() || events.back().time_s < window_s) return std::nullopt;
  // Stretches (begin, end]: begin is 0 or an event, whose own tokens do not count.
  double peak = 0.0;
  double begin_s = 0.0;
  std::int64_t tokens_until_begin = 0;
  std::int64_t tokens = 0;
  std::size_t next_begin = 0;
  for (const TokenEvent& event : events) {
    tokens += event.num_tokens;
    while (next_begin < events.size() && event.time_s - events[next_begin].time_s >= window_s) {
      begin_s = events[next_begin].time_s;
      tokens_until_begin += events[next_begin].num_tokens;
      ++next_begin;
    }
    const double length_s = event.time_s - begin_s;
    if (length_s < window_s) continue;
    peak = std::max(peak, static_cast<double>(tokens - tokens_until_begin) / length_s);
  }
  return std::max(peak, static_cast<double>(tokens) / events.back().time_s);
}

double expected_distinct_experts(std::int64_t num_experts, std::int64_t top_k, std::int64_t batch) {
  const auto experts = static_cast<double>(num_experts);
  return experts *
         (1.0 - std::pow(1.0 - static_cast<double>(top_k) / experts, static_cast<double>(batch)));
}

std::vector<double> samples_in_state(std::span<const double> samples,
                                     std::span<const engine::CoreState> states,
                                     engine::CoreState state) {
  std::vector<double> found;
  for (std::size_t i = 0; i < std::min(samples.size(), states.size()); ++i) {
    if (states[i] == state) found.push_back(samples[i]);
  }
  return found;
}

std::uint64_t output_hash(std::span<const engine::RequestResult> requests) {
  Fnv1a64 hash;
  const auto mix = [&hash](std::uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash.add(static_cast<std::uint8_t>((word >> shift) & 0xffU));
    }
  };
  for (const engine::RequestResult& request : requests) {
    mix(static_cast<std::uint32_t>(request.token_ids.size()));
    for (const std::int32_t token : request.token_ids) mix(static_cast<std::uint32_t>(token));
  }
  return hash.value();
}

PointFigures compute_figures(const BenchPoint& point,
                             std::span<const engine::RunBatchResult> repetitions,
                             const ModelFacts& model, bool is_repeatable,
                             const PointConditions& conditions) {
  MOE_CHECK(!repetitions.empty());
  PointFigures figures;
  figures.point = point;
  figures.num_repetitions = static_cast<std::int64_t>(repetitions.size());
  std::vector<TokenEvent> events;
  for (const engine::RunBatchResult& run : repetitions) {
    add_repetition(run, model, figures, events);
    if (conditions.cores != nullptr) add_states(run, *conditions.cores, figures);
  }
  add_throughput(events, figures);
  add_roofline_shares(repetitions, conditions, figures);
  if (figures.num_decode_steps > 0) {
    for (double& distinct : figures.distinct_experts_per_step) {
      distinct /= static_cast<double>(figures.num_decode_steps);
    }
  }
  if (is_repeatable) {
    const std::uint64_t first = output_hash(repetitions.front().requests);
    Violations violations(figures.violations);
    for (const engine::RunBatchResult& run : repetitions) {
      violations.expect(output_hash(run.requests) == first,
                        "repetitions of the same prompts gave different tokens");
    }
  }
  return figures;
}

}  // namespace moe::app
