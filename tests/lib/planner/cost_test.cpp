#include "lib/planner/cost.hpp"

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::planner {
namespace {

constexpr double kSecondsPerDay = 86400.0;

Prices prices() {
  Prices p;
  p.rent_per_gpu_hour = 2.0;
  p.gpu = 30000.0;
  p.node = 50000.0;
  p.network_per_gpu = 2000.0;
  p.rack = 10000.0;
  p.depreciation_years = 4.0;
  p.maintenance_ratio_per_year = 0.05;
  p.energy_per_kwh = 0.1;
  p.hosting_per_kw_month = 100.0;
  p.licence_per_gpu_year = 500.0;
  p.staff_per_year = 1000.0;
  return p;
}

Fleet fleet() {
  return {.num_gpus = 16.0,
          .num_nodes = 2.0,
          .num_racks = 1.0,
          .it_kw = 20.0,
          .kwh_per_year = 150000.0};
}

// deepseek-ai/open-infra-index, day 6: 226.75 nodes on average, 8 GPUs each, 2 USD an hour, 87,072
// USD a day; 168 billion output tokens that day.
TEST(Cost, ReproducesDeepSeeksDay) {
  EXPECT_DOUBLE_EQ(rent_usd_per_day(226.75 * 8.0, 2.0), 87072.0);
  Prices rent;
  rent.rent_per_gpu_hour = 2.0;
  Fleet gpus;
  gpus.num_gpus = 226.75 * 8.0;
  const CostPlan plan = plan_cost(rent, gpus);
  ASSERT_TRUE(plan.rent_usd_per_year);
  EXPECT_DOUBLE_EQ(*plan.rent_usd_per_year, 87072.0 * 365.0);
  const TokenRates rates{608e9 / kSecondsPerDay, 168e9 / kSecondsPerDay, 0.3};
  const TokenCost cost = token_cost(*plan.rent_usd_per_year, rates);
  EXPECT_NEAR(cost.usd_per_million_output_if_all, 0.5183, 1e-4);
  EXPECT_NEAR(cost.usd_per_million_blended, 87072.0 / 776000.0, 1e-6);
}

TEST(Cost, TokenCostsAddUpToTheWhole) {
  const TokenRates rates{3000.0, 1000.0, 0.37};
  const double usd_per_year = 1e6;
  const TokenCost cost = token_cost(usd_per_year, rates);
  const double seconds = 8760.0 * 3600.0;
  const double whole = cost.usd_per_million_input * rates.input * seconds / 1e6 +
                       cost.usd_per_million_output * rates.output * seconds / 1e6;
  EXPECT_NEAR(whole, usd_per_year, 1e-6);
  EXPECT_NEAR(cost.usd_per_million_blended * (rates.input + rates.output) * seconds / 1e6,
              usd_per_year, 1e-6);
}

TEST(Cost, OwningIsTheSumOfItsLines) {
  const CostPlan plan = plan_cost(prices(), fleet());
  EXPECT_DOUBLE_EQ(*plan.capex_usd, 16 * 30000.0 + 2 * 50000.0 + 16 * 2000.0 + 10000.0);
  const double capex = *plan.capex_usd;
  EXPECT_NEAR(*plan.own_usd_per_year,
              capex / 4.0 + 0.05 * capex + 15000.0 + 100.0 * 12.0 * 20.0 + 8000.0 + 1000.0, 1e-6);
  EXPECT_NEAR(*plan.own_usd_per_gpu_hour, *plan.own_usd_per_year / (16.0 * 8760.0), 1e-12);
  EXPECT_TRUE(plan.missing.empty());
}

TEST(Cost, AnUnknownPriceIsNoZero) {
  Prices p = prices();
  p.gpu.reset();
  const CostPlan no_gpu = plan_cost(p, fleet());
  EXPECT_TRUE(no_gpu.rent_usd_per_year);
  EXPECT_FALSE(no_gpu.capex_usd);
  EXPECT_FALSE(no_gpu.own_usd_per_year);
  EXPECT_EQ(no_gpu.missing.size(), 1U);
  p = prices();
  p.energy_per_kwh.reset();
  EXPECT_TRUE(plan_cost(p, fleet()).capex_usd);
  EXPECT_FALSE(plan_cost(p, fleet()).own_usd_per_year);
  p = prices();
  p.rent_per_gpu_hour.reset();
  EXPECT_FALSE(plan_cost(p, fleet()).rent_usd_per_year);
  EXPECT_FALSE(break_even(p, plan_cost(p, fleet())).months);
}

TEST(Cost, BreakEvenIsWhereBothHaveCostTheSame) {
  const Prices p = prices();
  const CostPlan plan = plan_cost(p, fleet());
  const BreakEven even = break_even(p, plan);
  ASSERT_TRUE(even.months);
  const double running =
      *plan.own_usd_per_year - *plan.capex_usd * (1.0 - p.residual_ratio) / p.depreciation_years;
  EXPECT_NEAR(*plan.capex_usd + running * *even.months / 12.0,
              *plan.rent_usd_per_year * *even.months / 12.0, 1e-3);
  EXPECT_NEAR(*even.utilization_ratio, *plan.own_usd_per_year / *plan.rent_usd_per_year, 1e-12);
}

TEST(Cost, WhereRunningCostsMoreThanTheRentItNeverPays) {
  Prices p = prices();
  p.rent_per_gpu_hour = 0.01;
  const BreakEven even = break_even(p, plan_cost(p, fleet()));
  EXPECT_FALSE(even.months);
  EXPECT_GT(*even.utilization_ratio, 1.0);
}

TEST(Cost, RefusesImpossiblePrices) {
  Prices p = prices();
  p.gpu = -1.0;
  EXPECT_THROW((void)plan_cost(p, fleet()), Error);
  p = prices();
  p.depreciation_years = 0.0;
  EXPECT_THROW((void)plan_cost(p, fleet()), Error);
  p = prices();
  p.residual_ratio = 1.5;
  EXPECT_THROW((void)plan_cost(p, fleet()), Error);
}

}  // namespace
}  // namespace moe::planner
