#include "lib/balance/planner.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lib/balance/balancedness.hpp"
#include "lib/balance/eplb.hpp"
#include "lib/balance/layer_search.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

// Looks at moves per layer when moved slots are limited: states on the way are what matters, so
// there are no kicks and the descent ends by itself.
constexpr std::int64_t kTradeEvaluations = 4'000'000;

void check_request(std::span<const LoadMatrix> traces, const Cluster& cluster,
                   const PlanOptions& options) {
  if (traces.empty()) throw Error(ErrorCode::kUsage, "expected at least one trace to plan for");
  for (std::size_t i = 0; i < traces.size(); ++i) {
    check_loads(traces[i], fmt::format("trace {}", i + 1));
    if (traces[i].num_layers == traces[0].num_layers &&
        traces[i].num_experts == traces[0].num_experts) {
      continue;
    }
    throw Error(ErrorCode::kInput,
                fmt::format("trace {} has {} layers x {} experts, trace 1 has {} x {}: one plan "
                            "is for one model",
                            i + 1, traces[i].num_layers, traces[i].num_experts,
                            traces[0].num_layers, traces[0].num_experts));
  }
  check_cluster(cluster, traces[0].num_experts);
  if (options.num_groups < 1 || traces[0].num_experts % options.num_groups != 0 ||
      options.num_groups % cluster.num_nodes() != 0) {
    if (options.num_groups != 1) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("{} groups: expected a number that divides {} experts and that {} "
                              "nodes divide",
                              options.num_groups, traces[0].num_experts, cluster.num_nodes()));
    }
  }
  const Placement* current = options.current;
  if (current == nullptr) return;
  const Placement shape = empty_placement(cluster, traces[0].num_layers, traces[0].num_experts);
  if (current->slot_begin != shape.slot_begin || current->num_layers != shape.num_layers ||
      current->num_experts != shape.num_experts) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the current plan has {} layers, {} experts, {} slots on {} GPUs; the "
                            "new one {}, {}, {} on {}: moved slots can be counted between equal "
                            "shapes only",
                            current->num_layers, current->num_experts, current->num_slots(),
                            current->num_gpus(), shape.num_layers, shape.num_experts,
                            shape.num_slots(), shape.num_gpus()));
  }
}

// loads[expert, trace] of the experts given.
std::vector<double> gather(std::span<const LoadMatrix> traces, std::int32_t layer,
                           std::span<const std::int32_t> experts) {
  std::vector<double> loads;
  loads.reserve(experts.size() * traces.size());
  for (const std::int32_t expert : experts) {
    for (const LoadMatrix& trace : traces) loads.push_back(trace.layer(layer)[as_index(expert)]);
  }
  return loads;
}

SearchShape shape_of(const Placement& placement, const Cluster& cluster, std::size_t num_traces,
                     bool spreads_nodes) {
  return {.num_experts = placement.num_experts,
          .num_traces = static_cast<std::int32_t>(num_traces),
          .slot_begin = placement.slot_begin,
          .speed = cluster.speed,
          .node = cluster.node,
          .spreads_nodes = spreads_nodes};
}

std::vector<std::int32_t> all_experts(std::int32_t num_experts) {
  std::vector<std::int32_t> experts(as_index(num_experts));
  std::iota(experts.begin(), experts.end(), 0);
  return experts;
}

// The EPLB plan of the same shape where there is one; searches from it where it does better, so
// that the result is never below it (unless EPLB gains by two replicas on one GPU, which is not
// done here).
class EplbFloor {
 public:
  EplbFloor(std::span<const LoadMatrix> traces, const Cluster& cluster,
            const PlanOptions& options) {
    const bool is_even = std::count(cluster.slots.begin(), cluster.slots.end(), cluster.slots[0]) ==
                             cluster.num_gpus() &&
                         std::count(cluster.speed.begin(), cluster.speed.end(), cluster.speed[0]) ==
                             cluster.num_gpus();
    if (!is_even || traces.size() != 1 || options.spreads_nodes) return;
    plan_ = plan_eplb(traces[0], {.num_slots = cluster.num_slots(), .num_gpus = cluster.num_gpus()})
                .placement;
    loads_ = &traces[0];
  }

