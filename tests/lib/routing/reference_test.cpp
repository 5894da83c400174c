// Goal: the figures of recorded routing are those that numpy gave for the same files. Method:
// expected_metrics.json (made outside of this project, definitions inside) against our readers and
// metrics. Counts are exact; ratios to the six digits that the file holds.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/skew.hpp"
#include "lib/routing/token_figures.hpp"
#include "lib/routing/windows.hpp"
#include "tests/lib/routing/support.hpp"

namespace moe::routing {
namespace {

using json::Json;

constexpr double kSixDigits = 6e-7;

const Json& expected() {
  static const Json document = json::parse_file(test::data_file("expected_metrics.json"));
  return document;
}

struct Spread {
  double sum = 0.0;
  double max = -1e300;
  double min = 1e300;
  int count = 0;
  void add(const std::optional<double>& value) {
    if (!value.has_value()) return;
    sum += *value;
    max = std::max(max, *value);
    min = std::min(min, *value);
    ++count;
  }
};

void expect_spread(const Json& reference, const Spread& figure, const std::string& what) {
  EXPECT_NEAR(figure.sum / figure.count, reference.at("mean").get<double>(), kSixDigits) << what;
  EXPECT_NEAR(figure.max, reference.at("max").get<double>(), kSixDigits) << what;
  EXPECT_NEAR(figure.min, reference.at("min").get<double>(), kSixDigits) << what;
}

void expect_skew(const Json& reference, const ExpertCounts& counts, const std::string& name) {
  Spread max_over_mean;
  Spread cv;
  Spread gini;
  Spread entropy;
  Spread max_over_min;
  std::int64_t idle = 0;
  for (std::int64_t l = 0; l < counts.num_layers(); ++l) {
    const SkewFigures skew = skew_of(counts.at(0, l));
    max_over_mean.add(skew.max_over_mean);
    cv.add(skew.cv_population);
    gini.add(skew.gini);
    entropy.add(skew.entropy_bits);
    max_over_min.add(skew.max_over_min);
    idle += skew.num_idle;
  }
  const Json& skew = reference.at("skew");
  expect_spread(skew.at("max_over_mean"), max_over_mean, name + " max_over_mean");
  expect_spread(skew.at("cv_population"), cv, name + " cv");
  expect_spread(skew.at("gini"), gini, name + " gini");
  expect_spread(skew.at("entropy_bits"), entropy, name + " entropy");
  EXPECT_EQ(idle, skew.at("idle_cells").get<std::int64_t>()) << name;
  if (skew.at("max_over_min").is_null()) {
    EXPECT_GT(idle, 0) << name;
  } else {
    expect_spread(skew.at("max_over_min"), max_over_min, name + " max_over_min");
  }
}

void expect_balancedness(const Json& reference, const ExpertCounts& counts,
                         const std::string& name) {
  for (const auto& [gpus, figures] : reference.at("linear_balancedness").items()) {
    std::vector<std::vector<double>> loads;
    for (std::int64_t l = 0; l < counts.num_layers(); ++l) {
      loads.push_back(linear_gpu_loads(counts.at(0, l), std::stoll(gpus)));
    }
    const BalancednessFigures balance = balancedness_of(loads);
    EXPECT_NEAR(*balance.mean, figures.at("mean_over_layers").get<double>(), kSixDigits)
        << name << " " << gpus;
    EXPECT_NEAR(*balance.worst, figures.at("worst_layer").get<double>(), kSixDigits)
        << name << " " << gpus;
    EXPECT_NEAR(*balance.of_sums, figures.at("ratio_of_sums").get<double>(), kSixDigits)
        << name << " " << gpus;
  }
}

TEST(ReferenceFigures, OfTokenTracesAreReproduced) {
  for (const auto& [name, reference] : expected().at("esft").items()) {
    RoutingInput input = open_input(test::data_file("esft/" + name + "_topk.npy"));
    EXPECT_EQ(input.info.num_experts, reference.at("num_experts").get<int>());
    EXPECT_EQ(input.info.top_k, reference.at("top_k").get<int>());
    EXPECT_EQ(input.info.layers.front(), 1);
    EXPECT_EQ(input.info.layers.back(), 26);
    EXPECT_EQ(input.tokens->num_tokens(), reference.at("tokens").get<std::int64_t>());
    const ExpertCounts counts = count_windows(input);
    expect_skew(reference, counts, name);
    expect_balancedness(reference, counts, name);
    const TokenFigures figures = token_figures(input, 8, 1);
    EXPECT_NEAR(*figures.reuse_of_previous_token,
                reference.at("reuse_of_previous_token").get<double>(), kSixDigits);
    EXPECT_NEAR(*figures.gpus_per_token_layer,
                reference.at("linear_EP8_mean_distinct_gpus_per_token_layer").get<double>(),
                kSixDigits);
  }
}

TEST(ReferenceFigures, OfDropsAreExact) {
  for (const auto& [name, reference] : expected().at("esft").items()) {
    RoutingInput input = open_input(test::data_file("esft/" + name + "_topk.npy"));
    WindowSpec spec = parse_window("256tokens");
    spec.drop_partial = true;
    const ExpertCounts windows = count_windows(input, spec);
    for (const auto& [factor, figures] : reference.at("drop_rate_T256").items()) {
      const std::int64_t capacity = capacity_of(std::stod(factor), 256, 6, 64);
      EXPECT_EQ(capacity, figures.at("capacity").get<std::int64_t>()) << factor;
      std::int64_t dropped = 0;
      std::int64_t assignments = 0;
      for (std::int64_t w = 0; w < windows.num_windows(); ++w) {
        for (std::int64_t l = 0; l < windows.num_layers(); ++l) {
          const DropFigures drops = drops_at(windows.at(w, l), capacity);
          dropped += drops.num_dropped;
          assignments += drops.num_assignments;
        }
      }
      EXPECT_EQ(dropped, figures.at("dropped").get<std::int64_t>()) << name << " " << factor;
      EXPECT_EQ(assignments, figures.at("assignments").get<std::int64_t>()) << name;
    }
  }
}

TEST(ReferenceFigures, OfRecordedCountsAreReproduced) {
  for (const auto& [name, reference] : expected().at("sglang_dsv3").items()) {
    const ExpertCounts counts = load_counts(test::data_file("sglang_dsv3/" + name + ".json"));
    EXPECT_EQ(counts.info.format, Format::kSglangJson);
    EXPECT_EQ(counts.empty_layers, reference.at("zero_rows").get<std::vector<std::int32_t>>());
    EXPECT_EQ(counts.info.layers.front(), 3);
    EXPECT_EQ(counts.num_layers(), 58);
    expect_skew(reference, counts, name);
    expect_balancedness(reference, counts, name);
  }
}

// Two layers whose ranks have loads (100, 200): each is balanced to 0.75. Reducing over layers
// instead of GPUs would print 1.
TEST(Balancedness, IsReducedOverGpusNotOverLayers) {
  EXPECT_DOUBLE_EQ(*balancedness_of({{100.0, 200.0}, {100.0, 200.0}}).mean, 0.75);
  EXPECT_DOUBLE_EQ(*balancedness_of({{100.0, 200.0}, {200.0, 100.0}}).mean, 0.75);
}

TEST(Balancedness, LeavesLayersWithoutTokensOut) {
  const BalancednessFigures figures = balancedness_of({{0.0, 0.0}, {1.0, 3.0}});
  EXPECT_EQ(figures.num_layers, 1);
  EXPECT_DOUBLE_EQ(*figures.mean, 2.0 / 3.0);
  EXPECT_EQ(figures.worst_layer_idx, 1);
  EXPECT_FALSE(balancedness_of({{0.0, 0.0}}).mean.has_value());
}

TEST(Skew, OfNothingIsAbsentAndOfOneExpertIsExtreme) {
  const std::vector<std::int64_t> none(4, 0);
  EXPECT_FALSE(skew_of(std::span(none)).max_over_mean.has_value());
  EXPECT_FALSE(skew_of(std::span(none)).balancedness.has_value());
  const std::vector<std::int64_t> one = {0, 1'000'000'000, 0, 0};
  const SkewFigures figures = skew_of(std::span(one));
  EXPECT_DOUBLE_EQ(*figures.max_over_mean, 4.0);
  EXPECT_DOUBLE_EQ(*figures.imbalance_ratio, 3.0);
  EXPECT_DOUBLE_EQ(*figures.gini, 0.75);
  EXPECT_DOUBLE_EQ(*figures.entropy_bits, 0.0);
  EXPECT_EQ(figures.num_idle, 3);
  EXPECT_FALSE(figures.max_over_min.has_value());
}

TEST(Skew, FillIsOneMinusDropsOverTheEffectiveFactor) {
  const std::vector<std::int64_t> counts = {40, 10, 3, 11};
  for (const std::int64_t capacity : {8, 16, 20, 64}) {
    const DropFigures drops = drops_at(counts, capacity);
    const double drop =
        static_cast<double>(drops.num_dropped) / static_cast<double>(drops.num_assignments);
    const double factor = static_cast<double>(capacity) * 4.0 / 64.0;
    const double fill = static_cast<double>(drops.num_assignments - drops.num_dropped) /
                        static_cast<double>(drops.num_slots);
    EXPECT_NEAR(fill, (1.0 - drop) / factor, 1e-15);
  }
}

TEST(GpuLoads, OfExpertsThatDoNotDivideArePlacedWithOneMoreOnTheFirst) {
  const std::vector<std::int64_t> counts = {1, 2, 4, 8, 16};
  EXPECT_EQ(linear_gpu_loads(counts, 3), (std::vector<double>{3.0, 12.0, 16.0}));
  EXPECT_EQ(linear_gpu_loads(counts, 7), (std::vector<double>{1.0, 2.0, 4.0, 8.0, 16.0, 0.0, 0.0}));
}

TEST(GpuLoads, OfReplicasShareAnExpertsLoad) {
  const std::vector<std::int64_t> counts = {30, 10};
  const std::vector<std::int32_t> slots = {0, 1, 0, 0};
  EXPECT_EQ(placed_gpu_loads(counts, slots, 2), (std::vector<double>{20.0, 20.0}));
}

}  // namespace
}  // namespace moe::routing
