#pragma once

// Is an input what it seems to be? Every check has a code and a count; a wrong dump must not become
// a plan.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/routing/token_source.hpp"

namespace moe::routing {

enum class Trouble : std::uint8_t {
  kNote,     // good to know
  kWarning,  // the figures may mislead
  kError,    // the input is not what an analysis needs: refuse it
};

struct SanityFinding {
  std::string code;  // "ids.duplicate"
  Trouble trouble = Trouble::kNote;
  std::int64_t count = 0;  // what is counted is in the message
  std::string message;
  std::string advice;
};

struct InputCheck {
  std::vector<SanityFinding> findings;
  std::int64_t num_tokens = 0;  // 0 for counts
  std::int64_t num_steps = 0;   // distinct forward passes, or recorded count rows
  std::int64_t num_assignments = 0;
};

// Reads the whole input once, in constant memory. Codes:
//   tokens.profiling, tokens.padding, tokens.zero_weight, tokens.empty, rows.missing, top_k.varies,
//   ids.duplicate, ids.sentinel, ids.sentinel_ambiguous, ids.shared_expert, ids.out_of_range,
//   experts.shared_suspected, experts.inferred, top_k.inferred, requests.single, time.backwards,
//   steps.backwards, steps.gap, steps.zero, layers.zero, layers.unequal_totals, counts.negative,
//   counts.fractional, counts.common_factor, counts.one_block, counts.not_multiple_of_top_k,
//   counts.none, ranks.missing, records.same_on_ranks, placement.mixed, placement.last_only,
//   placement.unknown, scores.not_finite, profiling.skipped
[[nodiscard]] InputCheck check_input(RoutingInput& input);

[[nodiscard]] bool has_error(const InputCheck& check);

// Throws Error(kInput) with the first error: what later analyses call before they trust an input.
void require_sane(const RoutingInput& input, const InputCheck& check);

}  // namespace moe::routing
