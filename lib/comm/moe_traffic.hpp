#pragma once

// Traffic of MoE dispatch and combine from routed tokens. Experts lie on the ranks in equal blocks
// of consecutive numbers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/pattern.hpp"

namespace moe::comm {

struct MoeShape {
  std::int64_t tokens_per_rank = 0;
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  std::int64_t num_experts = 0;
  double dispatch_element_bytes = 1.0;  // scales included
  double combine_element_bytes = 2.0;

  // Of one copy of a token: a multiple of 16 bytes, as kernels move it.
  [[nodiscard]] std::int64_t dispatch_copy_bytes() const;
  [[nodiscard]] std::int64_t combine_copy_bytes() const;
};

// Experts of every token of the job, [ranks x tokens_per_rank, top_k]; negative: slot not used.
struct TokenRoutes {
  std::int64_t top_k = 0;
  std::vector<std::int32_t> experts;
  [[nodiscard]] std::int64_t num_tokens() const {
    return top_k > 0 ? static_cast<std::int64_t>(experts.size()) / top_k : 0;
  }
};

// Every token draws top_k different experts, expert number k with a weight of (rank of popularity +
// 1)^-s; s = 0: all alike. Which experts are popular follows from the seed.
[[nodiscard]] TokenRoutes zipf_routes(const MoeShape& shape, int num_ranks, double s,
                                      std::uint64_t seed);

// The first tokens of one layer of a trace in any format that lib/routing opens; begins again at
// its first token when there are too few. Throws Error(kInput).
struct TraceRoutes {
  TokenRoutes routes;
  std::int64_t num_experts = 0;
  std::int64_t num_distinct_tokens = 0;  // read from the trace
};
[[nodiscard]] TraceRoutes trace_routes(const std::string& path, std::int64_t layer_idx,
                                       std::int64_t num_tokens);

// Exchanges one after the other.
struct MoeStages {
  std::vector<TrafficMatrix> dispatch;
  std::vector<TrafficMatrix> combine;
  std::int64_t num_selections = 0;          // of all ranks
  std::int64_t logical_dispatch_bytes = 0;  // every selection, local ones too
  std::int64_t logical_combine_bytes = 0;
};

// Flat: one copy for each selection, straight to the rank of its expert. Deduplicated: one copy for
// each other node of a token, to the rank with the sender's number there, which hands one copy to
// each rank of its node that needs the token; combine goes the same way back. `nodes[r]` is the
// node of rank r. Throws Error(kUsage) when the experts do not divide by the ranks.
[[nodiscard]] MoeStages plan_moe(const MoeShape& shape, const TokenRoutes& routes,
                                 std::span<const int> nodes, bool is_deduplicated);

// Sums over several exchanges.
[[nodiscard]] TrafficSums sum_stages(const std::vector<TrafficMatrix>& stages,
                                     std::span<const int> nodes);

}  // namespace moe::comm
