#pragma once

// From a token trace to the caches of lib/tiering.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/routing/token_source.hpp"
#include "lib/tiering/residency.hpp"

namespace moe::app {

// A whole trace in memory, one byte pair an id: caches that know the future need it.
struct TokenSequence {
  std::int32_t num_layers = 0;
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  std::vector<std::int16_t> ids;      // [tokens, layers, top_k]; -1 for an unused slot
  std::vector<std::int64_t> step;     // [tokens]
  std::vector<std::int64_t> request;  // [tokens]

  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(step.size()); }
  // Puts another trace of the same shape behind this one.
  void append(const TokenSequence& more);
};

// Throws Error(kInput) when the trace does not fit into max_bytes.
[[nodiscard]] TokenSequence collect_tokens(routing::RoutingInput& input,
                                           std::int64_t max_bytes = std::int64_t{4} << 30);

// One cache a layer; `policy` is lru, lfu, static (hottest of `profile`) or belady. by_step: an
// expert is accessed once per layer and forward pass, in ascending order, else once a token.
[[nodiscard]] tiering::CacheCounts replay_demand(const TokenSequence& tokens,
                                                 const TokenSequence& profile,
                                                 const std::string& policy, std::int32_t num_slots,
                                                 bool by_step);

enum class Prefetch : std::uint8_t { kNone, kCooccurrence, kActivation };

struct ResidencySpec {
  std::int32_t num_slots = 0;
  Prefetch prefetch = Prefetch::kNone;
  std::int32_t num_guesses = 0;
  std::int32_t library_size = 64;
  double low_watermark = 1.0;
  bool by_step = false;
  tiering::TransferModel transfer;
};

// Guesses are learnt from `profile`.
[[nodiscard]] tiering::ResidencyResult replay_residency(const TokenSequence& tokens,
                                                        const TokenSequence& profile,
                                                        const ResidencySpec& spec);

}  // namespace moe::app
