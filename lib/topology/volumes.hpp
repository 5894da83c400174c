#pragma once

// Bytes of MoE dispatch and combine. Three counts are in use and must not be mixed: logical bytes
// (every selection, local ones too), bytes that leave a rank, and bytes that leave a domain with
// one copy for each distinct destination.

#include <cstdint>
#include <optional>
#include <string_view>

namespace moe::topology {

struct MoeTraffic {
  std::int64_t tokens_per_rank = 0;
  std::int64_t hidden = 0;
  std::int64_t top_k = 0;
  std::int64_t num_experts = 0;
  std::int64_t num_ranks = 0;
  double element_bytes = 2.0;  // scales included
};

// With its scales: bfloat16 2, fp8 with one float for 128 elements 1.03125, nvfp4 with one byte
// for 16 elements 0.5625. nullopt for an unknown name.
[[nodiscard]] std::optional<double> element_bytes(std::string_view dtype);

// tokens x top_k x hidden x element: what DeepEP, pplx and TensorRT-LLM divide by time.
[[nodiscard]] double logical_bytes(const MoeTraffic& traffic);
[[nodiscard]] double logical_bytes_per_s(double bytes_per_copy, std::int64_t tokens,
                                         std::int64_t copies_per_token, double time_s);

// Of one rank under uniform routing: every selection that is not local, (P-1)/P of them.
[[nodiscard]] double remote_selection_bytes(const MoeTraffic& traffic);
// One copy for each distinct remote rank.
[[nodiscard]] double remote_rank_bytes(const MoeTraffic& traffic);

// Expected number of distinct groups, of `num_groups` equal ones, that top_k different experts fall
// into: num_groups x (1 - C(E - E/g, k) / C(E, k)). The groups divide the experts.
[[nodiscard]] double distinct_groups(std::int64_t num_experts, std::int64_t num_groups,
                                     std::int64_t top_k);

// Share of selections that leave their rank under uniform routing.
[[nodiscard]] double remote_selection_share(std::int64_t num_ranks);

}  // namespace moe::topology
