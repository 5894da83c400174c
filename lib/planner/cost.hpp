#pragma once

// Money: what a number of GPUs costs to rent or to own, and what a million tokens then cost. Every
// price is an input; what is not given stays out of the sum and is named.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moe::planner {

// USD. An absent price is not zero: it is unknown, and the results that need it are absent too.
struct Prices {
  std::optional<double> rent_per_gpu_hour;
  // Buying.
  std::optional<double> gpu;     // one GPU, or its share of a system sold whole
  double node = 0.0;             // a node without its GPUs
  double network_per_gpu = 0.0;  // NICs, switches, cables
  double rack = 0.0;             // rack, power distribution, cooling loop
  double depreciation_years = 4.0;
  double residual_ratio = 0.0;              // of the capital cost, left at the end
  double capital_ratio_per_year = 0.0;      // interest on the capital cost
  double maintenance_ratio_per_year = 0.0;  // of the capital cost
  // Running.
  std::optional<double> energy_per_kwh;
  double hosting_per_kw_month = 0.0;  // per kW of rated IT power
  double licence_per_gpu_year = 0.0;
  double staff_per_year = 0.0;
};

struct Fleet {
  double num_gpus = 0.0;  // may be an average over a day
  double num_nodes = 0.0;
  double num_racks = 0.0;
  double it_kw = 0.0;         // rated
  double kwh_per_year = 0.0;  // with cooling
};

// Tokens a second, on average over the year.
struct TokenRates {
  double input = 0.0;
  double output = 0.0;
  // Share of the GPU time that prompts take; splits the cost between input and output tokens.
  double prefill_time_ratio = 0.5;
};

struct CostLine {
  std::string item;
  double usd = 0.0;
};

struct CostPlan {
  // Renting.
  std::optional<double> rent_usd_per_year;
  // Owning.
  std::optional<double> capex_usd;
  std::vector<CostLine> capex;         // its parts
  std::vector<CostLine> own_per_year;  // depreciation, interest and running costs
  std::optional<double> own_usd_per_year;
  std::optional<double> own_usd_per_gpu_hour;
  std::vector<std::string> missing;  // prices that were not given and what is absent without them
};

// Of a year's cost: what a million tokens cost.
struct TokenCost {
  double usd_per_million_input = 0.0;          // by GPU time
  double usd_per_million_output = 0.0;         // by GPU time
  double usd_per_million_blended = 0.0;        // over input and output together
  double usd_per_million_output_if_all = 0.0;  // the whole cost charged to output
};

struct BreakEven {
  // Months after which owning has cost less than renting; absent when it never does.
  std::optional<double> months;
  // Share of the hours in which the rented GPUs would have to be in use for owning to cost the
  // same: above it, own.
  std::optional<double> utilization_ratio;
};

// Throws Error(kUsage) for a negative or non-finite price.
[[nodiscard]] CostPlan plan_cost(const Prices& prices, const Fleet& fleet);

[[nodiscard]] TokenCost token_cost(double usd_per_year, const TokenRates& rates);

[[nodiscard]] BreakEven break_even(const Prices& prices, const CostPlan& plan);

// Rent of one day.
[[nodiscard]] double rent_usd_per_day(double num_gpus, double usd_per_gpu_hour);

}  // namespace moe::planner
