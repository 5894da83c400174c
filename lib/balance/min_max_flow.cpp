#include "lib/balance/min_max_flow.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

// Experts on the left with a supply, GPUs on the right with a room; Dinic's algorithm, written for
// this shape.
class Transport {
 public:
  Transport(std::span<const double> loads, std::span<const std::int32_t> first,
            std::span<const std::int32_t> gpus, std::size_t num_gpus)
      : first_(first),
        gpus_(gpus),
        flow_(gpus.size(), 0.0),
        supply_(loads.begin(), loads.end()),
        room_(num_gpus, 0.0),
        experts_of_(num_gpus),
        expert_level_(loads.size()),
        gpu_level_(num_gpus),
        next_edge_(loads.size()),
        next_expert_(num_gpus) {
    for (std::size_t expert = 0; expert + 1 < first.size(); ++expert) {
      for (std::int32_t edge = first[expert]; edge < first[expert + 1]; ++edge) {
        experts_of_[as_index(gpus[as_index(edge)])].push_back(
            {static_cast<std::int32_t>(expert), edge});
      }
    }
  }

  // Room for `limit` x speed on every GPU; returns what could not be placed.
  double place(double limit, std::span<const double> loads, std::span<const double> speeds) {
    scale_ = std::accumulate(loads.begin(), loads.end(), 0.0);
    std::copy(loads.begin(), loads.end(), supply_.begin());
    std::fill(flow_.begin(), flow_.end(), 0.0);
    for (std::size_t gpu = 0; gpu < room_.size(); ++gpu) room_[gpu] = limit * speeds[gpu];
    while (find_levels()) {
      std::fill(next_edge_.begin(), next_edge_.end(), 0);
      std::fill(next_expert_.begin(), next_expert_.end(), std::size_t{0});
      for (std::size_t expert = 0; expert < supply_.size(); ++expert) {
        while (supply_[expert] > epsilon()) {
          const double pushed = push_from(static_cast<std::int32_t>(expert), supply_[expert]);
          if (pushed <= epsilon()) break;
          supply_[expert] -= pushed;
        }
      }
    }
    return std::accumulate(supply_.begin(), supply_.end(), 0.0);
  }

  // After place(): load of the experts and speed of the GPUs on the source side of the cut.
  double cut_ratio(std::span<const double> loads, std::span<const double> speeds) const {
    double load = 0.0;
    double speed = 0.0;
    for (std::size_t expert = 0; expert < loads.size(); ++expert) {
      if (expert_level_[expert] >= 0) load += loads[expert];
    }
    for (std::size_t gpu = 0; gpu < speeds.size(); ++gpu) {
      if (gpu_level_[gpu] >= 0) speed += speeds[gpu];
    }
    return speed > 0.0 ? load / speed : std::numeric_limits<double>::infinity();
  }

 private:
  struct Back {
    std::int32_t expert = 0;
    std::int32_t edge = 0;
  };

  [[nodiscard]] double epsilon() const { return 1e-12 * scale_; }

  // Breadth first over the residual graph; true when a GPU with room is reached.
  bool find_levels() {
    std::fill(expert_level_.begin(), expert_level_.end(), -1);
    std::fill(gpu_level_.begin(), gpu_level_.end(), -1);
    std::vector<std::int32_t> experts;
    for (std::size_t expert = 0; expert < supply_.size(); ++expert) {
      if (supply_[expert] <= epsilon()) continue;
      expert_level_[expert] = 0;
      experts.push_back(static_cast<std::int32_t>(expert));
    }
    bool found = false;
    for (std::int32_t level = 0; !experts.empty(); ++level) {
      std::vector<std::int32_t> reached;
      for (const std::int32_t expert : experts) {
        for (std::int32_t edge = first_[as_index(expert)]; edge < first_[as_index(expert) + 1];
             ++edge) {
          const std::size_t gpu = as_index(gpus_[as_index(edge)]);
          if (gpu_level_[gpu] >= 0) continue;
          gpu_level_[gpu] = level;
          found = found || room_[gpu] > epsilon();
          for (const Back& back : experts_of_[gpu]) {
            if (expert_level_[as_index(back.expert)] >= 0 ||
                flow_[as_index(back.edge)] <= epsilon()) {
              continue;
            }
            expert_level_[as_index(back.expert)] = level + 1;
            reached.push_back(back.expert);
          }
        }
      }
      experts = std::move(reached);
    }
    return found;
  }

  double push_from(std::int32_t expert, double amount) {
    std::int32_t& next = next_edge_[as_index(expert)];
    const std::int32_t begin = first_[as_index(expert)];
    const std::int32_t count = first_[as_index(expert) + 1] - begin;
    for (; next < count; ++next) {
      const std::size_t edge = as_index(begin + next);
      const std::int32_t gpu = gpus_[edge];
      if (gpu_level_[as_index(gpu)] != expert_level_[as_index(expert)]) continue;
      const double pushed = push_into(gpu, amount);
      if (pushed <= epsilon()) continue;
      flow_[edge] += pushed;
      return pushed;
    }
    return 0.0;
  }

  double push_into(std::int32_t gpu, double amount) {
    if (room_[as_index(gpu)] > epsilon()) {
      const double pushed = std::min(amount, room_[as_index(gpu)]);
      room_[as_index(gpu)] -= pushed;
      return pushed;
    }
    std::size_t& next = next_expert_[as_index(gpu)];
    for (; next < experts_of_[as_index(gpu)].size(); ++next) {
      const Back& back = experts_of_[as_index(gpu)][next];
      const double flow = flow_[as_index(back.edge)];
      if (flow <= epsilon() ||
          expert_level_[as_index(back.expert)] != gpu_level_[as_index(gpu)] + 1) {
        continue;
      }
      const double pushed = push_from(back.expert, std::min(amount, flow));
      if (pushed <= epsilon()) continue;
      flow_[as_index(back.edge)] -= pushed;
      return pushed;
    }
    return 0.0;
  }

  std::span<const std::int32_t> first_;
  std::span<const std::int32_t> gpus_;
  std::vector<double> flow_;  // by edge
  std::vector<double> supply_;
  std::vector<double> room_;
  std::vector<std::vector<Back>> experts_of_;
  std::vector<std::int32_t> expert_level_;
  std::vector<std::int32_t> gpu_level_;
  std::vector<std::int32_t> next_edge_;
  std::vector<std::size_t> next_expert_;
  double scale_ = 0.0;
};

}  // namespace

double min_max_load(std::span<const double> loads, std::span<const std::int32_t> first,
                    std::span<const std::int32_t> gpus, std::span<const double> speeds) {
  MOE_CHECK(first.size() == loads.size() + 1);
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum <= 0.0) return 0.0;
  double limit = sum / std::accumulate(speeds.begin(), speeds.end(), 0.0);
  Transport transport(loads, first, gpus, speeds.size());
  // Each round finds a set of experts whose GPUs together are too slow for the limit; their ratio
  // is the next limit. There are finitely many sets, the limit grows, so it ends.
  while (transport.place(limit, loads, speeds) > 1e-9 * sum) {
    const double next = transport.cut_ratio(loads, speeds);
    if (next <= limit * (1.0 + 1e-12)) break;
    limit = next;
  }
  return limit;
}

}  // namespace moe::balance
