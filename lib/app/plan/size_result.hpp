#pragma once

// One scenario worked out: for every GPU type the layouts, counts, power, money and what moves
// them; and which GPU type is recommended.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/scenario.hpp"
#include "lib/planner/cost.hpp"
#include "lib/planner/power.hpp"
#include "lib/planner/sensitivity.hpp"
#include "lib/planner/size.hpp"

namespace moe::app {

// A point of the front: the most output tokens per second and GPU of any layout that meets both
// TTFT and this TPOT.
struct FrontPoint {
  double tpot_limit_s = 0.0;
  double tokens_per_s_per_gpu = 0.0;  // 0: no layout meets it
  std::string layout;
};

struct GpuResult {
  planner::Accelerator gpu;
  planner::SizeCase size_case;           // points into this result and into SizeInputs
  std::vector<planner::SizePlan> plans;  // best first
  bool works = false;
  // When nothing works: changes that would help, each tried ("weights as int4-g128: ...").
  std::vector<std::string> remedies;
  std::optional<planner::PowerPlan> power;  // absent without a TDP
  planner::Prices prices;
  planner::Fleet fleet;
  planner::TokenRates tokens;
  planner::CostPlan cost;
  std::optional<planner::TokenCost> rent_tokens;
  std::optional<planner::TokenCost> own_tokens;
  planner::BreakEven break_even;
  std::vector<FrontPoint> front;
  // What the sensitivity is about: USD a year where a price is known, otherwise GPUs.
  double sensitivity_base = 0.0;
  std::string sensitivity_unit;  // "USD" or "1"
  std::vector<planner::SensitivityRow> sensitivity;

  [[nodiscard]] const planner::SizePlan& best() const { return plans.front(); }
  // The cheaper of renting and owning; absent without prices.
  [[nodiscard]] std::optional<double> usd_per_year() const;
};

// What all GPU types share; outlives the results.
struct SizeInputs {
  Scenario scenario;
  std::filesystem::path scenarios_dir;
  PlanModel model;
  PlanHardware hardware;
  planner::MeasuredTimes measured;
  planner::Demand demand;
  planner::RoutingSkew skew;
  std::vector<std::string> evidence;  // what came from reports of other tools
  std::optional<std::string> links_report;
};

[[nodiscard]] SizeInputs load_size_inputs(Scenario scenario,
                                          const std::filesystem::path& scenarios_dir);

// One entry a GPU type, in the scenario's order. `results` of the same inputs must not move
// afterwards.
struct SizeResult {
  std::vector<GpuResult> gpus;
  std::optional<std::size_t> recommended;
  std::string rule;  // why that one
};
[[nodiscard]] SizeResult work_out(const SizeInputs& inputs);

}  // namespace moe::app
