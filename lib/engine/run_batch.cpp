#include "lib/engine/run_batch.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

// Cores change hands within milliseconds; a probe takes 40 microseconds.
constexpr double kProbeIntervalS = 1e-3;

class BatchLoop {
 public:
  BatchLoop(Engine& engine, std::span<const BatchRequest> requests, const RunBatchOptions& options,
            const Clock& clock)
      : engine_(engine), requests_(requests), options_(options), clock_(clock) {
    reserve();
  }

  RunBatchResult run(const Interrupt& interrupt) {
    probe(0.0);
    paused_s_ = 0.0;
    result_.start_s = clock_.now_s();
    prefill();
    std::size_t num_steps = 0;
    while (!active_.empty() && !interrupt.requested()) step(num_steps++);
    result_.steps.resize(num_steps);
    result_.total_s = last_token_s_;
    result_.decode_s = result_.total_s - result_.prefill_s;
    probe(0.0);
    result_.probes.resize(num_probes_);
    result_.probe_s = paused_s_;
    for (const std::size_t request : active_) {
      result_.requests[request].stop = StopReason::kInterrupted;
      result_.is_partial = true;
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] double now_s() const { return clock_.now_s() - result_.start_s - paused_s_; }

  // Unless the last probe is younger than that.
  void probe(double min_age_s) {
    if (options_.core_watch == nullptr) return;
    const double begin_s = clock_.now_s();
    if (num_probes_ > 0 && begin_s - last_probe_s_ < min_age_s) return;
    options_.core_watch->probe(engine_.threads(), result_.probes[num_probes_++]);
    last_probe_s_ = clock_.now_s();
    paused_s_ += last_probe_s_ - begin_s;
  }

  // Of a sample that begins now: from the last probe to the next one, wherever that will be.
  [[nodiscard]] std::size_t first_probe() const { return num_probes_ == 0 ? 0 : num_probes_ - 1; }
  [[nodiscard]] ProbeSpan probes_since(std::size_t first, bool was_probed) const {
    if (options_.core_watch == nullptr) return {};
    return {first, (was_probed ? num_probes_ : num_probes_ + 1) - first};
  }

  // All memory of the results, so that the loop does not wait for the allocator.
  void reserve() {
    const std::size_t count = requests_.size();
    std::int64_t max_output = 1;
    result_.requests.resize(count);
    last_tokens_.resize(count);
    entries_.reserve(count);
    active_.reserve(count);
    rngs_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t output = requests_[i].output_tokens;
      result_.requests[i].token_ids.reserve(static_cast<std::size_t>(output));
      result_.requests[i].token_times_s.reserve(static_cast<std::size_t>(output));
      rngs_.emplace_back(options_.sampling.seed, i);
      max_output = std::max(max_output, output);
    }
    DecodeStep step;
    step.distinct_experts.assign(engine_.config().layers.size(), 0);
    if (options_.core_watch != nullptr) {
      CoreProbe probe;
      probe.threads.resize(static_cast<std::size_t>(engine_.options().num_threads));
      // One before the batch, one after each pass, one at the end.
      result_.probes.assign(static_cast<std::size_t>(max_output + 2), probe);
    }
    result_.steps.assign(static_cast<std::size_t>(max_output - 1), step);
    const ForwardStats& shape = engine_.last_stats();
    for (ForwardStats* stats : {&result_.prefill, &result_.decode}) {
      stats->distinct_experts.assign(shape.distinct_experts.size(), 0);
      stats->expert_tokens.resize(shape.expert_tokens.size());
      for (std::size_t layer = 0; layer < shape.expert_tokens.size(); ++layer) {
        stats->expert_tokens[layer].assign(shape.expert_tokens[layer].size(), 0);
      }
    }
  }

