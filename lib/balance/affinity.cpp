#include "lib/balance/affinity.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "lib/balance/balancedness.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

std::vector<std::int32_t> gpu_of_slots(const Placement& placement) {
  std::vector<std::int32_t> gpus(as_index(placement.num_slots()));
  for (std::int32_t gpu = 0; gpu < placement.num_gpus(); ++gpu) {
    std::fill(gpus.begin() + placement.slot_begin[as_index(gpu)],
              gpus.begin() + placement.slot_begin[as_index(gpu) + 1], gpu);
  }
  return gpus;
}

// share[expert, GPU]: part of the expert's copies that a GPU gets.
std::vector<double> gpu_shares(const Placement& placement, std::int32_t layer) {
  const std::size_t num_gpus = as_index(placement.num_gpus());
  const std::vector<std::int32_t> gpus = gpu_of_slots(placement);
  const std::vector<std::int32_t> replicas = replica_counts(placement, layer);
  std::vector<double> shares(as_index(placement.num_experts) * num_gpus, 0.0);
  const std::span<const std::int32_t> slots = placement.layer(layer);
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    shares[as_index(slots[slot]) * num_gpus + as_index(gpus[slot])] +=
        1.0 / static_cast<double>(replicas[as_index(slots[slot])]);
  }
  return shares;
}

double distance(const Cluster& cluster, std::int32_t gpu_a, std::int32_t gpu_b) {
  if (gpu_a == gpu_b) return 0.0;
  return cluster.node[as_index(gpu_a)] == cluster.node[as_index(gpu_b)] ? 1.0 : 2.0;
}

