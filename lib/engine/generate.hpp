#pragma once

// One prompt in, sampled tokens out, one at a time.

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/base/clock.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/engine/engine.hpp"
#include "lib/engine/sampler.hpp"

namespace moe::engine {

struct GenerateOptions {
  std::int64_t max_new_tokens = 64;
  SamplingOptions sampling;
  bool ignore_eos = false;  // otherwise a token of config().eos_token_ids ends the text
};

enum class StopReason : std::uint8_t {
  kLength,    // as many tokens as asked for
  kEos,       // the last token is an end-of-sequence token
  kContext,   // max_context is full
  kCallback,  // the callback said so
  kInterrupted,
};
[[nodiscard]] std::string_view stop_reason_name(StopReason reason);

struct GenerateResult {
  std::vector<std::int32_t> token_ids;  // the end-of-sequence token included
  StopReason stop = StopReason::kLength;
  std::vector<double> token_times_s;  // since the start of the prefill; the first one is the TTFT
};

// Called with each token as soon as it exists; false stops.
using TokenCallback = std::function<bool(std::int32_t token)>;

// Resets `sequence` and runs the prompt (at least one token). Throws Error(kUsage) when the prompt
// does not fit the context. `on_token` may be empty.
[[nodiscard]] GenerateResult generate(Engine& engine, SequenceId sequence,
                                      std::span<const std::int32_t> prompt,
                                      const GenerateOptions& options, const TokenCallback& on_token,
                                      const Clock& clock, const Interrupt& interrupt);

}  // namespace moe::engine
