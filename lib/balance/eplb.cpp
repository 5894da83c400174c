#include "lib/balance/eplb.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

void require_divides(std::int32_t divisor, std::int32_t value, const char* what_divisor,
                     const char* what_value) {
  if (value % divisor == 0) return;
  const std::int32_t below = value / divisor * divisor;
  throw Error(ErrorCode::kUsage,
              fmt::format("EPLB needs {} that are a multiple of the {} {}, found {}; the nearest "
                          "are {} and {}, or use --policy joint",
                          what_value, divisor, what_divisor, value, below, below + divisor));
}

EplbShape effective_shape(std::int32_t num_experts, const EplbShape& asked) {
  EplbShape shape = asked;
  if (shape.num_gpus < 1 || shape.num_groups < 1 || shape.num_nodes < 1) {
    throw Error(ErrorCode::kUsage,
                fmt::format("expected at least one GPU, node and expert group, found {}, {} and {}",
                            shape.num_gpus, shape.num_nodes, shape.num_groups));
  }
  if (shape.num_slots < num_experts) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} slots cannot hold {} experts", shape.num_slots, num_experts));
  }
  require_divides(shape.num_gpus, shape.num_slots, "GPUs", "slots");
  if (shape.num_groups % shape.num_nodes != 0) {
    shape.num_groups = 1;
    shape.num_nodes = 1;
    return shape;
  }
  require_divides(shape.num_groups, num_experts, "groups", "experts");
  require_divides(shape.num_nodes, shape.num_gpus, "nodes", "GPUs");
  return shape;
}

// Items to packs of equal size, heaviest first onto the lightest pack with room; members of pack p
// are members[p * size .. (p + 1) * size), in the order in which they came.
class Packer {
 public:
  void pack(std::span<const float> weights, std::int32_t num_packs) {
    const std::int32_t size = static_cast<std::int32_t>(weights.size()) / num_packs;
    members_.resize(weights.size());
    if (size == 1) {
      std::iota(members_.begin(), members_.end(), 0);
      return;
    }
    // Heaviest first, the lower index first where equal.
    order_.clear();
    for (const float weight : weights) {
      order_.emplace_back(-weight, static_cast<std::int32_t>(order_.size()));
    }
    std::sort(order_.begin(), order_.end());
    pack_weights_.assign(as_index(num_packs), 0.0F);
    fill_.assign(as_index(num_packs), 0);
    for (const auto& [weight, item] : order_) {
      const std::size_t pack = lightest_open(size);
      members_[pack * as_index(size) + as_index(fill_[pack])] = item;
      pack_weights_[pack] -= weight;
      ++fill_[pack];
    }
  }

  [[nodiscard]] const std::vector<std::int32_t>& members() const { return members_; }

 private:
  [[nodiscard]] std::size_t lightest_open(std::int32_t size) const {
    std::size_t best = fill_.size();
    for (std::size_t pack = 0; pack < fill_.size(); ++pack) {
      if (fill_[pack] == size) continue;
      if (best == fill_.size() || pack_weights_[pack] < pack_weights_[best]) best = pack;
    }
    return best;
  }

  std::vector<std::int32_t> members_;
  std::vector<std::pair<float, std::int32_t>> order_;  // minus weight, item
  std::vector<std::int32_t> fill_;
  std::vector<float> pack_weights_;
};

class LayerPlanner {
 public:
  LayerPlanner(std::int32_t num_experts, const EplbShape& shape)
      : shape_(shape),
        num_experts_(num_experts),
        experts_per_node_(num_experts / shape.num_nodes),
        slots_per_node_(shape.num_slots / shape.num_nodes),
        weights_(as_index(num_experts)),
        share_(as_index(experts_per_node_)),
        count_(as_index(experts_per_node_)),
        slot_expert_(as_index(slots_per_node_)),
        slot_weights_(as_index(slots_per_node_)) {}