  void prefill() {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      engine_.reset(static_cast<SequenceId>(i));
      entries_.push_back({static_cast<SequenceId>(i), requests_[i].prompt, false});
      active_.push_back(i);
    }
    const std::span<const float> logits = engine_.forward(entries_);
    take_tokens(logits);
    result_.prefill_s = last_token_s_;
    accumulate(engine_.last_stats(), result_.prefill);
    const std::size_t first = first_probe();
    probe(kProbeIntervalS);
    result_.prefill_probes = probes_since(first, num_probes_ > first + 1);
  }

  void step(std::size_t step_idx) {
    DecodeStep& step = result_.steps[step_idx];
    entries_.clear();
    for (const std::size_t request : active_) {
      entries_.push_back({static_cast<SequenceId>(request), {&last_tokens_[request], 1}, false});
    }
    step.begin_s = now_s();
    step.num_sequences = static_cast<std::int32_t>(active_.size());
    const std::span<const float> logits = engine_.forward(entries_);
    take_tokens(logits);
    step.duration_s = last_token_s_ - step.begin_s;
    const ForwardStats& stats = engine_.last_stats();
    step.weight_bytes_read = stats.weight_bytes_read;
    step.expert_weight_bytes_read = stats.expert_weight_bytes_read;
    step.kv_bytes_read = stats.kv_bytes_read;
    step.flops = stats.flops;
    std::copy(stats.distinct_experts.begin(), stats.distinct_experts.end(),
              step.distinct_experts.begin());
    accumulate(stats, result_.decode);
    const std::size_t first = first_probe();
    probe(kProbeIntervalS);
    step.probes = probes_since(first, num_probes_ > first + 1);
  }

  // Samples one token for every active request, rows in their order; finished ones leave. The last
  // token ends the pass by the same reading of the clock: another one may come late on a busy
  // machine, and the times would not add up.
  void take_tokens(std::span<const float> logits) {
    const auto vocab = static_cast<std::size_t>(engine_.config().vocab_size);
    const std::vector<std::int32_t>& eos = engine_.config().eos_token_ids;
    for (std::size_t row = 0; row < active_.size(); ++row) {
      const std::size_t request = active_[row];
      const std::int32_t token =
          sample(logits.subspan(row * vocab, vocab), options_.sampling, rngs_[request]);
      RequestResult& result = result_.requests[request];
      last_tokens_[request] = token;
      result.token_ids.push_back(token);
      last_token_s_ = now_s();
      result.token_times_s.push_back(last_token_s_);
    }
    std::erase_if(active_, [&](std::size_t request) {
      RequestResult& result = result_.requests[request];
      const bool is_eos = !options_.ignore_eos &&
                          std::find(eos.begin(), eos.end(), last_tokens_[request]) != eos.end();
      if (is_eos) result.stop = StopReason::kEos;
      return is_eos ||
             static_cast<std::int64_t>(result.token_ids.size()) >= requests_[request].output_tokens;
    });
  }

  Engine& engine_;
  std::span<const BatchRequest> requests_;
  const RunBatchOptions& options_;
  const Clock& clock_;
  RunBatchResult result_;
  std::vector<BatchEntry> entries_;
  std::vector<std::size_t> active_;  // requests that still want tokens
  std::vector<std::int32_t> last_tokens_;
  std::vector<Rng> rngs_;
  double last_token_s_ = 0.0;  // since start_s
  std::size_t num_probes_ = 0;
  double last_probe_s_ = 0.0;
  double paused_s_ = 0.0;  // time of the probes since start_s
};

void check_requests(const Engine& engine, std::span<const BatchRequest> requests) {
  const EngineOptions& options = engine.options();
  if (requests.empty() || requests.size() > static_cast<std::size_t>(options.max_sequences)) {
    throw Error(ErrorCode::kUsage, fmt::format("batch: expected 1 to {} requests, found {}",
                                               options.max_sequences, requests.size()));
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto prompt = static_cast<std::int64_t>(requests[i].prompt.size());
    const std::int64_t output = requests[i].output_tokens;
    if (prompt < 1 || output < 1) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("request {}: expected at least one prompt token and one output "
                              "token, found {} and {}",
                              i, prompt, output));
    }
    // The last token is never fed back.
    if (prompt + output - 1 > options.max_context) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("request {}: {} prompt and {} output tokens exceed the context of "
                              "{}; shorten one of them",
                              i, prompt, output, options.max_context));
    }
  }
}

}  // namespace

void accumulate(const ForwardStats& part, ForwardStats& sum) {
  for (std::size_t i = 0; i < part.stage_s.size(); ++i) sum.stage_s[i] += part.stage_s[i];
  sum.wall_s += part.wall_s;
  sum.num_tokens += part.num_tokens;
  sum.num_recomputed_tokens += part.num_recomputed_tokens;
  sum.weight_bytes_read += part.weight_bytes_read;
  sum.expert_weight_bytes_read += part.expert_weight_bytes_read;
  sum.kv_bytes_read += part.kv_bytes_read;
  sum.flops += part.flops;
  sum.distinct_experts = part.distinct_experts;
  sum.expert_tokens.resize(part.expert_tokens.size());
  for (std::size_t layer = 0; layer < part.expert_tokens.size(); ++layer) {
    sum.expert_tokens[layer].resize(part.expert_tokens[layer].size(), 0);
    for (std::size_t expert = 0; expert < part.expert_tokens[layer].size(); ++expert) {
      sum.expert_tokens[layer][expert] += part.expert_tokens[layer][expert];
    }
  }
}

RunBatchResult run_batch(Engine& engine, std::span<const BatchRequest> requests,
                         const RunBatchOptions& options, const Clock& clock,
                         const Interrupt& interrupt) {
  check_requests(engine, requests);
  return BatchLoop(engine, requests, options, clock).run(interrupt);
}

}  // namespace moe::engine