  void lift(std::int32_t layer, std::int64_t max_evaluations, LayerSearch& search) const {
    if (loads_ == nullptr) return;
    const std::optional<double> floor = balancedness(gpu_loads(plan_, layer, loads_->layer(layer)));
    if (!floor || 1.0 / search.slowest() >= *floor) return;
    if (has_colocated(layer)) return;
    search.start_from(plan_.layer(layer));
    search.search(max_evaluations, 1.0, 0);
  }

 private:
  [[nodiscard]] bool has_colocated(std::int32_t layer) const {
    for (std::int32_t gpu = 0; gpu < plan_.num_gpus(); ++gpu) {
      const auto slots = plan_.layer(layer).subspan(
          as_index(plan_.slot_begin[as_index(gpu)]),
          as_index(plan_.slot_begin[as_index(gpu) + 1] - plan_.slot_begin[as_index(gpu)]));
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        if (std::find(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(slot),
                      slots[slot]) != slots.begin() + static_cast<std::ptrdiff_t>(slot)) {
          return true;
        }
      }
    }
    return false;
  }

  Placement plan_;
  const LoadMatrix* loads_ = nullptr;  // null: no such plan
};

void plan_flat(std::span<const LoadMatrix> traces, const Cluster& cluster,
               const PlanOptions& options, Placement& placement) {
  LayerSearch search(shape_of(placement, cluster, traces.size(), options.spreads_nodes));
  const EplbFloor floor(traces, cluster, options);
  const std::vector<std::int32_t> experts = all_experts(placement.num_experts);
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    search.set_loads(gather(traces, layer, experts));
    search.build();
    if (search.has_load()) {
      search.search(options.max_evaluations, 1.0 / options.good_enough,
                    options.seed + as_index(layer));
      floor.lift(layer, options.max_evaluations, search);
    }
    std::copy(search.slot_expert().begin(), search.slot_expert().end(),
              placement.layer(layer).begin());
  }
}

// The GPUs of one node as a cluster of their own.
Cluster node_cluster(const Cluster& cluster, std::int32_t node) {
  Cluster part;
  for (std::size_t gpu = 0; gpu < cluster.slots.size(); ++gpu) {
    if (cluster.node[gpu] != node) continue;
    part.slots.push_back(cluster.slots[gpu]);
    part.speed.push_back(cluster.speed[gpu]);
    part.node.push_back(0);
  }
  return part;
}

// Groups to nodes, equally many each: the same search, a group for an expert and a node for a GPU.
// Returns the experts of each node.
std::vector<std::vector<std::int32_t>> assign_groups(std::span<const LoadMatrix> traces,
                                                     std::int32_t layer, const Cluster& cluster,
                                                     const PlanOptions& options) {
  const std::int32_t num_nodes = cluster.num_nodes();
  const std::int32_t group_size = traces[0].num_experts / options.num_groups;
  Cluster nodes = uniform_cluster(num_nodes, options.num_groups, 1);
  for (std::int32_t node = 0; node < num_nodes; ++node) {
    nodes.speed[as_index(node)] = node_cluster(cluster, node).total_speed();
  }
  std::vector<double> loads(as_index(options.num_groups) * traces.size(), 0.0);
  for (std::size_t trace = 0; trace < traces.size(); ++trace) {
    const std::span<const double> row = traces[trace].layer(layer);
    for (std::size_t expert = 0; expert < row.size(); ++expert) {
      loads[expert / as_index(group_size) * traces.size() + trace] += row[expert];
    }
  }
  const Placement shape = empty_placement(nodes, 1, options.num_groups);
  LayerSearch search(shape_of(shape, nodes, traces.size(), false));
  search.set_loads(loads);
  search.build();
  if (search.has_load()) search.search(options.max_evaluations, 1.0, options.seed);
  std::vector<std::vector<std::int32_t>> experts(as_index(num_nodes));
  for (std::int32_t node = 0; node < num_nodes; ++node) {
    for (std::int32_t slot = shape.slot_begin[as_index(node)];
         slot < shape.slot_begin[as_index(node) + 1]; ++slot) {
      const std::int32_t first = search.slot_expert()[as_index(slot)] * group_size;
      for (std::int32_t i = 0; i < group_size; ++i) experts[as_index(node)].push_back(first + i);
    }
  }
  return experts;
}

