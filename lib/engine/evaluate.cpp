#include "lib/engine/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::engine {
namespace {

// Tokens per forward call. Only bounds the memory of the logits: the result does not depend on it.
constexpr std::int64_t kChunkTokens = 64;

double log_sum_exp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return static_cast<double>(largest) + std::log(sum);
}

class WindowScorer {
 public:
  WindowScorer(Engine& engine, EvaluateResult& result) : engine_(engine), result_(result) {}

  // Runs one window from position 0. Adds to the result only when the whole window was run; false
  // when it was interrupted.
  bool run(std::span<const std::int32_t> tokens, const Interrupt& interrupt) {
    nll_ = 0.0;
    counts_ = result_.expert_counts;
    engine_.reset(0);
    const auto size = static_cast<std::int64_t>(tokens.size());
    for (std::int64_t begin = 0; begin < size; begin += kChunkTokens) {
      if (interrupt.requested()) return false;
      run_chunk(tokens, begin, std::min(size, begin + kChunkTokens));
    }
    result_.nll_sum += nll_;
    result_.expert_counts = counts_;
    result_.num_tokens += size;
    result_.num_scored_tokens += size - 1;
    ++result_.num_windows;
    return true;
  }

 private:
  void run_chunk(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end) {
    const auto count = static_cast<std::size_t>(end - begin);
    const BatchEntry entry{0, tokens.subspan(static_cast<std::size_t>(begin), count), true};
    const std::span<const float> logits = engine_.forward({&entry, 1});
    const auto vocab = static_cast<std::size_t>(engine_.config().vocab_size);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t target = static_cast<std::size_t>(begin) + i + 1;
      if (target >= tokens.size()) break;
      const std::span<const float> row = logits.subspan(i * vocab, vocab);
      nll_ += log_sum_exp(row) - static_cast<double>(row[static_cast<std::size_t>(tokens[target])]);
    }
    const ForwardStats& stats = engine_.last_stats();
    for (std::size_t layer = 0; layer < counts_.size(); ++layer) {
      for (std::size_t expert = 0; expert < counts_[layer].size(); ++expert) {
        counts_[layer][expert] += stats.expert_tokens[layer][expert];
      }
    }
  }

  Engine& engine_;
  EvaluateResult& result_;
  double nll_ = 0.0;
  std::vector<std::vector<std::int64_t>> counts_;
};

void check_arguments(const Engine& engine, std::span<const std::int32_t> token_ids,
                     std::span<const std::int32_t> bytes_per_token,
                     const EvaluateOptions& options) {
  if (token_ids.size() < 2) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the text has {} tokens, at least 2 are needed to score one",
                            token_ids.size()));
  }
  if (options.window_tokens < 2 || options.window_tokens > engine.options().max_context) {
    throw Error(ErrorCode::kUsage,
                fmt::format("window: expected 2 to {} tokens (the context), found {}",
                            engine.options().max_context, options.window_tokens));
  }
  MOE_CHECK(bytes_per_token.empty() || bytes_per_token.size() == token_ids.size());
}

}  // namespace

double EvaluateResult::perplexity() const {
  return num_scored_tokens == 0 ? 0.0 : std::exp(nll_sum / static_cast<double>(num_scored_tokens));
}

double EvaluateResult::bits_per_byte() const {
  return num_scored_bytes == 0
             ? 0.0
             : nll_sum / std::numbers::ln2 / static_cast<double>(num_scored_bytes);
}

EvaluateResult evaluate(Engine& engine, std::span<const std::int32_t> token_ids,
                        std::span<const std::int32_t> bytes_per_token,
                        const EvaluateOptions& options, Progress& progress,
                        const Interrupt& interrupt) {
  check_arguments(engine, token_ids, bytes_per_token, options);
  EvaluateResult result;
  result.expert_counts.resize(engine.config().layers.size());
  for (std::size_t layer = 0; layer < result.expert_counts.size(); ++layer) {
    result.expert_counts[layer].assign(engine.last_stats().expert_tokens[layer].size(), 0);
  }
  const auto total = static_cast<std::int64_t>(token_ids.size());
  WindowScorer scorer(engine, result);
  progress.begin("evaluating", total, "tokens");
  for (std::int64_t begin = 0; begin + 2 <= total; begin += options.window_tokens) {
    if (options.max_windows > 0 && result.num_windows == options.max_windows) break;
    const std::int64_t end = std::min(total, begin + options.window_tokens);
    if (!scorer.run(token_ids.subspan(static_cast<std::size_t>(begin),
                                      static_cast<std::size_t>(end - begin)),
                    interrupt)) {
      result.is_partial = true;
      break;
    }
    if (!bytes_per_token.empty()) {
      for (std::int64_t i = begin + 1; i < end; ++i) {
        result.num_scored_bytes += bytes_per_token[static_cast<std::size_t>(i)];
      }
    }
    progress.update(end);
  }
  progress.end();
  return result;
}

}  // namespace moe::engine
