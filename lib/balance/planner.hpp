#pragma once

// A placement for one or several traces at once: replication and packing searched together, never
// two replicas of an expert on one GPU, GPUs of any number of slots and any speed, and, from a
// current placement, no more moved slots than asked. What is minimised is the slowest GPU of the
// worst trace of each layer. For one trace on equal GPUs no layer ends below EPLB's plan, unless
// that gains by two replicas of an expert on one GPU (an uneven split that costs a slot).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/balance/loads.hpp"
#include "lib/balance/placement.hpp"

namespace moe::balance {

struct PlanOptions {
  // Where experts are now; null: nowhere, moves are free.
  const Placement* current = nullptr;
  // Moved slots / all slots, over all layers; counts with `current` only.
  double max_moved_ratio = 1.0;
  // Experts in this many equal groups, each kept on one node (group-limited routing). 1: no groups.
  std::int32_t num_groups = 1;
  // Replicas of an expert go to different nodes as far as there are nodes.
  bool spreads_nodes = false;
  // How long to search a layer: single looks at a move. The default plans 58 layers of 256 experts
  // in milliseconds.
  std::int64_t max_evaluations = 10'000;
  // A layer is done when mean / slowest GPU is at least this in every trace.
  double good_enough = 0.999;
  std::uint64_t seed = 1;
};

struct PlanResult {
  Placement placement;
  std::int64_t num_moved = 0;  // against PlanOptions::current
};

// Traces of the same layers and experts; each layer of each trace counts the same, however long the
// trace is. Throws Error(kInput) for loads that are not loads, Error(kUsage) for a cluster, groups
// or current placement that do not fit.
[[nodiscard]] PlanResult plan_joint(std::span<const LoadMatrix> traces, const Cluster& cluster,
                                    const PlanOptions& options = {});

// No placement of this many slots has a higher balancedness in this layer: a GPU is at least as
// slow as the mean, and at least as the smallest possible largest replica on the fastest GPU.
// Absent without load.
[[nodiscard]] std::optional<double> balancedness_bound(std::span<const double> layer_loads,
                                                       const Cluster& cluster);

}  // namespace moe::balance
