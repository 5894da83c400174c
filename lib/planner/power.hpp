#pragma once

// Electrical power, heat and rack space of a number of nodes.

#include <cstdint>

namespace moe::planner {

struct PowerInputs {
  double gpu_tdp_w = 0.0;
  std::int32_t gpus_per_node = 8;
  // What a node draws beside its GPUs (CPUs, memory, NICs, fans, losses), as a share of its GPUs'
  // TDP. DGX H100: 10.2 kW for 8 x 700 W, so 0.82; a GB200 NVL72 rack: about 120 kW for 72 x 1.2
  // kW.
  double node_overhead_ratio = 0.82;
  // Average draw over the rated one: what the energy bill sees. Racks are filled by the rated one.
  double average_load_ratio = 0.7;
  // Facility power over IT power.
  double pue = 1.3;
  double rack_limit_kw = 40.0;
  std::int32_t max_nodes_per_rack = 8;  // by height
};

struct PowerPlan {
  double node_kw = 0.0;  // rated
  std::int64_t nodes_per_rack = 0;
  std::int64_t racks = 0;
  double rack_kw = 0.0;             // of a full rack, rated
  bool exceeds_rack_limit = false;  // one node alone is above the limit
  double it_kw = 0.0;               // all nodes, rated
  double average_it_kw = 0.0;
  double facility_kw = 0.0;     // average, with cooling
  double heat_btu_per_h = 0.0;  // of the rated IT power
  double kwh_per_year = 0.0;    // facility, average
};

// num_nodes >= 1. Throws Error(kUsage) for a negative or non-finite input, or a PUE below 1.
[[nodiscard]] PowerPlan plan_power(const PowerInputs& inputs, std::int64_t num_nodes);

// Energy of a million tokens at this average rate.
[[nodiscard]] double kwh_per_million_tokens(const PowerPlan& plan, double tokens_per_s);

}  // namespace moe::planner
