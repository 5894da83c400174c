#pragma once

// Where the experts of each layer are: a slot holds one physical expert, a GPU has a number of
// slots, a logical expert has one or more replicas. All layers share one cluster.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moe::balance {

// GPUs are numbered node by node. slots, speed and node have one entry a GPU.
struct Cluster {
  std::vector<std::int32_t> slots;
  std::vector<double> speed;  // relative; 2 does twice the work of 1 in the same time
  std::vector<std::int32_t> node;

  [[nodiscard]] std::int32_t num_gpus() const { return static_cast<std::int32_t>(slots.size()); }
  [[nodiscard]] std::int32_t num_nodes() const { return node.empty() ? 0 : node.back() + 1; }
  [[nodiscard]] std::int32_t num_slots() const;
  // Sum of speeds.
  [[nodiscard]] double total_speed() const;
};

// Equal GPUs; when the slots do not divide, the first GPUs have one more, and so for the nodes.
// Throws Error(kUsage) with the numbers when there are fewer slots than GPUs or fewer GPUs than
// nodes.
[[nodiscard]] Cluster uniform_cluster(std::int32_t num_gpus, std::int32_t num_slots,
                                      std::int32_t num_nodes);

// Throws Error(kUsage) when sizes differ, a speed is not positive, a GPU has no slot or more slots
// than there are experts (they could not hold different ones), nodes do not ascend from 0, or the
// slots are fewer than the experts.
void check_cluster(const Cluster& cluster, std::int32_t num_experts);

struct Placement {
  std::int32_t num_layers = 0;
  std::int32_t num_experts = 0;
  std::vector<std::int32_t> slot_begin;   // [num_gpus + 1]: GPU g has slots [begin[g], begin[g+1])
  std::vector<std::int32_t> slot_expert;  // [num_layers, num_slots]

  [[nodiscard]] std::int32_t num_gpus() const {
    return static_cast<std::int32_t>(slot_begin.size()) - 1;
  }
  [[nodiscard]] std::int32_t num_slots() const { return slot_begin.back(); }
  [[nodiscard]] std::span<const std::int32_t> layer(std::int32_t layer) const;
  [[nodiscard]] std::span<std::int32_t> layer(std::int32_t layer);
};

// Slots of -1 for every layer.
[[nodiscard]] Placement empty_placement(const Cluster& cluster, std::int32_t num_layers,
                                        std::int32_t num_experts);

// The usual start: experts in order, spare slots hold expert slot % num_experts, as vLLM lays them
// out.
[[nodiscard]] Placement linear_placement(const Cluster& cluster, std::int32_t num_layers,
                                         std::int32_t num_experts);

// Throws Error(kInput) that names the layer: every slot holds an expert of the model, every expert
// has at least one replica.
void check_placement(const Placement& placement, const std::string& where);

// replicas[expert] of one layer.
[[nodiscard]] std::vector<std::int32_t> replica_counts(const Placement& placement,
                                                       std::int32_t layer);

// Slots whose expert stands on the same GPU already, over all layers: memory without use.
[[nodiscard]] std::int64_t colocated_replicas(const Placement& placement);

// Slots of `to` whose expert was not on the same GPU in `from`, over all layers: what has to be
// loaded. Order within a GPU does not count. Both have the same shape.
[[nodiscard]] std::int64_t moved_slots(const Placement& from, const Placement& to);
// The same for one layer and GPU.
[[nodiscard]] std::int64_t moved_slots_of_gpu(const Placement& from, const Placement& to,
                                              std::int32_t layer, std::int32_t gpu);

// Load of each GPU of one layer when an expert's load is split evenly over its replicas.
[[nodiscard]] std::vector<double> gpu_loads(const Placement& placement, std::int32_t layer,
                                            std::span<const double> layer_loads);

}  // namespace moe::balance