void plan_grouped(std::span<const LoadMatrix> traces, const Cluster& cluster,
                  const PlanOptions& options, Placement& placement) {
  const std::int32_t experts_per_node = placement.num_experts / cluster.num_nodes();
  for (std::int32_t node = 0; node < cluster.num_nodes(); ++node) {
    check_cluster(node_cluster(cluster, node), experts_per_node);
  }
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const auto experts = assign_groups(traces, layer, cluster, options);
    auto target = placement.layer(layer).begin();
    for (std::int32_t node = 0; node < cluster.num_nodes(); ++node) {
      const Cluster part = node_cluster(cluster, node);
      const Placement shape = empty_placement(part, 1, experts_per_node);
      LayerSearch search(shape_of(shape, part, traces.size(), false));
      search.set_loads(gather(traces, layer, experts[as_index(node)]));
      search.build();
      if (search.has_load()) {
        search.search(options.max_evaluations, 1.0 / options.good_enough,
                      options.seed + as_index(layer));
      }
      for (const std::int32_t local : search.slot_expert()) {
        *target++ = experts[as_index(node)][as_index(local)];
      }
    }
  }
}

// Upper concave hull of balancedness over moved slots, as indices of points.
std::vector<std::size_t> concave_hull(const std::vector<MovePoint>& points) {
  const auto slope = [&](std::size_t a, std::size_t b) {
    return (1.0 / points[b].slowest - 1.0 / points[a].slowest) /
           static_cast<double>(points[b].num_moved - points[a].num_moved);
  };
  std::vector<std::size_t> hull;
  for (std::size_t i = 0; i < points.size(); ++i) {
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), i)) {
      hull.pop_back();
    }
    hull.push_back(i);
  }
  return hull;
}

// Spends the moved slots where a slot gains most balancedness, over all layers.
void plan_from_current(std::span<const LoadMatrix> traces, const Cluster& cluster,
                       const PlanOptions& options, Placement& placement) {
  placement = *options.current;
  const double all_slots =
      static_cast<double>(placement.num_layers) * static_cast<double>(placement.num_slots());
  std::int64_t budget = static_cast<std::int64_t>(std::floor(options.max_moved_ratio * all_slots));
  LayerSearch search(shape_of(placement, cluster, traces.size(), options.spreads_nodes));
  const std::vector<std::int32_t> experts = all_experts(placement.num_experts);
  struct Segment {
    double slope = 0.0;
    std::int32_t num_moved = 0;
    std::int32_t layer = 0;
    std::size_t point = 0;
  };
  std::vector<Segment> segments;
  std::vector<std::vector<MovePoint>> points(as_index(placement.num_layers));
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    search.set_loads(gather(traces, layer, experts));
    if (!search.has_load()) continue;
    search.start_from(placement.layer(layer));
    points[as_index(layer)] = search.trade(
        static_cast<std::int32_t>(std::min<std::int64_t>(budget, placement.num_slots())),
        kTradeEvaluations, 1.0 / options.good_enough);
    const std::vector<MovePoint>& trade = points[as_index(layer)];
    const std::vector<std::size_t> hull = concave_hull(trade);
    for (std::size_t i = 1; i < hull.size(); ++i) {
      const std::int32_t moved = trade[hull[i]].num_moved - trade[hull[i - 1]].num_moved;
      const double gain = 1.0 / trade[hull[i]].slowest - 1.0 / trade[hull[i - 1]].slowest;
      segments.push_back({gain / static_cast<double>(moved), moved, layer, hull[i]});
    }
  }
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.slope > b.slope; });
  std::vector<bool> is_closed(as_index(placement.num_layers), false);
  for (const Segment& segment : segments) {
    if (is_closed[as_index(segment.layer)]) continue;
    if (segment.num_moved > budget) {
      is_closed[as_index(segment.layer)] = true;  // later points of the layer build on this one
      continue;
    }
    budget -= segment.num_moved;
    const std::vector<std::int32_t>& slots =
        points[as_index(segment.layer)][segment.point].slot_expert;
    std::copy(slots.begin(), slots.end(), placement.layer(segment.layer).begin());
  }
}

