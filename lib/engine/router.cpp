#include "lib/engine/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moe::engine {
namespace {

using model::GroupRule;
using model::RouterRule;
using model::ScoreFunction;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void softmax(const float* logits, std::int64_t count, float* out) {
  const float largest = *std::max_element(logits, logits + count);
  float sum = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = std::exp(logits[i] - largest);
    sum += out[i];
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] /= sum;
}

float sigmoid(float value) {
  return 1.0F / (1.0F + std::exp(-value));
}

// The p-norm of non-negative weights.
float weight_norm(double p, const float* weights, std::int32_t count) {
  float sum = 0.0F;
  if (p == 1.0) {
    for (std::int32_t k = 0; k < count; ++k) sum += weights[k];
    return sum;
  }
  for (std::int32_t k = 0; k < count; ++k) sum += std::pow(weights[k], static_cast<float>(p));
  return std::pow(sum, static_cast<float>(1.0 / p));
}

// Takes the largest value out, the first of equals.
std::int64_t take_best(float* values, std::int64_t count) {
  const std::int64_t best = std::max_element(values, values + count) - values;
  values[best] = kMinusInfinity;
  return best;
}

float group_score(GroupRule rule, const float* values, std::int64_t count) {
  float first = kMinusInfinity;
  float second = kMinusInfinity;
  for (std::int64_t i = 0; i < count; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return rule == GroupRule::kTop2Sum ? first + second : first;
}

// Experts outside the best groups leave the selection: at minus infinity, not at zero, which would
// beat a negative score of a kept group. `group_scores` [num_groups] is scratch.
void mask_groups(const RouterRule& rule, std::int64_t num_experts, float* values,
                 float* group_scores) {
  const std::int64_t group_size = num_experts / rule.num_groups;
  for (std::int64_t group = 0; group < rule.num_groups; ++group) {
    group_scores[group] = group_score(rule.group_rule, values + group * group_size, group_size);
  }
  for (std::int32_t kept = 0; kept < rule.num_groups_kept; ++kept) {
    take_best(group_scores, rule.num_groups);
  }
  for (std::int64_t group = 0; group < rule.num_groups; ++group) {
    if (group_scores[group] == kMinusInfinity) continue;  // taken: kept
    std::fill_n(values + group * group_size, group_size, kMinusInfinity);
  }
}

// Sparsemixer at inference (Liu et al. 2023, arXiv 2310.00811, as in Phi-3.5-MoE): one round per
// expert. Each round keeps the logits within a relative distance of the largest one left and takes
// that one with the softmax weight it has among them. Distances are relative to the original
// logits, whose absolute value counts as at least the round's maximum.
void route_sparsemixer(const RouterRule& rule, std::span<const float> logits, std::int32_t top_k,
                       float* remaining, std::int32_t* ids, float* weights) {
  const auto count = static_cast<std::int64_t>(logits.size());
  const auto threshold = static_cast<float>(2.0 * rule.sparsemixer_eps);
  std::copy(logits.begin(), logits.end(), remaining);
  for (std::int32_t round = 0; round < top_k; ++round) {
    const std::int64_t best = std::max_element(remaining, remaining + count) - remaining;
    const float largest = remaining[best];
    float sum = 0.0F;
    for (std::int64_t i = 0; i < count; ++i) {
      const float logit = logits[static_cast<std::size_t>(i)];
      const float reference = std::max(std::abs(logit), largest);
      if ((largest - logit) / reference > threshold) continue;
      sum += std::exp(remaining[i] - largest);
    }
    ids[round] = static_cast<std::int32_t>(best);
    weights[round] = 1.0F / sum;
    remaining[best] = kMinusInfinity;
  }
}

// Scores that weights are made of; for kLogits the logits themselves.
void make_scores(const RouterRule& rule, std::span<const float> logits, float* scores) {
  const auto count = static_cast<std::int64_t>(logits.size());
  switch (rule.score) {
    case ScoreFunction::kSoftmax:
      softmax(logits.data(), count, scores);
      return;
    case ScoreFunction::kSigmoid:
      for (std::int64_t i = 0; i < count; ++i) {
        scores[i] = sigmoid(logits[static_cast<std::size_t>(i)]);
      }
      return;
    case ScoreFunction::kLogits:
    case ScoreFunction::kLogitsSigmoid:
    case ScoreFunction::kSparsemixer:
      std::copy(logits.begin(), logits.end(), scores);
      return;
  }
}

}  // namespace

std::int64_t route_scratch_floats(std::int64_t num_experts) {
  return 3 * num_experts;
}

void route(const RouterRule& rule, std::span<const float> logits, const float* correction_bias,
           std::int32_t top_k, float* scratch, std::int32_t* ids, float* weights) {
  const auto num_experts = static_cast<std::int64_t>(logits.size());
  float* const scores = scratch;
  float* const selection = scratch + num_experts;
  float* const group_scores = scratch + 2 * num_experts;
  if (rule.score == ScoreFunction::kSparsemixer) {
    route_sparsemixer(rule, logits, top_k, scores, ids, weights);
  } else {
    make_scores(rule, logits, scores);
    for (std::int64_t i = 0; i < num_experts; ++i) {
      selection[i] = correction_bias == nullptr ? scores[i] : scores[i] + correction_bias[i];
    }
    if (rule.group_rule != GroupRule::kNone) {
      mask_groups(rule, num_experts, selection, group_scores);
    }
    for (std::int32_t k = 0; k < top_k; ++k) {
      const std::int64_t best = take_best(selection, num_experts);
      ids[k] = static_cast<std::int32_t>(best);
      weights[k] = scores[best];
    }
    if (rule.score == ScoreFunction::kLogits) softmax(weights, top_k, weights);
    if (rule.score == ScoreFunction::kLogitsSigmoid) {
      for (std::int32_t k = 0; k < top_k; ++k) weights[k] = sigmoid(weights[k]);
    }
  }
  if (rule.renormalize) {
    const float norm =
        weight_norm(rule.renormalize_p, weights, top_k) + static_cast<float>(rule.renormalize_eps);
    for (std::int32_t k = 0; k < top_k; ++k) weights[k] /= norm;
  }
  for (std::int32_t k = 0; k < top_k; ++k) weights[k] *= static_cast<float>(rule.scale);
}

}  // namespace moe::engine