  void plan(std::span<const double> loads, std::span<std::int32_t> slots) {
    for (std::size_t expert = 0; expert < weights_.size(); ++expert) {
      weights_[expert] = static_cast<float>(loads[expert]);
    }
    assign_groups();
    for (std::int32_t node = 0; node < shape_.num_nodes; ++node) {
      const std::span<const std::int32_t> experts(
          experts_by_node_.data() + as_index(node * experts_per_node_),
          as_index(experts_per_node_));
      replicate(experts);
      node_packer_.pack(slot_weights_, shape_.num_gpus / shape_.num_nodes);
      for (std::size_t i = 0; i < slot_expert_.size(); ++i) {
        slots[as_index(node * slots_per_node_) + i] =
            experts[as_index(slot_expert_[as_index(node_packer_.members()[i])])];
      }
    }
  }

 private:
  // Groups to nodes; experts_by_node_ lists the experts node by node.
  void assign_groups() {
    const std::int32_t group_size = num_experts_ / shape_.num_groups;
    group_weights_.assign(as_index(shape_.num_groups), 0.0F);
    for (std::int32_t group = 0; group < shape_.num_groups; ++group) {
      double sum = 0.0;
      for (std::int32_t i = 0; i < group_size; ++i) {
        sum += static_cast<double>(weights_[as_index(group * group_size + i)]);
      }
      group_weights_[as_index(group)] = static_cast<float>(sum);
    }
    group_packer_.pack(group_weights_, shape_.num_nodes);
    experts_by_node_.clear();
    for (const std::int32_t group : group_packer_.members()) {
      for (std::int32_t i = 0; i < group_size; ++i) {
        experts_by_node_.push_back(group * group_size + i);
      }
    }
  }

  // Each spare slot goes to the expert with the largest load per replica.
  void replicate(std::span<const std::int32_t> experts) {
    for (std::size_t i = 0; i < experts.size(); ++i) {
      share_[i] = weights_[as_index(experts[i])];
      count_[i] = 1;
      slot_expert_[i] = static_cast<std::int32_t>(i);
    }
    for (std::size_t slot = experts.size(); slot < slot_expert_.size(); ++slot) {
      const std::size_t hottest =
          static_cast<std::size_t>(std::max_element(share_.begin(), share_.end()) - share_.begin());
      slot_expert_[slot] = static_cast<std::int32_t>(hottest);
      ++count_[hottest];
      share_[hottest] = weights_[as_index(experts[hottest])] / static_cast<float>(count_[hottest]);
    }
    for (std::size_t slot = 0; slot < slot_expert_.size(); ++slot) {
      slot_weights_[slot] = share_[as_index(slot_expert_[slot])];
    }
  }

  EplbShape shape_;
  std::int32_t num_experts_;
  std::int32_t experts_per_node_;
  std::int32_t slots_per_node_;
  std::vector<float> weights_;  // by expert
  std::vector<float> group_weights_;
  std::vector<std::int32_t> experts_by_node_;
  std::vector<float> share_;  // load per replica of the experts of one node
  std::vector<std::int32_t> count_;
  std::vector<std::int32_t> slot_expert_;  // index into the experts of one node
  std::vector<float> slot_weights_;
  Packer group_packer_;
  Packer node_packer_;
};

}  // namespace

EplbResult plan_eplb(const LoadMatrix& loads, const EplbShape& asked) {
  check_loads(loads, "loads");
  const EplbShape shape = effective_shape(loads.num_experts, asked);
  EplbResult result;
  result.is_hierarchical = asked.num_groups % asked.num_nodes == 0 && shape.num_groups > 1;
  const Cluster cluster = uniform_cluster(shape.num_gpus, shape.num_slots, 1);
  result.placement = empty_placement(cluster, loads.num_layers, loads.num_experts);
  LayerPlanner planner(loads.num_experts, shape);
  for (std::int32_t layer = 0; layer < loads.num_layers; ++layer) {
    planner.plan(loads.layer(layer), result.placement.layer(layer));
  }
  check_placement(result.placement, "EPLB plan");
  return result;
}

}  // namespace moe::balance
