#include <algorithm>

#include "lib/engine/run_batch.hpp"

namespace moe::engine {
namespace {

// [layer] share of experts with at least one token.
std::vector<double> expert_coverage(const std::vector<std::vector<bool>>& seen) {
  std::vector<double> coverage(seen.size(), 1.0);
  for (std::size_t layer = 0; layer < seen.size(); ++layer) {
    if (seen[layer].empty()) continue;
    const auto hit = std::count(seen[layer].begin(), seen[layer].end(), true);
    coverage[layer] = static_cast<double>(hit) / static_cast<double>(seen[layer].size());
  }
  return coverage;
}

}  // namespace

WarmUpResult warm_up_experts(Engine& engine, const WarmUpOptions& options, const Clock& clock,
                             const Interrupt& interrupt) {
  WarmUpResult result;
  const double start_s = clock.now_s();
  const auto vocab = static_cast<std::uint64_t>(engine.config().vocab_size);
  const std::int64_t pass_tokens =
      std::clamp<std::int64_t>(options.tokens_per_pass, 1, engine.options().max_context);
  std::vector<std::vector<bool>> seen;
  for (const auto& layer : engine.last_stats().expert_tokens) {
    seen.emplace_back(layer.size(), false);
  }
  Rng rng(options.seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(pass_tokens));
  while (!interrupt.requested()) {
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(rng.next_below(vocab));
    engine.reset(0);
    // With the logits of all tokens the last layer runs for all tokens too.
    const BatchEntry entry{0, tokens, true};
    static_cast<void>(engine.forward({&entry, 1}));
    result.num_tokens += pass_tokens;
    const ForwardStats& stats = engine.last_stats();
    for (std::size_t layer = 0; layer < seen.size(); ++layer) {
      for (std::size_t expert = 0; expert < seen[layer].size(); ++expert) {
        if (stats.expert_tokens[layer][expert] > 0) seen[layer][expert] = true;
      }
    }
    result.coverage = expert_coverage(seen);
    result.is_complete = std::all_of(result.coverage.begin(), result.coverage.end(),
                                     [](double share) { return share >= 1.0; });
    if (result.is_complete || result.num_tokens >= options.max_tokens ||
        clock.now_s() - start_s >= options.max_s) {
      break;
    }
  }
  if (result.coverage.empty()) result.coverage = expert_coverage(seen);
  engine.reset(0);
  result.wall_s = clock.now_s() - start_s;
  return result;
}

}  // namespace moe::engine
