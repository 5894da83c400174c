#include "lib/engine/sampler.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::engine {
namespace {

std::map<std::int32_t, int> draw(const std::vector<float>& logits, const SamplingOptions& options,
                                 int count) {
  Rng rng(options.seed);
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sample(logits, options, rng)];
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  EXPECT_EQ(argmax(std::vector<float>{1.0F, 3.0F, 3.0F, 2.0F}), 1);
  Rng rng(1);
  EXPECT_EQ(sample(std::vector<float>{1.0F, 3.0F, 3.0F}, {}, rng), 1);
}

TEST(Sampler, GreedyDrawsNoRandomNumber) {
  Rng used(9);
  Rng fresh(9);
  static_cast<void>(sample(std::vector<float>{1.0F, 3.0F}, {}, used));
  EXPECT_EQ(used.next_bits(), fresh.next_bits());
}

TEST(Sampler, FrequenciesFollowTheSoftmaxAtTheTemperature) {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F, -1.0F};
  SamplingOptions options;
  options.temperature = 2.0;
  options.seed = 4;
  constexpr int kDraws = 40000;
  std::map<std::int32_t, int> counts = draw(logits, options, kDraws);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) / 2.0);
  for (std::int32_t id = 0; id < 4; ++id) {
    const double p =
        std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]) / 2.0) / sum;
    // Five standard deviations of a binomial share.
    EXPECT_NEAR(counts[id] / static_cast<double>(kDraws), p, 5.0 * std::sqrt(p * (1 - p) / kDraws));
  }
}

TEST(Sampler, TopKKeepsTheBestAndLowerIdsOnTies) {
  const std::vector<float> logits = {1.0F, 2.0F, 1.0F, 1.0F, 3.0F};
  SamplingOptions options;
  options.temperature = 1.0;
  options.top_k = 3;
  const std::map<std::int32_t, int> counts = draw(logits, options, 2000);
  EXPECT_THAT(counts, ::testing::UnorderedElementsAre(::testing::Key(0), ::testing::Key(1),
                                                      ::testing::Key(4)));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  SamplingOptions options;
  options.temperature = 1.0;
  options.top_p = 0.6;
  EXPECT_EQ(draw(logits, options, 500).size(), 2U);
  options.top_p = 0.45;
  EXPECT_THAT(draw(logits, options, 200), ::testing::ElementsAre(::testing::Key(1)));
  options.top_p = 0.85;
  EXPECT_EQ(draw(logits, options, 500).size(), 3U);
  options.top_p = 0.0;  // never empty
  EXPECT_THAT(draw(logits, options, 200), ::testing::ElementsAre(::testing::Key(1)));
}

// The temperature comes first: at a low one the set of top-p shrinks.
TEST(Sampler, TopPSeesTheTemperature) {
  const std::vector<float> logits = {0.0F, 1.0F};
  SamplingOptions options;
  options.top_p = 0.9;
  options.temperature = 1.0;  // 0.27, 0.73
  EXPECT_EQ(draw(logits, options, 500).size(), 2U);
  options.temperature = 0.3;  // 0.03, 0.97
  EXPECT_EQ(draw(logits, options, 500).size(), 1U);
}

TEST(Sampler, SameSeedGivesTheSameTokens) {
  Rng values(3);
  std::vector<float> logits(100);
  for (float& logit : logits) logit = static_cast<float>(values.next_normal());
  SamplingOptions options;
  options.temperature = 1.0;
  const auto tokens = [&](std::uint64_t seed) {
    Rng rng(seed);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 50; ++i) ids.push_back(sample(logits, options, rng));
    return ids;
  };
  EXPECT_EQ(tokens(12), tokens(12));
  EXPECT_NE(tokens(12), tokens(13));
}

}  // namespace
}  // namespace moe::engine
