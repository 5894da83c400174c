#pragma once

// The measured loop of a benchmark point: a static batch of prompts, one prefill, then decode steps
// in which all unfinished sequences move together. Only this file's loop is timed; what it measures
// is raw, the statistics are made elsewhere.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/engine/engine.hpp"
#include "lib/engine/generate.hpp"
#include "lib/engine/sampler.hpp"
#include "lib/engine/width_probe.hpp"

namespace moe::engine {

struct BatchRequest {
  std::span<const std::int32_t> prompt;  // at least one token
  std::int64_t output_tokens = 1;        // at least one
};

struct RunBatchOptions {
  SamplingOptions sampling;  // request i draws from Rng(sampling.seed, i)
  bool ignore_eos = true;    // fixed output lengths
  // Probes the cores of the engine's threads between steps, at most once a millisecond; the clock
  // of the batch stands still meanwhile. Null: no probes.
  CoreWatch* core_watch = nullptr;
};

// The probes from the last one before a sample to the first one after it.
struct ProbeSpan {
  std::size_t first = 0;
  std::size_t count = 0;
};

struct RequestResult {
  std::vector<std::int32_t> token_ids;
  // When each token was known, seconds since start_s of the batch. The first one is the TTFT.
  std::vector<double> token_times_s;
  StopReason stop = StopReason::kLength;
};

struct DecodeStep {
  double begin_s = 0.0;  // since start_s of the batch
  double duration_s = 0.0;
  std::int32_t num_sequences = 0;
  std::int64_t weight_bytes_read = 0;
  std::int64_t expert_weight_bytes_read = 0;
  std::int64_t kv_bytes_read = 0;
  std::int64_t flops = 0;
  ProbeSpan probes;
  std::vector<std::int32_t> distinct_experts;  // [layer]; 0 for dense layers
};

struct RunBatchResult {
  double start_s = 0.0;    // clock value when the prefill began
  double prefill_s = 0.0;  // the one forward pass over all prompts, first tokens included
  double decode_s = 0.0;   // from the end of the prefill to the last token
  double total_s = 0.0;    // to the last token
  std::vector<RequestResult> requests;
  std::vector<DecodeStep> steps;
  ForwardStats prefill;  // of the prefill
  ForwardStats decode;   // sums over the decode steps; distinct_experts is of the last step
  std::vector<CoreProbe> probes;  // in the order of time; empty without a watch
  ProbeSpan prefill_probes;
  double probe_s = 0.0;  // what the probes took; in none of the times above
  bool is_partial = false;

  [[nodiscard]] std::span<const CoreProbe> probes_of(const ProbeSpan& of) const {
    return std::span(probes).subspan(of.first, of.count);
  }
};

// Sums times, counts and expert tokens; distinct_experts is taken from `part`.
void accumulate(const ForwardStats& part, ForwardStats& sum);

// Request i runs as sequence i, which is reset first. Throws Error(kUsage) when there are more
// requests than sequences or prompt + output exceeds the context. Interrupted: what was done so
// far, is_partial set. Memory for the results is reserved before the clock starts.
[[nodiscard]] RunBatchResult run_batch(Engine& engine, std::span<const BatchRequest> requests,
                                       const RunBatchOptions& options, const Clock& clock,
                                       const Interrupt& interrupt);

struct WarmUpOptions {
  std::uint64_t seed = 0;
  std::int64_t tokens_per_pass = 64;
  std::int64_t max_tokens = 4096;  // stops here even when some expert was never chosen
  double max_s = 30.0;
};

struct WarmUpResult {
  // [layer] share of the experts that were chosen at least once, 0..1; 1 for dense layers.
  std::vector<double> coverage;
  std::int64_t num_tokens = 0;
  double wall_s = 0.0;
  bool is_complete = false;  // every expert of every layer was touched
};

// Runs random prompts through sequence 0 until every expert of every layer was chosen, or a bound
// is reached.
[[nodiscard]] WarmUpResult warm_up_experts(Engine& engine, const WarmUpOptions& options,
                                           const Clock& clock, const Interrupt& interrupt);

}  // namespace moe::engine