// An expert that stays on its GPU stays in its slot.
void keep_slots(const Placement& current, Placement& placement) {
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const std::span<const std::int32_t> before = current.layer(layer);
    const std::span<std::int32_t> after = placement.layer(layer);
    for (std::int32_t gpu = 0; gpu < placement.num_gpus(); ++gpu) {
      const std::size_t begin = as_index(placement.slot_begin[as_index(gpu)]);
      const std::size_t end = as_index(placement.slot_begin[as_index(gpu) + 1]);
      for (std::size_t slot = begin; slot < end; ++slot) {
        const auto found =
            std::find(after.begin() + static_cast<std::ptrdiff_t>(begin),
                      after.begin() + static_cast<std::ptrdiff_t>(end), before[slot]);
        if (found != after.begin() + static_cast<std::ptrdiff_t>(end)) {
          std::swap(after[slot], *found);
        }
      }
    }
  }
}

}  // namespace

PlanResult plan_joint(std::span<const LoadMatrix> traces, const Cluster& cluster,
                      const PlanOptions& options) {
  check_request(traces, cluster, options);
  PlanResult result;
  result.placement = empty_placement(cluster, traces[0].num_layers, traces[0].num_experts);
  if (options.current != nullptr && options.max_moved_ratio < 1.0) {
    plan_from_current(traces, cluster, options, result.placement);
  } else if (options.num_groups > 1 && cluster.num_nodes() > 1) {
    plan_grouped(traces, cluster, options, result.placement);
  } else {
    plan_flat(traces, cluster, options, result.placement);
  }
  check_placement(result.placement, "plan");
  if (options.current != nullptr) {
    keep_slots(*options.current, result.placement);
    result.num_moved = moved_slots(*options.current, result.placement);
  }
  return result;
}

std::optional<double> balancedness_bound(std::span<const double> layer_loads,
                                         const Cluster& cluster) {
  const double sum = total(layer_loads);
  if (sum <= 0.0) return std::nullopt;
  const double mean = sum / cluster.total_speed();
  const std::int64_t num_slots = cluster.num_slots();
  const std::int64_t num_gpus = cluster.num_gpus();
  // Slots needed so that no replica is larger than `share`; more replicas than GPUs do not help.
  const auto fits = [&](double share) {
    std::int64_t needed = 0;
    for (const double load : layer_loads) {
      const double replicas = std::max(1.0, std::ceil(load / share * (1.0 - 1e-12)));
      if (replicas > static_cast<double>(num_gpus)) return false;
      needed += static_cast<std::int64_t>(replicas);
    }
    return needed <= num_slots;
  };
  double low = 0.0;
  double high = *std::max_element(layer_loads.begin(), layer_loads.end());
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (fits(middle) ? high : low) = middle;
  }
  const double fastest = *std::max_element(cluster.speed.begin(), cluster.speed.end());
  return std::min(1.0, mean / std::max(mean, low / fastest));
}

}  // namespace moe::balance
