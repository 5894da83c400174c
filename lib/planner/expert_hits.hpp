#pragma once

// How many different experts a step reads, and how uneven the load of the ranks is. Decode is paid
// by the experts that are read, prefill by the fullest rank: skew makes the first cheaper and the
// second dearer.

#include <cstdint>
#include <span>
#include <vector>

namespace moe::planner {

// Routing of one MoE layer. Independent draws: what a router without memory would do.
struct RoutingSkew {
  // Share of the selections that each expert gets; any scale, any order. Empty: uniform.
  std::vector<double> popularity;
  // The fullest rank's tokens over the mean, as replayed or measured for the layout; 0: derived
  // from the popularity with the experts in their order over the ranks.
  double rank_max_over_mean = 0.0;
  [[nodiscard]] bool is_uniform() const { return popularity.empty() && rank_max_over_mean <= 1.0; }
};

// Expected number of different experts that `num_tokens` tokens select: E * (1 - (1 - k/E)^B).
[[nodiscard]] double expected_hits(double num_experts, double top_k, double num_tokens);

// The same for measured popularity: sum over experts of 1 - (1 - p)^B, where the p add up to top_k
// and none exceeds 1. Throws Error(kInput) for fewer positive entries than top_k or a negative one.
[[nodiscard]] double expected_hits(std::span<const double> popularity, double top_k,
                                   double num_tokens);

// Probability that a token selects each expert: the popularity scaled to a sum of top_k, with
// what is above 1 given to the others.
[[nodiscard]] std::vector<double> selection_probabilities(std::span<const double> popularity,
                                                          double top_k);

// The fullest of `num_ranks` ranks over the mean, experts in order, whole experts a rank. 1 for one
// rank.
[[nodiscard]] double rank_load_ratio(std::span<const double> popularity, std::int32_t num_ranks);

// Popularity of a power law: expert i gets (i + 1)^-alpha, summing to 1, most popular first.
[[nodiscard]] std::vector<double> power_law_popularity(std::int64_t num_experts, double alpha);

// A skewed layer against a uniform one: distinct experts read (decode) and the fullest rank's work
// (prefill). 1 and 1 without skew.
struct SkewFactors {
  double hits = 1.0;  // at the given number of tokens
  double load = 1.0;
};
[[nodiscard]] SkewFactors skew_factors(const RoutingSkew& skew, std::int64_t num_experts,
                                       double top_k, std::int32_t num_ranks, double num_tokens);

}  // namespace moe::planner
