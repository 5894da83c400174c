#include "lib/balance/placement.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
std::int32_t Cluster::num_slots() const {
  std::int32_t sum = 0;
  for (const std::int32_t gpu_slots : slots) sum += gpu_slots;
  return sum;
}

double Cluster::total_speed() const {
  double sum = 0.0;
  for (const double gpu_speed : speed) sum += gpu_speed;
  return sum;
}

Cluster uniform_cluster(std::int32_t num_gpus, std::int32_t num_slots, std::int32_t num_nodes) {
  if (num_gpus < 1 || num_nodes < 1 || num_nodes > num_gpus || num_slots < num_gpus) {
    throw Error(ErrorCode::kUsage,
                fmt::format("expected 1 <= nodes <= GPUs <= slots, found {} nodes, {} GPUs, {} "
                            "slots",
                            num_nodes, num_gpus, num_slots));
  }
  Cluster cluster;
  cluster.slots.assign(as_index(num_gpus), num_slots / num_gpus);
  for (std::int32_t gpu = 0; gpu < num_slots % num_gpus; ++gpu) ++cluster.slots[as_index(gpu)];
  cluster.speed.assign(as_index(num_gpus), 1.0);
  for (std::int32_t node = 0; node < num_nodes; ++node) {
    const std::int32_t size = num_gpus / num_nodes + (node < num_gpus % num_nodes ? 1 : 0);
    cluster.node.insert(cluster.node.end(), as_index(size), node);
  }
  return cluster;
}

void check_cluster(const Cluster& cluster, std::int32_t num_experts) {
  const auto fail = [](const std::string& message) { throw Error(ErrorCode::kUsage, message); };
  const std::size_t num_gpus = cluster.slots.size();
  if (num_gpus == 0 || cluster.speed.size() != num_gpus || cluster.node.size() != num_gpus) {
    fail(fmt::format("expected slots, speed and node of each GPU, found {}, {} and {} entries",
                     num_gpus, cluster.speed.size(), cluster.node.size()));
  }
  std::int64_t num_slots = 0;
  for (std::size_t gpu = 0; gpu < num_gpus; ++gpu) {
    if (!std::isfinite(cluster.speed[gpu]) || cluster.speed[gpu] <= 0.0) {
      fail(fmt::format("GPU {}: expected a speed above 0, found {}", gpu, cluster.speed[gpu]));
    }
    const std::int32_t before = gpu == 0 ? 0 : cluster.node[gpu - 1];
    const std::int32_t step = cluster.node[gpu] - before;
    if (step < 0 || step > 1 || (gpu == 0 && step != 0)) {
      fail(fmt::format("GPU {}: nodes must ascend from 0 without gaps, found {} after {}", gpu,
                       cluster.node[gpu], before));
    }
    if (cluster.slots[gpu] < 1 || cluster.slots[gpu] > num_experts) {
      fail(fmt::format("GPU {}: expected 1 to {} slots, one for each expert at most, found {}", gpu,
                       num_experts, cluster.slots[gpu]));
    }
    num_slots += cluster.slots[gpu];
  }
  if (num_slots < num_experts) {
    fail(fmt::format(
        "{} slots cannot hold {} experts; at least {} are needed, {} for a multiple "
        "of {} GPUs",
        num_slots, num_experts, num_experts,
        (num_experts + cluster.num_gpus() - 1) / cluster.num_gpus() * cluster.num_gpus(),
        num_gpus));
  }
}

std::span<const std::int32_t> Placement::layer(std::int32_t layer) const {
  return {slot_expert.data() + as_index(layer) * as_index(num_slots()), as_index(num_slots())};
}

std::span<std::int32_t> Placement::layer(std::int32_t layer) {
  return {slot_expert.data() + as_index(layer) * as_index(num_slots()), as_index(num_slots())};
}

Placement empty_placement(const Cluster& cluster, std::int32_t num_layers,
                          std::int32_t num_experts) {
  Placement placement;
  placement.num_layers = num_layers;
  placement.num_experts = num_experts;
  placement.slot_begin.push_back(0);
  for (const std::int32_t slots : cluster.slots) {
    placement.slot_begin.push_back(placement.slot_begin.back() + slots);
  }
  placement.slot_expert.assign(as_index(num_layers) * as_index(placement.num_slots()), -1);
  return placement;
}

