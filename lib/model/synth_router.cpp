#include "lib/model/synth_router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lib/base/rng.hpp"

namespace moe::model {
namespace {

constexpr std::int32_t kSimulatedTokens = 4096;
constexpr int kIterations = 40;
constexpr double kMaxShare = 0.98;

// Inverse of the standard normal distribution function by bisection; 1e-9 is far below the noise of
// the simulation.
double inverse_normal(double probability) {
  double low = -8.0;
  double high = 8.0;
  while (high - low > 1e-9) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// Counts how often each expert is chosen when the scores of the tokens get these offsets.
class Simulation {
 public:
  Simulation(const MoeConfig& moe, std::uint64_t seed) : moe_(moe), rng_(seed, 0x726f75746572ULL) {
    const auto experts = static_cast<std::size_t>(moe.num_experts);
    scores_.resize(static_cast<std::size_t>(kSimulatedTokens) * experts);
    for (float& score : scores_) {
      const double logit = kRouterLogitStdev * rng_.next_normal();
      score = static_cast<float>(
          moe.router.score == ScoreFunction::kSigmoid ? 1.0 / (1.0 + std::exp(-logit)) : logit);
    }
  }

  [[nodiscard]] std::vector<std::int64_t> counts(const std::vector<double>& offsets) {
    const auto experts = static_cast<std::size_t>(moe_.num_experts);
    std::vector<std::int64_t> counts(experts, 0);
    std::vector<float> biased(experts);
    for (std::size_t token = 0; token < static_cast<std::size_t>(kSimulatedTokens); ++token) {
      for (std::size_t expert = 0; expert < experts; ++expert) {
        biased[expert] = scores_[token * experts + expert] + static_cast<float>(offsets[expert]);
      }
      mask_groups(biased);
      order_.resize(experts);
      std::iota(order_.begin(), order_.end(), 0);
      std::nth_element(order_.begin(), order_.begin() + (moe_.top_k - 1), order_.end(),
                       [&](std::int32_t a, std::int32_t b) {
                         return biased[static_cast<std::size_t>(a)] >
                                biased[static_cast<std::size_t>(b)];
                       });
      for (std::int32_t k = 0; k < moe_.top_k; ++k) {
        ++counts[static_cast<std::size_t>(order_[static_cast<std::size_t>(k)])];
      }
    }
    return counts;
  }

 private:
  void mask_groups(std::vector<float>& scores) const {
    const RouterRule& rule = moe_.router;
    if (rule.group_rule == GroupRule::kNone) return;
    const auto per_group = static_cast<std::size_t>(moe_.num_experts / rule.num_groups);
    std::vector<std::pair<float, std::size_t>> groups;
    for (std::size_t begin = 0; begin < scores.size(); begin += per_group) {
      float first = -INFINITY;
      float second = -INFINITY;
      for (std::size_t at = begin; at < begin + per_group; ++at) {
        if (scores[at] > first) {
          second = std::exchange(first, scores[at]);
        } else {
          second = std::max(second, scores[at]);
        }
      }
      groups.emplace_back(rule.group_rule == GroupRule::kMax ? first : first + second, begin);
    }
    std::sort(groups.begin(), groups.end(), std::greater<>());
    for (std::size_t at = static_cast<std::size_t>(rule.num_groups_kept); at < groups.size();
         ++at) {
      std::fill_n(scores.begin() + static_cast<std::ptrdiff_t>(groups[at].second), per_group,
                  -INFINITY);
    }
  }

  const MoeConfig& moe_;
  Rng rng_;
  std::vector<float> scores_;
  std::vector<std::int32_t> order_;
};

void shuffle(std::vector<std::int32_t>& values, Rng& rng) {
  for (std::size_t at = values.size(); at > 1; --at) {
    std::swap(values[at - 1], values[rng.next_below(at)]);
  }
}

}  // namespace

std::vector<double> zipf_selection_shares(std::int32_t num_experts, std::int32_t top_k,
                                          double exponent) {
  std::vector<double> shares(static_cast<std::size_t>(num_experts));
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    shares[rank] = std::pow(static_cast<double>(rank + 1), -exponent);
  }
  // Scales the uncapped ranks to what the capped ones leave until no rank is above the cap.
  std::size_t num_capped = 0;
  if (top_k >= num_experts) return std::vector<double>(shares.size(), 1.0);
  for (;;) {
    const double rest = static_cast<double>(top_k) - kMaxShare * static_cast<double>(num_capped);
    const double sum = std::accumulate(shares.begin() + static_cast<std::ptrdiff_t>(num_capped),
                                       shares.end(), 0.0);
    for (std::size_t rank = num_capped; rank < shares.size(); ++rank) shares[rank] *= rest / sum;
    if (num_capped == shares.size() || shares[num_capped] <= kMaxShare) return shares;
    while (num_capped < shares.size() && shares[num_capped] > kMaxShare) {
      shares[num_capped++] = kMaxShare;
    }
  }
}

std::vector<float> calibrate_router_offsets(const MoeConfig& moe, double exponent,
                                            std::uint64_t seed) {
  const auto experts = static_cast<std::size_t>(moe.num_experts);
  const std::vector<double> by_rank = zipf_selection_shares(moe.num_experts, moe.top_k, exponent);
  // Rank r goes to group r % groups, so that no group holds all popular experts.
  const auto groups = static_cast<std::size_t>(std::max(moe.router.num_groups, 1));
  std::vector<double> target(experts);
  for (std::size_t rank = 0; rank < experts; ++rank) {
    target[rank % groups * (experts / groups) + rank / groups] = by_rank[rank];
  }
  // The stdev of a sigmoid of a normal logit of stdev 2 is 0.3.
  const double stdev = moe.router.score == ScoreFunction::kSigmoid ? 0.3 : kRouterLogitStdev;
  std::vector<double> offsets(experts, 0.0);
  if (moe.top_k < moe.num_experts) {
    Simulation simulation(moe, seed);
    for (std::size_t expert = 0; expert < experts; ++expert) {
      offsets[expert] = stdev * inverse_normal(target[expert]);
    }
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      const std::vector<std::int64_t> counts = simulation.counts(offsets);
      for (std::size_t expert = 0; expert < experts; ++expert) {
        const double found = (static_cast<double>(counts[expert]) + 0.5) / (kSimulatedTokens + 1.0);
        offsets[expert] += 0.5 * stdev * (inverse_normal(target[expert]) - inverse_normal(found));
      }
    }
  }
  const double mean =
      std::accumulate(offsets.begin(), offsets.end(), 0.0) / static_cast<double>(experts);
  std::vector<float> result(experts);
  std::transform(offsets.begin(), offsets.end(), result.begin(),
                 [&](double offset) { return static_cast<float>(offset - mean); });
  return result;
}

std::vector<std::int32_t> expert_permutation(const MoeConfig& moe, std::uint64_t seed,
                                             std::int32_t layer) {
  const auto stream = static_cast<std::uint64_t>(layer) + 0x7065726d;
  Rng rng(seed, stream);
  const std::int32_t groups = std::max(moe.router.num_groups, 1);
  const std::int32_t per_group = moe.num_experts / groups;
  std::vector<std::int32_t> group_order(static_cast<std::size_t>(groups));
  std::iota(group_order.begin(), group_order.end(), 0);
  shuffle(group_order, rng);
  std::vector<std::int32_t> permutation;
  for (const std::int32_t group : group_order) {
    std::vector<std::int32_t> members(static_cast<std::size_t>(per_group));
    std::iota(members.begin(), members.end(), group * per_group);
    shuffle(members, rng);
    permutation.insert(permutation.end(), members.begin(), members.end());
  }
  return permutation;
}

}  // namespace moe::model
