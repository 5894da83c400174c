#pragma once

// From the raw times and counts of one benchmark point to its figures: pure arithmetic, no clock.
// Every definition stands here once; reports quote metric_definitions().
//
// All requests of a point start together and run as a static batch, so every decode step gives each
// of them one token. The step times T_0 < T_1 < ... (seconds since the start, T_0 after the
// prefill) are therefore the token times of every request, and a step counts as one sample, not as
// `batch` equal ones.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/engine/roofline_sampler.hpp"
#include "lib/engine/run_batch.hpp"
#include "lib/engine/width_probe.hpp"

namespace moe::app {

struct BenchPoint {
  std::int64_t batch = 1;
  std::int64_t prompt_tokens = 1;
  std::int64_t output_tokens = 1;
};

struct PointFigures {
  BenchPoint point;
  std::int64_t num_repetitions = 0;
  double duration_s = 0.0;  // of all repetitions together

  // One sample a repetition.
  std::vector<double> ttft_s;
  std::vector<double> tpot_s;  // empty for one output token, as the next three
  std::vector<double> e2el_s;
  std::vector<double> itl_batch_normalised_s;
  std::vector<double> decode_tokens_per_s;
  std::vector<double> prefill_tokens_per_s;
  std::vector<double> batch_throughput_tokens_per_s;
  // One sample a decode step.
  std::vector<double> itl_s;

  double requests_per_s = 0.0;
  double input_tokens_per_s = 0.0;
  double output_tokens_per_s = 0.0;
  double total_tokens_per_s = 0.0;
  std::optional<double> peak_output_tokens_per_s;
  std::string peak_absent_reason;

  // Sums over the repetitions.
  engine::ForwardStats prefill;
  engine::ForwardStats decode;
  std::int64_t num_decode_steps = 0;
  // [layer] mean over the decode steps; 0 for dense layers, empty without steps.
  std::vector<double> distinct_experts_per_step;

  // Whether the cores were free, one for each of ttft_s and of itl_s; empty when nothing was
  // probed.
  std::vector<engine::CoreState> ttft_states;
  std::vector<engine::CoreState> itl_states;
  double probe_s = 0.0;  // what the probes took, in no other figure

  // Against the roofline, one a repetition; empty without samples of the limits. The bound of a
  // pass is max(bytes of weights and KV cache that it reads / read bandwidth, operations / peak),
  // both limits the mean of the samples before and after the repetition.
  std::vector<double> prefill_roofline_ratios;
  std::vector<double> decode_roofline_ratios;
  std::vector<double> read_limits_bytes_per_s;  // the samples themselves
  std::vector<double> peak_limits_ops_per_s;
  std::vector<engine::CoreState> limit_states;

  // What cannot be true of a right measurement; empty when all is plausible.
  std::vector<std::string> violations;
};

struct ModelFacts {
  std::int32_t top_k = 0;                 // in force; 0 for a dense model
  std::vector<std::int32_t> num_experts;  // [layer]; 0 for dense layers
};

// What was measured around the repetitions.
struct PointConditions {
  std::span<const engine::RooflineSample> limits;  // before the first and after each, or empty
  const engine::WidthReference* cores = nullptr;   // null: states are not known
};

// `repetitions` are complete runs of the point, at least one. `is_repeatable` says that the same
// prompts were used in all of them with greedy sampling, so that all must give the same tokens.
[[nodiscard]] PointFigures compute_figures(const BenchPoint& point,
                                           std::span<const engine::RunBatchResult> repetitions,
                                           const ModelFacts& model, bool is_repeatable,
                                           const PointConditions& conditions = {});

// The samples taken in one state of the cores.
[[nodiscard]] std::vector<double> samples_in_state(std::span<const double> samples,
                                                   std::span<const engine::CoreState> states,
                                                   engine::CoreState state);

// A moment at which `num_tokens` tokens were complete.
struct TokenEvent {
  double time_s = 0.0;
  std::int64_t num_tokens = 0;
};

// The highest rate over any stretch that ends with an event, is at least `window_s` long and is no
// longer than that needs; the whole of [0, last event] is such a stretch, so the peak is never
// below the mean. nullopt when the events span less than the window. Events ascend in time.
[[nodiscard]] std::optional<double> peak_rate(std::span<const TokenEvent> events, double window_s);

// Mean number of distinct experts that `batch` tokens choose when each picks top_k of num_experts
// at random: E (1 - (1 - k/E)^B).
[[nodiscard]] double expected_distinct_experts(std::int64_t num_experts, std::int64_t top_k,
                                               std::int64_t batch);

// FNV-1a over all tokens, to compare outputs between runs and builds.
[[nodiscard]] std::uint64_t output_hash(std::span<const engine::RequestResult> requests);

}  // namespace moe::app
