#pragma once

// Expert capacity: how many routed copies an expert takes per window (or batch), and what
// overflows. Systems define it differently; all counts are routed copies, num_tokens is before
// routing.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace moe::balance {

enum class CapacityFormula : std::uint8_t {
  kSwitch,      // ceil(CF * tokens * top_k / experts), Switch Transformer and GShard
  kDeepSpeed,   // max(minimum, ceil(CF * tokens / experts)), sharded_moe.py; top_k is not in it
  kMegatron,    // max(minimum, ceil(CF * tokens * top_k / experts)), moe_utils.py with the copies
                // as its tokens
  kTutel,       // top_k * int(CF * ceil(tokens / experts)), rounded up to the alignment; 0: the
                // largest count; < 0: the smaller of the two; fast_dispatch.py
  kMegaBlocks,  // int(CF * top_k * tokens / experts) with the tokens of all ranks; 0: the largest
                // count; layers/moe.py
  kFastMoe,     // ceil(CF * tokens) * top_k / (ranks * experts), rounded down; gshard_gate.py, its
                // experts are those of one rank
};

struct CapacityRule {
  CapacityFormula formula = CapacityFormula::kSwitch;
  std::int64_t min_capacity = 0;  // DeepSpeed (4 by its default), Megatron
  std::int64_t alignment = 1;     // Tutel
  std::int64_t num_ranks = 1;     // MegaBlocks and FastMoE: tokens and experts of all ranks
};

// "switch", "deepspeed", "megatron", "tutel", "megablocks", "fastmoe".
[[nodiscard]] const char* capacity_formula_name(CapacityFormula formula);
[[nodiscard]] std::optional<CapacityFormula> capacity_formula_of(std::string_view name);

// One layer of one window. `max_count` is the busiest expert's, for the formulas that ask for it.
// Never above num_tokens: an expert gets a token once, and a buffer above that is memory for
// nothing. factor finite; num_experts, top_k > 0.
[[nodiscard]] std::int64_t expert_capacity(const CapacityRule& rule, double factor,
                                           std::int64_t num_tokens, std::int64_t top_k,
                                           std::int64_t num_experts, std::int64_t max_count);

struct Overflow {
  std::int64_t num_assignments = 0;
  std::int64_t num_dropped = 0;

  // Absent when nothing was routed.
  [[nodiscard]] std::optional<double> rate() const;
};

// counts[expert] of one layer.
[[nodiscard]] Overflow overflow(std::span<const std::int64_t> counts, std::int64_t capacity);

// The factor of the Switch form at which nothing of this layer is dropped: largest count x experts
// / (tokens x top_k). Absent without tokens.
[[nodiscard]] std::optional<double> dropless_factor(std::span<const std::int64_t> counts,
                                                    std::int64_t num_tokens, std::int64_t top_k);

}  // namespace moe::balance
