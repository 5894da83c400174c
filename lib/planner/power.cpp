#include "lib/planner/power.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/units.hpp"

namespace moe::planner {
namespace {

constexpr double kBtuPerHourPerKw = 3412.142;

void require(bool holds, const char* what, double found) {
  if (!holds) {
    throw Error(ErrorCode::kUsage, fmt::format("power: expected {}, found {}", what, found));
  }
}

}  // namespace

PowerPlan plan_power(const PowerInputs& inputs, std::int64_t num_nodes) {
  MOE_CHECK(num_nodes >= 1 && inputs.gpus_per_node >= 1);
  require(inputs.gpu_tdp_w > 0.0 && inputs.gpu_tdp_w < 1e6, "a GPU power above 0 W",
          inputs.gpu_tdp_w);
  require(inputs.node_overhead_ratio >= 0.0 && inputs.node_overhead_ratio < 100.0,
          "a node overhead of 0 or more", inputs.node_overhead_ratio);
  require(inputs.average_load_ratio > 0.0 && inputs.average_load_ratio <= 1.0,
          "an average load above 0 and up to 1", inputs.average_load_ratio);
  require(inputs.pue >= 1.0 && inputs.pue < 10.0, "a PUE of 1 or more", inputs.pue);
  require(inputs.rack_limit_kw > 0.0 && inputs.rack_limit_kw < 1e6, "a rack limit above 0 kW",
          inputs.rack_limit_kw);
  require(inputs.max_nodes_per_rack >= 1, "at least one node a rack",
          static_cast<double>(inputs.max_nodes_per_rack));
  PowerPlan plan;
  plan.node_kw =
      inputs.gpu_tdp_w * inputs.gpus_per_node * (1.0 + inputs.node_overhead_ratio) / 1000.0;
  const auto by_power = static_cast<std::int64_t>(inputs.rack_limit_kw / plan.node_kw + 1e-9);
  plan.exceeds_rack_limit = by_power == 0;
  plan.nodes_per_rack =
      std::clamp<std::int64_t>(by_power, 1, std::int64_t{inputs.max_nodes_per_rack});
  plan.racks = div_ceil(num_nodes, plan.nodes_per_rack);
  plan.rack_kw = plan.node_kw * static_cast<double>(std::min(plan.nodes_per_rack, num_nodes));
  plan.it_kw = plan.node_kw * static_cast<double>(num_nodes);
  plan.average_it_kw = plan.it_kw * inputs.average_load_ratio;
  plan.facility_kw = plan.average_it_kw * inputs.pue;
  plan.heat_btu_per_h = plan.it_kw * kBtuPerHourPerKw;
  plan.kwh_per_year = plan.facility_kw * kHoursPerYear;
  return plan;
}

double kwh_per_million_tokens(const PowerPlan& plan, double tokens_per_s) {
  MOE_CHECK(tokens_per_s > 0.0);
  return plan.facility_kw * (1e6 / tokens_per_s) / 3600.0;
}

}  // namespace moe::planner
