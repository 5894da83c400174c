// Reference figures: tests/data/routing/expected_metrics.json, computed with numpy.

#include "lib/balance/capacity.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/balance/capacity_law.hpp"
#include "lib/base/error.hpp"
#include "lib/base/rng.hpp"
#include "lib/json/read.hpp"
#include "tests/lib/balance/support.hpp"

namespace moe::balance {
namespace {

using json::Json;

constexpr std::int64_t kTokens = 256;

Json expected() {
  return json::parse_file(MOE_SOURCE_DIR "/tests/data/routing/expected_metrics.json");
}

// Full windows of 256 tokens.
std::vector<std::vector<std::int64_t>> windows_of(const std::string& domain) {
  const test::TokenIds tokens = test::esft_ids(domain);
  std::vector<std::vector<std::int64_t>> windows;
  for (std::int64_t begin = 0; begin + kTokens <= tokens.num_tokens; begin += kTokens) {
    windows.push_back(test::esft_counts(tokens, begin, begin + kTokens));
  }
  return windows;
}

TEST(Capacity, DropsWhatTheReferenceDrops) {
  const Json metrics = expected();
  int num_compared = 0;
  for (const char* domain : {"law", "intent", "summary"}) {
    const auto windows = windows_of(domain);
    for (const auto& [factor, drop] : metrics.at("esft").at(domain).at("drop_rate_T256").items()) {
      const std::int64_t capacity = expert_capacity({}, std::stod(factor), kTokens, 6, 64, 0);
      EXPECT_EQ(capacity, drop.at("capacity").get<std::int64_t>()) << factor;
      Overflow sum;
      for (const std::vector<std::int64_t>& counts : windows) {
        const Overflow window = overflow(counts, capacity);
        sum.num_assignments += window.num_assignments;
        sum.num_dropped += window.num_dropped;
      }
      EXPECT_EQ(sum.num_assignments, drop.at("assignments").get<std::int64_t>());
      EXPECT_EQ(sum.num_dropped, drop.at("dropped").get<std::int64_t>()) << domain << factor;
      EXPECT_NEAR(*sum.rate(), drop.at("rate").get<double>(), 1e-6);
      ++num_compared;
    }
  }
  EXPECT_EQ(num_compared, 24);
}

TEST(Capacity, FollowsEachSystemsFormula) {
  // 100 tokens, top-2, 8 experts, factor 1.3, busiest expert 60.
  const auto capacity = [](CapacityFormula formula, double factor, CapacityRule rule = {}) {
    rule.formula = formula;
    return expert_capacity(rule, factor, 100, 2, 8, 60);
  };
  EXPECT_EQ(capacity(CapacityFormula::kSwitch, 1.3), 33);     // ceil(32.5)
  EXPECT_EQ(capacity(CapacityFormula::kDeepSpeed, 1.3), 17);  // ceil(16.25), top_k is not in it
  EXPECT_EQ(capacity(CapacityFormula::kDeepSpeed, 0.1, {.min_capacity = 4}), 4);
  EXPECT_EQ(capacity(CapacityFormula::kMegatron, 1.3), 33);
  EXPECT_EQ(capacity(CapacityFormula::kTutel, 1.3), 32);   // 2 * int(1.3 * 13)
  EXPECT_EQ(capacity(CapacityFormula::kTutel, 0.0), 60);   // the largest count
  EXPECT_EQ(capacity(CapacityFormula::kTutel, -1.3), 32);  // the smaller
  EXPECT_EQ(capacity(CapacityFormula::kTutel, -9.0), 60);
  EXPECT_EQ(capacity(CapacityFormula::kTutel, 1.3, {.alignment = 8}), 32);
  EXPECT_EQ(capacity(CapacityFormula::kTutel, 1.5, {.alignment = 8}), 40);  // 38 rounded up
  EXPECT_EQ(capacity(CapacityFormula::kMegaBlocks, 1.3), 32);               // int(32.5)
  EXPECT_EQ(capacity(CapacityFormula::kMegaBlocks, 0.0), 60);
  EXPECT_EQ(capacity(CapacityFormula::kFastMoe, 1.2), 30);  // 120 * 2 / 8
  EXPECT_EQ(capacity(CapacityFormula::kFastMoe, 1.2, {.num_ranks = 4}), 7);
}

// databricks/megablocks pull request 125: a factor of 16384 asked for a TiB.
TEST(Capacity, NeverExceedsTheTokens) {
  EXPECT_EQ(expert_capacity({}, 16384.0, 100, 2, 8, 0), 100);
  EXPECT_EQ(expert_capacity({.min_capacity = 500}, 1.0, 0, 2, 8, 0), 0);
  EXPECT_EQ(expert_capacity({.formula = CapacityFormula::kMegaBlocks, .num_ranks = 1000}, 1e300,
                            1'000'000'000, 8, 256, 0),
            1'000'000'000);
}

TEST(Capacity, DoesNotLoseASlotToRounding) {
  EXPECT_EQ(expert_capacity({}, 1.1, 640, 1, 64, 0), 11);  // 1.1 * 640 is above 704 in binary
}

// fill = (1 - drop) / CF_eff with CF_eff = C E / (T k): fill says nothing that drops do not.
TEST(Capacity, FillFollowsFromDrops) {
  LawOptions options;
  options.law = CapacityLaw::kLiteralRate;
  CapacityController controller(options, 6);
  for (const std::vector<std::int64_t>& counts : windows_of("law")) {
    const LawWindow window = controller.step(counts, 64, kTokens);
    const double effective = static_cast<double>(window.capacity) * 64.0 / (kTokens * 6.0);
    EXPECT_NEAR(*window.fill, (1.0 - *window.drop_rate) / effective, 1e-12);
  }
}

TEST(CapacityLaw, MovesAsTheReferenceMoves) {
  const Json series = expected().at("capacity_control_law_intent_summary");
  for (const auto& [law, name, target] :
       {std::tuple{CapacityLaw::kLiteralRate, "literal_rate", 0.06},
        {CapacityLaw::kLiteralCount, "literal_count", 0.06},
        {CapacityLaw::kBounded, "proposed", 0.06}}) {
    LawOptions options;
    options.law = law;
    options.target_drop_rate = target;
    CapacityController controller(options, 6);
    std::size_t i = 0;
    for (const char* domain : {"law", "intent", "summary"}) {
      for (const std::vector<std::int64_t>& counts : windows_of(domain)) {
        const LawWindow window = controller.step(counts, 64, kTokens);
        EXPECT_NEAR(window.factor, series.at(name).at(i).at(0).get<double>(), 2e-6)
            << name << " window " << i;
        EXPECT_NEAR(*window.drop_rate, series.at(name).at(i).at(1).get<double>(), 1e-6)
            << name << " window " << i;
        ++i;
      }
    }
    EXPECT_EQ(i, series.at(name).size());
  }
}

LawWindow run_law(CapacityLaw law, double start, const std::vector<std::int64_t>& counts,
                  int num_windows) {
  LawOptions options;
  options.law = law;
  options.start = start;
  options.target_drop_rate = 0.06;
  CapacityController controller(options, 6);
  LawWindow last;
  for (int i = 0; i < num_windows; ++i) last = controller.step(counts, 64, kTokens);
  return last;
}

// Section of the article's law: it climbs on balanced traffic, where there is nothing to gain.
TEST(CapacityLaw, LiteralClimbsToItsBoundOnBalancedTraffic) {
  const std::vector<std::int64_t> balanced(64, 24);
  EXPECT_DOUBLE_EQ(run_law(CapacityLaw::kLiteralRate, 1.3, balanced, 30).factor, 2.0);
  EXPECT_NEAR(run_law(CapacityLaw::kBounded, 1.3, balanced, 60).factor, 1.05, 0.051);
  EXPECT_NEAR(run_law(CapacityLaw::kFeedForward, 1.3, balanced, 3).factor, 1.0, 0.01);
}

// Two starts a little apart end at opposite bounds: the rest point is unstable.
TEST(CapacityLaw, LiteralIsBistable) {
  std::vector<std::int64_t> skewed(64, 14);
  for (std::size_t i = 0; i < 16; ++i) skewed[i] = 54;
  EXPECT_DOUBLE_EQ(run_law(CapacityLaw::kLiteralRate, 1.0, skewed, 200).factor, 1.0);
  EXPECT_DOUBLE_EQ(run_law(CapacityLaw::kLiteralRate, 2.0, skewed, 200).factor, 2.0);
  EXPECT_NEAR(literal_rest_drop_rate({}, 1.0), 0.25, 1e-12);
  EXPECT_NEAR(literal_rest_drop_rate({}, 2.0), 1.0 / 7.0, 1e-12);
}

TEST(CapacityLaw, LiteralWithCountsFallsInOneWindow) {
  std::vector<std::int64_t> skewed(64, 20);
  skewed[0] = 276;
  EXPECT_DOUBLE_EQ(run_law(CapacityLaw::kLiteralCount, 2.0, skewed, 2).factor, 1.0);
}

TEST(CapacityLaw, StaysInsideItsBoundsWhateverComes) {
  Rng rng(3);
  for (const CapacityLaw law :
       {CapacityLaw::kStatic, CapacityLaw::kLiteralRate, CapacityLaw::kLiteralCount,
        CapacityLaw::kFlipped, CapacityLaw::kBounded, CapacityLaw::kFeedForward}) {
    LawOptions options;
    options.law = law;
    CapacityController controller(options, 2);
    for (int i = 0; i < 200; ++i) {
      std::vector<std::int64_t> counts(16);
      std::int64_t sum = 0;
      for (std::int64_t& count : counts) {
        count = static_cast<std::int64_t>(rng.next_below(1 + rng.next_below(200)));
        sum += count;
      }
      const LawWindow window = controller.step(counts, 16, (sum + 1) / 2);
      EXPECT_GE(window.factor, 1.0);
      EXPECT_LE(window.factor, 2.0);
      EXPECT_LE(window.num_dropped, window.num_assignments);
    }
  }
}

TEST(CapacityLaw, HoldsInAnEmptyWindow) {
  CapacityController controller({}, 2);
  const LawWindow window = controller.step(std::vector<std::int64_t>(16, 0), 16, 0);
  EXPECT_FALSE(window.drop_rate.has_value());
  EXPECT_DOUBLE_EQ(controller.factor(), 1.3);
}

TEST(CapacityLaw, NeedIsTheSmallestFactorThatMeetsTheTarget) {
  const std::vector<std::int64_t> counts = windows_of("intent").front();
  const double need = needed_factor({}, 0.06, counts, 64, kTokens, 6);
  const auto rate = [&](double factor) {
    return *overflow(counts, expert_capacity({}, factor, kTokens, 6, 64, 0)).rate();
  };
  EXPECT_LE(rate(need), 0.06);
  EXPECT_GT(rate(need - 0.01), 0.06);
  // Nothing dropped: the factor that the busiest expert needs, in hundredths, capacity rounded up.
  const double all = needed_factor({}, 0.0, counts, 64, kTokens, 6);
  EXPECT_EQ(overflow(counts, expert_capacity({}, all, kTokens, 6, 64, 0)).num_dropped, 0);
}

TEST(CapacityLaw, RefusesOptionsWithoutSense) {
  LawOptions reversed;
  reversed.min_factor = 3.0;
  EXPECT_THROW(check_law(reversed), Error);
  LawOptions outside;
  outside.start = 5.0;
  EXPECT_THROW(check_law(outside), Error);
  LawOptions gain;
  gain.drop_gain = std::nan("");
  EXPECT_THROW(check_law(gain), Error);
}

}  // namespace
}  // namespace moe::balance
