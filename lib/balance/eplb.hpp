#pragma once

// Placement by the rules of DeepSeek's EPLB (deepseek-ai/EPLB, d52c72d): same decisions, same
// arithmetic (loads in 32-bit floats), so per-GPU loads are those that deployments with the
// default policies of vLLM and SGLang get. Two replicas of an expert may land on one GPU, and
// counts above 2^24 lose digits: that is part of the rules. planner.hpp does better.
//
// Ties: the lower index wins, in sorting, in replicating and in packing. The original leaves ties
// of its sort open, so ids may differ from one of its runs where two loads are equal; loads per GPU
// do not.

#include <cstdint>

#include "lib/balance/loads.hpp"
#include "lib/balance/placement.hpp"

namespace moe::balance {

struct EplbShape {
  std::int32_t num_slots = 0;
  std::int32_t num_groups = 1;  // expert groups of the router
  std::int32_t num_nodes = 1;
  std::int32_t num_gpus = 1;
};

struct EplbResult {
  Placement placement;
  // Groups were kept on one node each; otherwise the global rule ran, because the nodes do not
  // divide the groups.
  bool is_hierarchical = false;
};

// Throws Error(kUsage) with the numbers and the nearest that divide, where the original would stop
// at a bare assertion. Loads are checked.
[[nodiscard]] EplbResult plan_eplb(const LoadMatrix& loads, const EplbShape& shape);

}  // namespace moe::balance
