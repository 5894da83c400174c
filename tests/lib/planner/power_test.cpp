#include "lib/planner/power.hpp"

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::planner {
namespace {

PowerInputs h100_node() {
  PowerInputs in;
  in.gpu_tdp_w = 700.0;
  in.gpus_per_node = 8;
  return in;
}

// NVIDIA DGX H100: 10.2 kW at most.
TEST(Power, ADgxH100DrawsWhatItsDataSheetSays) {
  EXPECT_NEAR(plan_power(h100_node(), 1).node_kw, 10.2, 0.01);
}

// GB200 NVL72: about 120 kW for 18 trays of 4 GPUs, with 39 % beside the GPUs.
TEST(Power, ARackOfGb200DrawsWhatIsPublished) {
  PowerInputs in;
  in.gpu_tdp_w = 1200.0;
  in.gpus_per_node = 4;
  in.node_overhead_ratio = 0.39;
  in.rack_limit_kw = 132.0;
  in.max_nodes_per_rack = 18;
  const PowerPlan plan = plan_power(in, 18);
  EXPECT_EQ(plan.racks, 1);
  EXPECT_NEAR(plan.rack_kw, 120.0, 1.0);
}

TEST(Power, RacksFollowFromPowerAndHeight) {
  PowerInputs in = h100_node();
  in.rack_limit_kw = 41.0;
  EXPECT_EQ(plan_power(in, 9).nodes_per_rack, 4);
  EXPECT_EQ(plan_power(in, 9).racks, 3);
  in.max_nodes_per_rack = 2;
  EXPECT_EQ(plan_power(in, 9).racks, 5);
}

TEST(Power, ANodeAboveTheLimitIsSaid) {
  PowerInputs in = h100_node();
  in.rack_limit_kw = 8.0;
  const PowerPlan plan = plan_power(in, 3);
  EXPECT_TRUE(plan.exceeds_rack_limit);
  EXPECT_EQ(plan.racks, 3);
}

TEST(Power, EnergyIsAverageTimesPueTimesHours) {
  PowerInputs in = h100_node();
  in.average_load_ratio = 0.5;
  in.pue = 1.2;
  const PowerPlan plan = plan_power(in, 10);
  EXPECT_NEAR(plan.kwh_per_year, plan.it_kw * 0.5 * 1.2 * 8760.0, 1e-6);
  // A kilowatt-hour is 3412 BTU.
  EXPECT_NEAR(plan.heat_btu_per_h, plan.it_kw * 3412.142, 1e-6);
  // At 1000 tokens a second a million tokens take 1000 s.
  EXPECT_NEAR(kwh_per_million_tokens(plan, 1000.0), plan.facility_kw * 1000.0 / 3600.0, 1e-9);
}

TEST(Power, RefusesImpossibleInputs) {
  PowerInputs in = h100_node();
  in.pue = 0.9;
  EXPECT_THROW((void)plan_power(in, 1), Error);
  in = h100_node();
  in.average_load_ratio = 1.1;
  EXPECT_THROW((void)plan_power(in, 1), Error);
  in = h100_node();
  in.gpu_tdp_w = 0.0;
  EXPECT_THROW((void)plan_power(in, 1), Error);
}

}  // namespace
}  // namespace moe::planner
