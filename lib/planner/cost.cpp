#include "lib/planner/cost.hpp"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/units.hpp"

namespace moe::planner {
namespace {

constexpr double kHoursPerDay = 24.0;
constexpr double kMonthsPerYear = 12.0;
constexpr double kSecondsPerYear = kHoursPerYear * kHour_s;

void check_prices(const Prices& prices) {
  const std::array<std::pair<const char*, double>, 12> all = {
      {{"rent per GPU hour", prices.rent_per_gpu_hour.value_or(0.0)},
       {"price of a GPU", prices.gpu.value_or(0.0)},
       {"price of a node", prices.node},
       {"network price per GPU", prices.network_per_gpu},
       {"price of a rack", prices.rack},
       {"residual share", prices.residual_ratio},
       {"capital cost a year", prices.capital_ratio_per_year},
       {"maintenance a year", prices.maintenance_ratio_per_year},
       {"price of a kWh", prices.energy_per_kwh.value_or(0.0)},
       {"hosting per kW and month", prices.hosting_per_kw_month},
       {"licence per GPU and year", prices.licence_per_gpu_year},
       {"staff a year", prices.staff_per_year}}};
  for (const auto& [name, price] : all) {
    if (!(price >= 0.0) || !std::isfinite(price)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("prices: expected 0 or more for the {}, found {}", name, price));
    }
  }
  if (!(prices.depreciation_years > 0.0) || !std::isfinite(prices.depreciation_years)) {
    throw Error(ErrorCode::kUsage, fmt::format("prices: expected a depreciation over more than 0 "
                                               "years, found {}",
                                               prices.depreciation_years));
  }
  if (prices.residual_ratio > 1.0) {
    throw Error(ErrorCode::kUsage, "prices: the residual share cannot be above 1");
  }
}

double sum(const std::vector<CostLine>& lines) {
  double total = 0.0;
  for (const CostLine& line : lines) total += line.usd;
  return total;
}

}  // namespace

CostPlan plan_cost(const Prices& prices, const Fleet& fleet) {
  check_prices(prices);
  MOE_CHECK(fleet.num_gpus > 0.0);
  CostPlan plan;
  if (prices.rent_per_gpu_hour) {
    plan.rent_usd_per_year = *prices.rent_per_gpu_hour * fleet.num_gpus * kHoursPerYear;
  } else {
    plan.missing.emplace_back("rent per GPU hour: no cost of renting");
  }
  if (!prices.gpu) {
    plan.missing.emplace_back("price of a GPU: no cost of owning and no break-even");
    return plan;
  }
  plan.capex = {{"GPUs", *prices.gpu * fleet.num_gpus},
                {"nodes", prices.node * fleet.num_nodes},
                {"network", prices.network_per_gpu * fleet.num_gpus},
                {"racks", prices.rack * fleet.num_racks}};
  const double capex = sum(plan.capex);
  plan.capex_usd = capex;
  if (!prices.energy_per_kwh) {
    plan.missing.emplace_back("price of a kWh: no cost of owning and no break-even");
    return plan;
  }
  plan.own_per_year = {
      {"depreciation", capex * (1.0 - prices.residual_ratio) / prices.depreciation_years},
      {"capital", capex * prices.capital_ratio_per_year},
      {"maintenance", capex * prices.maintenance_ratio_per_year},
      {"energy", *prices.energy_per_kwh * fleet.kwh_per_year},
      {"hosting", prices.hosting_per_kw_month * kMonthsPerYear * fleet.it_kw},
      {"licences", prices.licence_per_gpu_year * fleet.num_gpus},
      {"staff", prices.staff_per_year}};
  plan.own_usd_per_year = sum(plan.own_per_year);
  plan.own_usd_per_gpu_hour = *plan.own_usd_per_year / (fleet.num_gpus * kHoursPerYear);
  return plan;
}

TokenCost token_cost(double usd_per_year, const TokenRates& rates) {
  MOE_CHECK(rates.input >= 0.0 && rates.output > 0.0);
  MOE_CHECK(rates.prefill_time_ratio >= 0.0 && rates.prefill_time_ratio <= 1.0);
  const double million_seconds = 1e6 / kSecondsPerYear;
  TokenCost cost;
  cost.usd_per_million_output_if_all = usd_per_year * million_seconds / rates.output;
  cost.usd_per_million_output =
      cost.usd_per_million_output_if_all * (1.0 - rates.prefill_time_ratio);
  cost.usd_per_million_blended = usd_per_year * million_seconds / (rates.input + rates.output);
  if (rates.input > 0.0) {
    cost.usd_per_million_input =
        usd_per_year * rates.prefill_time_ratio * million_seconds / rates.input;
  }
  return cost;
}

BreakEven break_even(const Prices& prices, const CostPlan& plan) {
  BreakEven even;
  if (!plan.rent_usd_per_year || !plan.own_usd_per_year || !plan.capex_usd) return even;
  if (*plan.rent_usd_per_year > 0.0) {
    even.utilization_ratio = *plan.own_usd_per_year / *plan.rent_usd_per_year;
  }
  // Cash: the capital cost once, then what owning costs a year without depreciation.
  double running = 0.0;
  for (const CostLine& line : plan.own_per_year) {
    if (line.item != "depreciation") running += line.usd;
  }
  const double saved_per_month = (*plan.rent_usd_per_year - running) / kMonthsPerYear;
  const double at_stake = *plan.capex_usd * (1.0 - prices.residual_ratio);
  if (saved_per_month > 0.0) even.months = at_stake / saved_per_month;
  return even;
}

double rent_usd_per_day(double num_gpus, double usd_per_gpu_hour) {
  return num_gpus * kHoursPerDay * usd_per_gpu_hour;
}

}  // namespace moe::planner
