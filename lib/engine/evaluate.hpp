#pragma once

// Perplexity by a fixed protocol: non-overlapping windows from the start of the text, each window a
// sequence of its own at positions 0.., the first token of a window not scored, a last window of
// fewer than two tokens left out. Log-softmax and sums in f64.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/engine/engine.hpp"

namespace moe::engine {

struct EvaluateOptions {
  std::int64_t window_tokens = 512;
  std::int64_t max_windows = 0;  // 0: all
};

struct EvaluateResult {
  std::int64_t num_tokens = 0;  // run through the model
  std::int64_t num_windows = 0;
  std::int64_t num_scored_tokens = 0;
  std::int64_t num_scored_bytes = 0;                     // 0 when bytes_per_token was empty
  double nll_sum = 0.0;                                  // nats
  std::vector<std::vector<std::int64_t>> expert_counts;  // [layer][expert]; dense layers empty
  bool is_partial = false;                               // interrupted between windows

  [[nodiscard]] double perplexity() const;     // 0 when nothing was scored
  [[nodiscard]] double bits_per_byte() const;  // 0 when the bytes are not known
};

// Uses sequence 0. `bytes_per_token[i]` is the length in bytes of token i of the text (same size as
// `token_ids`), or empty. Progress in tokens. Throws Error(kUsage) when the window exceeds the
// context or the text has fewer than two tokens.
[[nodiscard]] EvaluateResult evaluate(Engine& engine, std::span<const std::int32_t> token_ids,
                                      std::span<const std::int32_t> bytes_per_token,
                                      const EvaluateOptions& options, Progress& progress,
                                      const Interrupt& interrupt);

}  // namespace moe::engine
