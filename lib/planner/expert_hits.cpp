#include "lib/planner/expert_hits.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::planner {

double expected_hits(double num_experts, double top_k, double num_tokens) {
  if (num_experts <= 0.0 || top_k <= 0.0 || num_tokens <= 0.0) return 0.0;
  if (top_k >= num_experts) return num_experts;
  // -expm1(n log1p(-p)) keeps its digits when p is small.
  return -num_experts * std::expm1(num_tokens * std::log1p(-top_k / num_experts));
}

std::vector<double> selection_probabilities(std::span<const double> popularity, double top_k) {
  double total = 0.0;
  std::size_t num_positive = 0;
  for (const double share : popularity) {
    if (!(share >= 0.0) || !std::isfinite(share)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("expected expert popularity >= 0, found {}", share));
    }
    total += share;
    if (share > 0.0) ++num_positive;
  }
  if (static_cast<double>(num_positive) < top_k) {
    throw Error(ErrorCode::kInput,
                fmt::format("expected at least top_k = {} experts that are selected at all, found "
                            "{} in the popularity",
                            top_k, num_positive));
  }
  std::vector<double> result(popularity.begin(), popularity.end());
  for (double& p : result) p *= top_k / total;
  // An expert cannot be picked twice by one token: what exceeds 1 goes to the others in
  // proportion. Each round fixes at least one expert at 1.
  for (std::size_t round = 0; round < result.size(); ++round) {
    double excess = 0.0;
    double open = 0.0;
    for (double& p : result) {
      if (p > 1.0) {
        excess += p - 1.0;
        p = 1.0;
      } else if (p < 1.0) {
        open += p;
      }
    }
    if (excess <= 1e-12 || open <= 0.0) break;
    for (double& p : result) {
      if (p < 1.0) p *= 1.0 + excess / open;
    }
  }
  return result;
}

double expected_hits(std::span<const double> popularity, double top_k, double num_tokens) {
  if (num_tokens <= 0.0) return 0.0;
  double hits = 0.0;
  for (const double p : selection_probabilities(popularity, top_k)) {
    hits += p >= 1.0 ? 1.0 : -std::expm1(num_tokens * std::log1p(-p));
  }
  return hits;
}

double rank_load_ratio(std::span<const double> popularity, std::int32_t num_ranks) {
  if (num_ranks <= 1 || popularity.empty()) return 1.0;
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const double total = std::accumulate(popularity.begin(), popularity.end(), 0.0);
  if (total <= 0.0) return 1.0;
  double worst = 0.0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t begin = popularity.size() * rank / ranks;
    const std::size_t end = popularity.size() * (rank + 1) / ranks;
    double load = 0.0;
    for (std::size_t i = begin; i < end; ++i) load += popularity[i];
    worst = std::max(worst, load);
  }
  return std::max(1.0, worst * static_cast<double>(ranks) / total);
}

std::vector<double> power_law_popularity(std::int64_t num_experts, double alpha) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < num_experts; ++i) {
    result.push_back(std::pow(static_cast<double>(i + 1), -alpha));
  }
  const double total = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& share : result) share /= total;
  return result;
}

SkewFactors skew_factors(const RoutingSkew& skew, std::int64_t num_experts, double top_k,
                         std::int32_t num_ranks, double num_tokens) {
  SkewFactors factors;
  if (!skew.popularity.empty() &&
      static_cast<std::int64_t>(skew.popularity.size()) == num_experts) {
    const double uniform = expected_hits(static_cast<double>(num_experts), top_k, num_tokens);
    if (uniform > 0.0) {
      factors.hits = expected_hits(skew.popularity, top_k, num_tokens) / uniform;
    }
    factors.load = rank_load_ratio(skew.popularity, num_ranks);
  }
  if (skew.rank_max_over_mean > 0.0) factors.load = std::max(1.0, skew.rank_max_over_mean);
  if (num_ranks <= 1) factors.load = 1.0;
  return factors;
}

}  // namespace moe::planner
