// Rules of the router against a direct transcription of their definitions in f64, and the known
// mistakes of public implementations, each as a case in which the mistake changes the result.

#include "lib/engine/router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/model/dtype.hpp"

namespace moe::engine {
namespace {

using model::GroupRule;
using model::RouterRule;
using model::ScoreFunction;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

struct Choice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Choice choose(const RouterRule& rule, const std::vector<float>& logits, std::int32_t top_k,
              const std::vector<float>& bias = {}) {
  Choice choice;
  choice.ids.resize(static_cast<std::size_t>(top_k));
  choice.weights.resize(static_cast<std::size_t>(top_k));
  std::vector<float> scratch(
      static_cast<std::size_t>(route_scratch_floats(static_cast<std::int64_t>(logits.size()))));
  route(rule, logits, bias.empty() ? nullptr : bias.data(), top_k, scratch.data(),
        choice.ids.data(), choice.weights.data());
  return choice;
}

std::vector<float> random_logits(Rng& rng, std::size_t count) {
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(2.0 * rng.next_normal());
  return logits;
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

RouterRule deepseek_v3_rule() {
  RouterRule rule;
  rule.score = ScoreFunction::kSigmoid;
  rule.has_correction_bias = true;
  rule.group_rule = GroupRule::kTop2Sum;
  rule.num_groups = 4;
  rule.num_groups_kept = 2;
  rule.renormalize = true;
  rule.renormalize_eps = 1e-20;
  rule.scale = 2.5;
  return rule;
}

// The definition of DeepSeek-V3 (arXiv 2412.19437, section 2.1.2) in f64, selection by sorting.
Choice deepseek_v3_reference(const std::vector<float>& logits, const std::vector<float>& bias,
                             std::size_t num_groups, std::size_t kept, std::size_t top_k,
                             bool renormalize, double scale) {
  const std::size_t group_size = logits.size() / num_groups;
  std::vector<double> biased(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    biased[i] = sigmoid(static_cast<double>(logits[i])) + static_cast<double>(bias[i]);
  }
  std::vector<std::pair<double, std::size_t>> groups;
  for (std::size_t group = 0; group < num_groups; ++group) {
    const auto begin = biased.begin() + static_cast<std::ptrdiff_t>(group * group_size);
    std::vector<double> values(begin, begin + static_cast<std::ptrdiff_t>(group_size));
    std::sort(values.rbegin(), values.rend());
    groups.emplace_back(-(values[0] + values[1]), group);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::pair<double, std::size_t>> candidates;
  for (std::size_t i = 0; i < kept; ++i) {
    for (std::size_t e = 0; e < group_size; ++e) {
      const std::size_t expert = groups[i].second * group_size + e;
      candidates.emplace_back(-biased[expert], expert);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  Choice choice;
  std::vector<double> weights;
  double sum = 0.0;
  for (std::size_t k = 0; k < top_k; ++k) {
    const std::size_t expert = candidates[k].second;
    choice.ids.push_back(static_cast<std::int32_t>(expert));
    weights.push_back(sigmoid(static_cast<double>(logits[expert])));
    sum += weights.back();
  }
  for (const double weight : weights) {
    choice.weights.push_back(static_cast<float>(weight / (renormalize ? sum : 1.0) * scale));
  }
  return choice;
}

TEST(Router, GroupRoutingFollowsItsDefinition) {
  Rng rng(7);
  for (int trial = 0; trial < 500; ++trial) {
    RouterRule rule = deepseek_v3_rule();
    rule.renormalize = trial % 2 == 0;
    rule.renormalize_eps = rule.renormalize ? 1e-20 : 0.0;
    const std::vector<float> logits = random_logits(rng, 32);
    const std::vector<float> bias = random_logits(rng, 32);
    const Choice found = choose(rule, logits, 6, bias);
    const Choice expected =
        deepseek_v3_reference(logits, bias, 4, 2, 6, rule.renormalize, rule.scale);
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_THAT(found.weights, Pointwise(FloatNear(2e-6F), expected.weights));
  }
}

// The bias balances the load; it must not leak into the weights.
TEST(Router, CorrectionBiasActsOnTheSelectionOnly) {
  RouterRule rule = deepseek_v3_rule();
  rule.group_rule = GroupRule::kNone;
  rule.renormalize = false;
  rule.scale = 1.0;
  const Choice found = choose(rule, {3.0F, 2.0F, -1.0F, -2.0F}, 2, {0.0F, 0.0F, 5.0F, 0.0F});
  EXPECT_THAT(found.ids, ElementsAre(2, 0));
  EXPECT_FLOAT_EQ(found.weights[0], static_cast<float>(sigmoid(-1.0)));
  EXPECT_FLOAT_EQ(found.weights[1], static_cast<float>(sigmoid(3.0)));
}

// Group 0 has the largest single score, group 1 the largest two.
TEST(Router, GroupScoreIsTheSumOfTheTwoBest) {
  RouterRule rule = deepseek_v3_rule();
  rule.num_groups = 2;
  rule.num_groups_kept = 1;
  const std::vector<float> logits = {4.0F, -6.0F, -6.0F, 2.0F, 2.5F, -6.0F};
  const std::vector<float> no_bias(6, 0.0F);
  EXPECT_THAT(choose(rule, logits, 2, no_bias).ids, ElementsAre(4, 3));
  rule.group_rule = GroupRule::kMax;
  EXPECT_THAT(choose(rule, logits, 2, no_bias).ids, ElementsAre(0, 1));
}

// All biased scores are negative: groups masked with zero would win.
TEST(Router, MaskedGroupsLoseAgainstNegativeScores) {
  RouterRule rule = deepseek_v3_rule();
  rule.num_groups = 2;
  rule.num_groups_kept = 1;
  const std::vector<float> logits = {1.0F, 0.5F, -1.0F, 0.0F};
  const std::vector<float> bias(4, -2.0F);
  EXPECT_THAT(choose(rule, logits, 2, bias).ids, ElementsAre(0, 1));
}

// Near a bias of 8 neighbouring bf16 values are 1/16 apart.
TEST(Router, BiasKeepsItsF32Digits) {
  RouterRule rule = deepseek_v3_rule();
  rule.group_rule = GroupRule::kNone;
  const std::vector<float> bias = {8.02F, 8.0F};
  const std::vector<float> rounded = {model::bf16_to_f32(model::f32_to_bf16(bias[0])),
                                      model::bf16_to_f32(model::f32_to_bf16(bias[1]))};
  const std::vector<float> logits = {0.0F, 0.04F};  // sigmoids 0.01 apart
  EXPECT_THAT(choose(rule, logits, 1, bias).ids, ElementsAre(0));
  EXPECT_THAT(choose(rule, logits, 1, rounded).ids, ElementsAre(1));
}

// Two logits that bf16 cannot tell apart.
TEST(Router, SelectionSeesF32Logits) {
  const std::vector<float> logits = {2.0F, 2.003F};
  EXPECT_EQ(model::f32_to_bf16(logits[0]), model::f32_to_bf16(logits[1]));
  EXPECT_THAT(choose(RouterRule{}, logits, 1).ids, ElementsAre(1));
}

TEST(Router, RenormalisationIsARuleOfTheModel) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 0.0F};
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  RouterRule rule;
  const Choice raw = choose(rule, logits, 2);
  EXPECT_FLOAT_EQ(raw.weights[0], static_cast<float>(std::exp(3.0) / sum));
  EXPECT_FLOAT_EQ(raw.weights[1], static_cast<float>(std::exp(2.0) / sum));
  rule.renormalize = true;
  const Choice normed = choose(rule, logits, 2);
  EXPECT_FLOAT_EQ(normed.weights[0] + normed.weights[1], 1.0F);
  EXPECT_FLOAT_EQ(normed.weights[0] / normed.weights[1], static_cast<float>(std::exp(1.0)));
}

// The scale must not hide behind the renormalisation.
TEST(Router, ScaleAppliesWithAndWithoutRenormalisation) {
  Rng rng(3);
  const std::vector<float> logits = random_logits(rng, 16);
  for (const bool renormalize : {false, true}) {
    for (const ScoreFunction score : {ScoreFunction::kSoftmax, ScoreFunction::kSigmoid}) {
      RouterRule rule;
      rule.score = score;
      rule.renormalize = renormalize;
      const Choice plain = choose(rule, logits, 4);
      rule.scale = 2.5;
      const Choice scaled = choose(rule, logits, 4);
      EXPECT_EQ(plain.ids, scaled.ids);
      for (std::size_t k = 0; k < 4; ++k) {
        EXPECT_FLOAT_EQ(scaled.weights[k], 2.5F * plain.weights[k]);
      }
    }
  }
}

// softmax, top-k, renormalise equals top-k, softmax; without the renormalisation it does not.
TEST(Router, SoftmaxOfTheChosenEqualsRenormalisedSoftmaxOfAll) {
  Rng rng(5);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<float> logits = random_logits(rng, 24);
    RouterRule all;
    all.renormalize = true;
    RouterRule chosen;
    chosen.score = ScoreFunction::kLogits;
    const Choice a = choose(all, logits, 5);
    const Choice b = choose(chosen, logits, 5);
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_THAT(a.weights, Pointwise(FloatNear(1e-6F), b.weights));
    all.renormalize = false;
    const Choice raw = choose(all, logits, 5);
    EXPECT_LT(std::accumulate(raw.weights.begin(), raw.weights.end(), 0.0F), 0.999F);
  }
}

TEST(Router, TiesGoToTheLowerIndex) {
  const std::vector<float> logits = {1.0F, 2.0F, 2.0F, 1.0F, 2.0F};
  EXPECT_THAT(choose(RouterRule{}, logits, 4).ids, ElementsAre(1, 2, 4, 0));
  RouterRule groups = deepseek_v3_rule();
  groups.num_groups = 2;
  groups.num_groups_kept = 1;
  EXPECT_THAT(choose(groups, std::vector<float>(6, 0.5F), 2, std::vector<float>(6, 0.0F)).ids,
              ElementsAre(0, 1));
}

// Two rounds by the definition of the paper, in f64.
TEST(Router, SparsemixerDropsDistantLogitsInEachRound) {
  RouterRule rule;
  rule.score = ScoreFunction::kSparsemixer;
  rule.sparsemixer_eps = 0.01;
  Rng rng(11);
  int num_sharing = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> logits(8);
    for (float& logit : logits) logit = static_cast<float>(1.0 + 0.02 * rng.next_normal());
    const Choice found = choose(rule, logits, 2);
    std::vector<bool> taken(8, false);
    for (std::size_t round = 0; round < 2; ++round) {
      double largest = -1e30;
      std::size_t best = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        if (!taken[i] && static_cast<double>(logits[i]) > largest) {
          largest = static_cast<double>(logits[i]);
          best = i;
        }
      }
      double sum = 0.0;
      int kept = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        const double z = static_cast<double>(logits[i]);
        if (taken[i] || (largest - z) / std::max(std::abs(z), largest) > 0.02) continue;
        sum += std::exp(z - largest);
        ++kept;
      }
      taken[best] = true;
      num_sharing += kept > 1 ? 1 : 0;
      EXPECT_EQ(found.ids[round], static_cast<std::int32_t>(best));
      EXPECT_NEAR(found.weights[round], 1.0 / sum, 1e-5);
    }
  }
  EXPECT_GT(num_sharing, 100);
}

// Llama-4: two logits whose sigmoids round to the same 1 are still told apart.
TEST(Router, SelectsOnLogitsWhereTheWeightIsTheirSigmoid) {
  RouterRule rule;
  rule.score = ScoreFunction::kLogitsSigmoid;
  const Choice choice = choose(rule, {20.0F, -1.0F, 21.0F, 0.5F}, 3);
  EXPECT_THAT(choice.ids, ElementsAre(2, 0, 3));
  EXPECT_FLOAT_EQ(choice.weights[2], static_cast<float>(sigmoid(0.5)));
}

// DBRX: moe_normalize_expert_weights is the p of the norm that divides the weights.
TEST(Router, DividesByThePNormOfTheWeights) {
  RouterRule rule;
  rule.renormalize = true;
  rule.renormalize_p = 2.0;
  const Choice choice = choose(rule, {0.0F, 1.0F, 0.3F, -2.0F}, 2);
  double squares = 0.0;
  for (const float weight : choice.weights) squares += static_cast<double>(weight * weight);
  EXPECT_NEAR(squares, 1.0, 1e-6);
  EXPECT_NEAR(choice.weights[0] / choice.weights[1], std::exp(0.7), 1e-5);
}

}  // namespace
}  // namespace moe::engine
