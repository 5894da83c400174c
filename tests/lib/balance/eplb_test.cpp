// Placements of the original program (tests/data/routing/eplb_golden.json) are the reference.

#include "lib/balance/eplb.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/balance/balancedness.hpp"
#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "tests/lib/balance/support.hpp"

namespace moe::balance {
namespace {

using json::Json;
using ::testing::HasSubstr;

Json golden_cases() {
  return json::parse_file(MOE_SOURCE_DIR "/tests/data/routing/eplb_golden.json").at("cases");
}

LoadMatrix golden_loads(const Json& golden) {
  const Json& weight = golden.at("weight");
  if (weight.is_string()) return test::dsv3_loads("prefill_in1024");
  return test::loads_of(weight.get<std::vector<std::vector<double>>>());
}

EplbShape golden_shape(const Json& golden) {
  EplbShape shape;
  shape.num_slots = golden.at("num_replicas").get<std::int32_t>();
  shape.num_groups = golden.at("num_groups").get<std::int32_t>();
  shape.num_nodes = golden.at("num_nodes").get<std::int32_t>();
  shape.num_gpus = golden.at("num_gpus").get<std::int32_t>();
  return shape;
}

Placement golden_placement(const Json& golden, const Placement& shape) {
  Placement placement = shape;
  placement.slot_expert.clear();
  for (const Json& row : golden.at("phy2log")) {
    for (const Json& expert : row) placement.slot_expert.push_back(expert.get<std::int32_t>());
  }
  return placement;
}

TEST(Eplb, GivesEveryGpuTheLoadThatTheOriginalGives) {
  int num_layers = 0;
  const Json cases = golden_cases();
  for (const auto& [name, golden] : cases.items()) {
    const LoadMatrix loads = golden_loads(golden);
    const EplbResult ours = plan_eplb(loads, golden_shape(golden));
    const Placement theirs = golden_placement(golden, ours.placement);
    for (std::int32_t layer = 0; layer < loads.num_layers; ++layer) {
      EXPECT_EQ(gpu_loads(ours.placement, layer, loads.layer(layer)),
                gpu_loads(theirs, layer, loads.layer(layer)))
          << name << ", layer " << layer;
      ++num_layers;
    }
  }
  EXPECT_GE(num_layers, 68);
}

TEST(Eplb, ReachesTheBalancednessOnRecord) {
  const Json cases = golden_cases();
  for (const auto& [name, golden] : cases.items()) {
    const LoadMatrix loads = golden_loads(golden);
    const BalanceSummary summary =
        balance_of(plan_eplb(loads, golden_shape(golden)).placement, loads);
    for (std::size_t layer = 0; layer < summary.layers.size(); ++layer) {
      const Json& expected = golden.at("balancedness").at(layer);
      ASSERT_EQ(summary.layers[layer].has_value(), !expected.is_null()) << name;
      if (expected.is_null()) continue;
      EXPECT_NEAR(*summary.layers[layer], expected.get<double>(), 1e-6) << name;
    }
  }
}

TEST(Eplb, SaysWhichRuleRan) {
  const LoadMatrix loads = test::random_loads(1, 12, 1);
  EXPECT_TRUE(plan_eplb(loads, {.num_slots = 16, .num_groups = 4, .num_nodes = 2, .num_gpus = 8})
                  .is_hierarchical);
  EXPECT_FALSE(plan_eplb(loads, {.num_slots = 16, .num_groups = 4, .num_nodes = 3, .num_gpus = 8})
                   .is_hierarchical);
}

std::string refusal(const LoadMatrix& loads, const EplbShape& shape) {
  try {
    (void)plan_eplb(loads, shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Eplb, NamesTheNearestShapeWhereTheOriginalStopsAtAnAssertion) {
  // 256 experts on 3 GPUs: 258 slots are the next that divide.
  const LoadMatrix loads = test::random_loads(1, 256, 1);
  EXPECT_THAT(refusal(loads, {.num_slots = 256, .num_gpus = 3}), HasSubstr("258"));
  EXPECT_THAT(refusal(loads, {.num_slots = 255, .num_gpus = 1}), HasSubstr("256 experts"));
  EXPECT_THAT(refusal(loads, {.num_slots = 256, .num_groups = 6, .num_nodes = 2, .num_gpus = 8}),
              HasSubstr("groups"));
  EXPECT_THAT(refusal(loads, {.num_slots = 256, .num_groups = 8, .num_nodes = 4, .num_gpus = 2}),
              HasSubstr("nodes"));
  EXPECT_THAT(refusal(loads, {.num_slots = 256, .num_gpus = 0}), HasSubstr("at least one GPU"));
}

TEST(Eplb, RefusesLoadsThatAreNone) {
  EXPECT_THAT(refusal(test::loads_of({{1.0, std::nan("")}}), {.num_slots = 2, .num_gpus = 2}),
              HasSubstr("expert 1"));
  EXPECT_THAT(refusal(test::loads_of({{1.0, -3.0}}), {.num_slots = 2, .num_gpus = 2}),
              HasSubstr("-3"));
}

}  // namespace
}  // namespace moe::balance
