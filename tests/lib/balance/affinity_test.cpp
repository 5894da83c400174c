#include "lib/balance/affinity.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "lib/balance/balancedness.hpp"
#include "lib/base/error.hpp"
#include "tests/lib/balance/support.hpp"

namespace moe::balance {
namespace {

LoadMatrix even_loads(std::int32_t num_layers, std::int32_t num_experts) {
  return test::loads_of(std::vector<std::vector<double>>(
      static_cast<std::size_t>(num_layers),
      std::vector<double>(static_cast<std::size_t>(num_experts), 1.0)));
}

// Expert e is always followed by 7 - e: placed right, nothing crosses; placed linearly, everything
// does.
TEST(Affinity, FindsThePlacementInWhichNothingMoves) {
  Transitions transitions(3, 8);
  for (std::int32_t e = 0; e < 8; ++e) {
    transitions.add(std::vector<std::int32_t>{e, 7 - e, e}, 1);
  }
  const Cluster cluster = uniform_cluster(4, 8, 2);
  const Placement linear = linear_placement(cluster, 3, 8);
  EXPECT_DOUBLE_EQ(transition_shares(linear, cluster, transitions).cross_node, 1.0);
  const Placement placed = plan_affinity(transitions, even_loads(3, 8), cluster);
  EXPECT_NEAR(transition_shares(placed, cluster, transitions).cross_gpu, 0.0, 1e-12);
  EXPECT_NEAR(transition_bound(cluster, transitions).cross_gpu, 0.0, 1e-12);
  check_placement(placed, "affinity");
}

// Linear placement keeps experts of consecutive layers together no more often than chance: 0.252 of
// the pairs on 4 GPUs, 0.126 on 8, on the whole trace.
TEST(Affinity, LowersCrossingOnRecordedRoutingAndStaysAboveItsBound) {
  const test::TokenIds tokens = test::esft_ids("law");
  Transitions transitions(26, 64);
  const std::size_t row = 26 * 6;
  for (std::size_t begin = 0; begin < tokens.ids.size(); begin += row) {
    transitions.add(std::span(tokens.ids).subspan(begin, row), 6);
  }
  LoadMatrix loads{.num_layers = 26, .num_experts = 64, .values = {}};
  for (const std::int64_t count : test::esft_counts(tokens, 0, tokens.num_tokens)) {
    loads.values.push_back(static_cast<double>(count));
  }
  for (const auto& [num_gpus, chance] : {std::pair{4, 0.252}, {8, 0.126}}) {
    const Cluster cluster = uniform_cluster(num_gpus, 64, 2);
    const Placement linear = linear_placement(cluster, 26, 64);
    const TransitionShares before = transition_shares(linear, cluster, transitions);
    EXPECT_NEAR(1.0 - before.cross_gpu, chance, 0.01);
    const Placement placed = plan_affinity(transitions, loads, cluster);
    const TransitionShares after = transition_shares(placed, cluster, transitions);
    const TransitionShares bound = transition_bound(cluster, transitions);
    EXPECT_LT(after.cross_gpu, before.cross_gpu - 0.05);
    EXPECT_LT(after.cross_node, before.cross_node - 0.05);
    EXPECT_GE(after.cross_gpu, bound.cross_gpu);
    EXPECT_GE(after.cross_node, bound.cross_node);
  }
}

TEST(Affinity, KeepsTheBalanceThatIsAskedFor) {
  const LoadMatrix loads = test::random_loads(2, 16, 3);
  Transitions transitions(2, 16);
  for (std::int32_t e = 0; e < 16; ++e) {
    transitions.add(std::vector<std::int32_t>{e, (e * 5) % 16}, 1);
  }
  const Cluster cluster = uniform_cluster(4, 16, 1);
  AffinityOptions options;
  options.min_balancedness = 1.0;
  const Placement placed = plan_affinity(transitions, loads, cluster, options);
  const BalanceSummary before = balance_of(linear_placement(cluster, 2, 16), loads);
  const BalanceSummary after = balance_of(placed, loads);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    EXPECT_GE(*after.layers[layer], *before.layers[layer] - 1e-9);
  }
}

TEST(Affinity, PlacesEachExpertOnceOnly) {
  EXPECT_THROW((void)plan_affinity(Transitions(2, 8), even_loads(2, 8), uniform_cluster(4, 12, 1)),
               Error);
}

TEST(Affinity, OneLayerHasNoTransition) {
  const Cluster cluster = uniform_cluster(2, 4, 1);
  const Transitions none(1, 4);
  EXPECT_DOUBLE_EQ(transition_shares(linear_placement(cluster, 1, 4), cluster, none).cross_gpu,
                   0.0);
}

}  // namespace
}  // namespace moe::balance
