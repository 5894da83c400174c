#include "lib/engine/generate.hpp"

#include <algorithm>

#include "lib/base/error.hpp"

namespace moe::engine {

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kLength:
      return "length";
    case StopReason::kEos:
      return "eos";
    case StopReason::kContext:
      return "context";
    case StopReason::kCallback:
      return "callback";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

GenerateResult generate(Engine& engine, SequenceId sequence, std::span<const std::int32_t> prompt,
                        const GenerateOptions& options, const TokenCallback& on_token,
                        const Clock& clock, const Interrupt& interrupt) {
  GenerateResult result;
  if (prompt.empty()) {
    throw Error(ErrorCode::kUsage, "the prompt is empty: at least one token is needed");
  }
  const std::vector<std::int32_t>& eos = engine.config().eos_token_ids;
  Rng rng(options.sampling.seed);
  engine.reset(sequence);
  const double start_s = clock.now_s();
  std::span<const std::int32_t> next = prompt;
  std::int32_t token = 0;
  while (static_cast<std::int64_t>(result.token_ids.size()) < options.max_new_tokens) {
    if (interrupt.requested()) {
      result.stop = StopReason::kInterrupted;
      return result;
    }
    if (next.data() == &token && engine.length(sequence) >= engine.options().max_context) {
      result.stop = StopReason::kContext;
      return result;
    }
    const BatchEntry entry{sequence, next, false};
    token = sample(engine.forward({&entry, 1}), options.sampling, rng);
    next = {&token, 1};
    result.token_ids.push_back(token);
    result.token_times_s.push_back(clock.now_s() - start_s);
    const bool goes_on = !on_token || on_token(token);
    if (!options.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end()) {
      result.stop = StopReason::kEos;
      return result;
    }
    if (!goes_on) {
      result.stop = StopReason::kCallback;
      return result;
    }
  }
  result.stop = StopReason::kLength;
  return result;
}

}  // namespace moe::engine