// Sum over rows (or columns) of the `room` largest entries.
double largest_flows(std::span<const double> flow, std::size_t num_experts, std::size_t room,
                     bool by_column) {
  double sum = 0.0;
  std::vector<double> values(num_experts);
  for (std::size_t a = 0; a < num_experts; ++a) {
    for (std::size_t b = 0; b < num_experts; ++b) {
      values[b] = by_column ? flow[b * num_experts + a] : flow[a * num_experts + b];
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(std::min(room, num_experts));
    std::partial_sort(values.begin(), middle, values.end(), std::greater<>());
    for (auto value = values.begin(); value != middle; ++value) sum += *value;
  }
  return sum;
}

// One layer's experts, its neighbours standing still.
class LayerExchange {
 public:
  LayerExchange(const Transitions& transitions, const Cluster& cluster, const LoadMatrix& loads,
                const AffinityOptions& options)
      : transitions_(&transitions),
        cluster_(&cluster),
        loads_(&loads),
        options_(options),
        cost_(as_index(transitions.num_experts()) * as_index(cluster.num_gpus())) {}

  // True when something moved.
  bool improve(std::int32_t layer, Placement& placement) {
    find_costs(layer, placement);
    const std::vector<std::int32_t> gpus = gpu_of_slots(placement);
    const std::span<std::int32_t> slots = placement.layer(layer);
    std::vector<double> gpu_load = gpu_loads(placement, layer, loads_->layer(layer));
    const double limit = load_limit(layer, placement);
    const std::size_t num_gpus = as_index(cluster_->num_gpus());
    bool has_moved = false;
    for (bool again = true; again;) {
      again = false;
      for (std::size_t a = 0; a < slots.size(); ++a) {
        for (std::size_t b = a + 1; b < slots.size(); ++b) {
          if (gpus[a] == gpus[b]) continue;
          const double* of_a = cost_.data() + as_index(slots[a]) * num_gpus;
          const double* of_b = cost_.data() + as_index(slots[b]) * num_gpus;
          const double gain = of_a[gpus[a]] + of_b[gpus[b]] - of_a[gpus[b]] - of_b[gpus[a]];
          if (gain <= 1e-9 * (of_a[gpus[a]] + of_b[gpus[b]])) continue;
          const double moved =
              loads_->layer(layer)[as_index(slots[a])] - loads_->layer(layer)[as_index(slots[b])];
          double& load_a = gpu_load[as_index(gpus[a])];
          double& load_b = gpu_load[as_index(gpus[b])];
          const bool fits_a = (load_a - moved) / cluster_->speed[as_index(gpus[a])] <= limit;
          const bool fits_b = (load_b + moved) / cluster_->speed[as_index(gpus[b])] <= limit;
          if (!fits_a || !fits_b) continue;
          load_a -= moved;
          load_b += moved;
          std::swap(slots[a], slots[b]);
          again = true;
          has_moved = true;
        }
      }
    }
    return has_moved;
  }

 private:
  // Time that the slowest GPU may take: what the option allows against the linear placement.
  double load_limit(std::int32_t layer, const Placement& placement) const {
    if (options_.min_balancedness <= 0.0) return std::numeric_limits<double>::infinity();
    const Placement linear = linear_placement(*cluster_, layer + 1, placement.num_experts);
    const std::vector<double> at_start = gpu_loads(linear, layer, loads_->layer(layer));
    double slowest = 0.0;
    for (std::size_t gpu = 0; gpu < at_start.size(); ++gpu) {
      slowest = std::max(slowest, at_start[gpu] / cluster_->speed[gpu]);
    }
    return slowest / options_.min_balancedness;
  }

  // cost_[expert, GPU] of the layer's transitions to both sides, were the expert on that GPU.
  void find_costs(std::int32_t layer, const Placement& placement) {
    const std::size_t num_gpus = as_index(cluster_->num_gpus());
    const std::size_t num_experts = as_index(transitions_->num_experts());
    std::fill(cost_.begin(), cost_.end(), 0.0);
    std::vector<double> by_gpu(num_experts * num_gpus, 0.0);  // flow between expert and GPU
    const auto add = [&](std::int32_t other, bool is_before) {
      const std::vector<double> shares = gpu_shares(placement, other);
      const std::span<const double> flow = transitions_->between(is_before ? other : layer);
      for (std::size_t a = 0; a < num_experts; ++a) {
        for (std::size_t b = 0; b < num_experts; ++b) {
          const double count = flow[a * num_experts + b];
          if (count <= 0.0) continue;
          const std::size_t own = is_before ? b : a;
          const std::size_t neighbour = is_before ? a : b;
          for (std::size_t gpu = 0; gpu < num_gpus; ++gpu) {
            by_gpu[own * num_gpus + gpu] += count * shares[neighbour * num_gpus + gpu];
          }
        }
      }
    };
    if (layer > 0) add(layer - 1, true);
    if (layer + 1 < transitions_->num_layers()) add(layer + 1, false);
    for (std::size_t expert = 0; expert < num_experts; ++expert) {
      for (std::int32_t here = 0; here < cluster_->num_gpus(); ++here) {
        double cost = 0.0;
        for (std::int32_t there = 0; there < cluster_->num_gpus(); ++there) {
          cost += by_gpu[expert * num_gpus + as_index(there)] * distance(*cluster_, here, there);
        }
        cost_[expert * num_gpus + as_index(here)] = cost;
      }
    }
  }

  const Transitions* transitions_;
  const Cluster* cluster_;
  const LoadMatrix* loads_;
  AffinityOptions options_;
  std::vector<double> cost_;
};

}  // namespace

Transitions::Transitions(std::int32_t num_layers, std::int32_t num_experts)
    : num_layers_(num_layers),
      num_experts_(num_experts),
      counts_(as_index(std::max(0, num_layers - 1)) * as_index(num_experts) * as_index(num_experts),
              0.0) {}

void Transitions::add(std::span<const std::int32_t> chosen, std::int32_t top_k) {
  MOE_CHECK(chosen.size() == as_index(num_layers_) * as_index(top_k));
  for (std::int32_t layer = 0; layer + 1 < num_layers_; ++layer) {
    double* flow =
        counts_.data() + as_index(layer) * as_index(num_experts_) * as_index(num_experts_);
    for (const std::int32_t a :
         chosen.subspan(as_index(layer) * as_index(top_k), as_index(top_k))) {
      if (a < 0) continue;
      for (const std::int32_t b :
           chosen.subspan(as_index(layer + 1) * as_index(top_k), as_index(top_k))) {
        if (b >= 0) flow[as_index(a) * as_index(num_experts_) + as_index(b)] += 1.0;
      }
    }
  }
}

std::span<const double> Transitions::between(std::int32_t layer) const {
  const std::size_t size = as_index(num_experts_) * as_index(num_experts_);
  return std::span(counts_).subspan(as_index(layer) * size, size);
}