Placement linear_placement(const Cluster& cluster, std::int32_t num_layers,
                           std::int32_t num_experts) {
  Placement placement = empty_placement(cluster, num_layers, num_experts);
  for (std::int32_t layer = 0; layer < num_layers; ++layer) {
    const std::span<std::int32_t> slots = placement.layer(layer);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      slots[slot] = static_cast<std::int32_t>(slot % as_index(num_experts));
    }
  }
  return placement;
}

void check_placement(const Placement& placement, const std::string& where) {
  MOE_CHECK(placement.slot_begin.size() >= 2);
  MOE_CHECK(placement.slot_expert.size() ==
            as_index(placement.num_layers) * as_index(placement.num_slots()));
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const std::span<const std::int32_t> slots = placement.layer(layer);
    std::vector<bool> seen(as_index(placement.num_experts), false);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot] < 0 || slots[slot] >= placement.num_experts) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: layer {}, slot {}: expected an expert from 0 to {}, found {}",
                                where, layer, slot, placement.num_experts - 1, slots[slot]));
      }
      seen[as_index(slots[slot])] = true;
    }
    const auto missing = std::find(seen.begin(), seen.end(), false);
    if (missing != seen.end()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: layer {}: expert {} has no replica; every expert needs one",
                              where, layer, missing - seen.begin()));
    }
  }
}

std::vector<std::int32_t> replica_counts(const Placement& placement, std::int32_t layer) {
  std::vector<std::int32_t> counts(as_index(placement.num_experts), 0);
  for (const std::int32_t expert : placement.layer(layer)) ++counts[as_index(expert)];
  return counts;
}

std::int64_t colocated_replicas(const Placement& placement) {
  std::int64_t num_colocated = 0;
  std::vector<std::int64_t> last_seen(as_index(placement.num_experts), -1);
  std::int64_t place = 0;  // layer and GPU
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const std::span<const std::int32_t> slots = placement.layer(layer);
    for (std::int32_t gpu = 0; gpu < placement.num_gpus(); ++gpu, ++place) {
      for (std::int32_t slot = placement.slot_begin[as_index(gpu)];
           slot < placement.slot_begin[as_index(gpu) + 1]; ++slot) {
        std::int64_t& last = last_seen[as_index(slots[as_index(slot)])];
        if (last == place) ++num_colocated;
        last = place;
      }
    }
  }
  return num_colocated;
}

std::int64_t moved_slots_of_gpu(const Placement& from, const Placement& to, std::int32_t layer,
                                std::int32_t gpu) {
  const std::size_t begin = as_index(to.slot_begin[as_index(gpu)]);
  const std::size_t size = as_index(to.slot_begin[as_index(gpu) + 1]) - begin;
  const auto sorted = [&](const Placement& placement) {
    const std::span<const std::int32_t> slots = placement.layer(layer).subspan(begin, size);
    std::vector<std::int32_t> experts(slots.begin(), slots.end());
    std::sort(experts.begin(), experts.end());
    return experts;
  };
  const std::vector<std::int32_t> before = sorted(from);
  const std::vector<std::int32_t> after = sorted(to);
  std::vector<std::int32_t> loaded;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(loaded));
  // A second copy of an expert that was there once is copied inside the GPU, and loaded all the
  // same: it counts.
  return static_cast<std::int64_t>(loaded.size());
}

std::int64_t moved_slots(const Placement& from, const Placement& to) {
  MOE_CHECK(from.slot_begin == to.slot_begin && from.num_layers == to.num_layers &&
            from.num_experts == to.num_experts);
  std::int64_t num_moved = 0;
  for (std::int32_t layer = 0; layer < to.num_layers; ++layer) {
    for (std::int32_t gpu = 0; gpu < to.num_gpus(); ++gpu) {
      num_moved += moved_slots_of_gpu(from, to, layer, gpu);
    }
  }
  return num_moved;
}

std::vector<double> gpu_loads(const Placement& placement, std::int32_t layer,
                              std::span<const double> layer_loads) {
  MOE_CHECK(layer_loads.size() == as_index(placement.num_experts));
  const std::vector<std::int32_t> replicas = replica_counts(placement, layer);
  const std::span<const std::int32_t> slots = placement.layer(layer);
  std::vector<double> loads(as_index(placement.num_gpus()), 0.0);
  for (std::size_t gpu = 0; gpu < loads.size(); ++gpu) {
    for (std::int32_t slot = placement.slot_begin[gpu]; slot < placement.slot_begin[gpu + 1];
         ++slot) {
      const std::size_t expert = as_index(slots[as_index(slot)]);
      loads[gpu] += layer_loads[expert] / static_cast<double>(replicas[expert]);
    }
  }
  return loads;
}

}  // namespace moe::balance