double Transitions::total() const {
  return balance::total(counts_);
}

TransitionShares transition_shares(const Placement& placement, const Cluster& cluster,
                                   const Transitions& transitions) {
  const std::size_t num_gpus = as_index(cluster.num_gpus());
  const std::size_t num_experts = as_index(transitions.num_experts());
  double on_gpu = 0.0;
  double on_node = 0.0;
  for (std::int32_t layer = 0; layer + 1 < transitions.num_layers(); ++layer) {
    const std::vector<double> before = gpu_shares(placement, layer);
    const std::vector<double> after = gpu_shares(placement, layer + 1);
    const auto flow = transitions.between(layer);
    // reaching[GPU, b]: transitions into b that come from the GPU.
    std::vector<double> reaching(num_gpus * num_experts, 0.0);
    for (std::size_t a = 0; a < num_experts; ++a) {
      for (std::size_t gpu = 0; gpu < num_gpus; ++gpu) {
        const double share = before[a * num_gpus + gpu];
        if (share <= 0.0) continue;
        for (std::size_t b = 0; b < num_experts; ++b) {
          reaching[gpu * num_experts + b] += share * flow[a * num_experts + b];
        }
      }
    }
    for (std::size_t from = 0; from < num_gpus; ++from) {
      for (std::size_t to = 0; to < num_gpus; ++to) {
        if (cluster.node[from] != cluster.node[to]) continue;
        double sum = 0.0;
        for (std::size_t b = 0; b < num_experts; ++b) {
          sum += reaching[from * num_experts + b] * after[b * num_gpus + to];
        }
        on_node += sum;
        if (from == to) on_gpu += sum;
      }
    }
  }
  const double all = transitions.total();
  if (all <= 0.0) return {};
  return {.cross_gpu = std::max(0.0, 1.0 - on_gpu / all),
          .cross_node = std::max(0.0, 1.0 - on_node / all)};
}

TransitionShares transition_bound(const Cluster& cluster, const Transitions& transitions) {
  std::vector<std::int32_t> node_slots(as_index(cluster.num_nodes()), 0);
  for (std::size_t gpu = 0; gpu < cluster.slots.size(); ++gpu) {
    node_slots[as_index(cluster.node[gpu])] += cluster.slots[gpu];
  }
  const std::size_t gpu_room =
      as_index(*std::max_element(cluster.slots.begin(), cluster.slots.end()));
  const std::size_t node_room = as_index(*std::max_element(node_slots.begin(), node_slots.end()));
  const std::size_t num_experts = as_index(transitions.num_experts());
  double on_gpu = 0.0;
  double on_node = 0.0;
  for (std::int32_t layer = 0; layer + 1 < transitions.num_layers(); ++layer) {
    const auto flow = transitions.between(layer);
    on_gpu += std::min(largest_flows(flow, num_experts, gpu_room, false),
                       largest_flows(flow, num_experts, gpu_room, true));
    on_node += std::min(largest_flows(flow, num_experts, node_room, false),
                        largest_flows(flow, num_experts, node_room, true));
  }
  const double all = transitions.total();
  if (all <= 0.0) return {};
  return {.cross_gpu = std::max(0.0, 1.0 - on_gpu / all),
          .cross_node = std::max(0.0, 1.0 - on_node / all)};
}

Placement plan_affinity(const Transitions& transitions, const LoadMatrix& loads,
                        const Cluster& cluster, const AffinityOptions& options) {
  check_cluster(cluster, transitions.num_experts());
  MOE_CHECK(loads.num_layers == transitions.num_layers() &&
            loads.num_experts == transitions.num_experts());
  if (cluster.num_slots() != transitions.num_experts()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("affinity places each expert once: expected {} slots, found {}",
                            transitions.num_experts(), cluster.num_slots()));
  }
  Placement placement =
      linear_placement(cluster, transitions.num_layers(), transitions.num_experts());
  LayerExchange exchange(transitions, cluster, loads, options);
  for (std::int32_t sweep = 0; sweep < options.max_sweeps; ++sweep) {
    bool has_moved = false;
    for (std::int32_t layer = 0; layer < transitions.num_layers(); ++layer) {
      has_moved = exchange.improve(layer, placement) || has_moved;
    }
    if (!has_moved) break;
  }
  return placement;
}

}  // namespace moe::balance
