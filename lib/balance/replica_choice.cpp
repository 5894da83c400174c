#include "lib/balance/replica_choice.hpp"

#include <algorithm>

#include "lib/balance/min_max_flow.hpp"
#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/rng.hpp"

namespace moe::balance {
namespace {

// Rendezvous hashing: every replica draws a number for the key, the largest wins. A replica that
// comes or goes moves only the keys that it wins.
std::uint64_t draw(std::uint64_t key, std::int32_t expert, std::int32_t gpu) {
  return Rng(key, as_index(gpu) * 0x10001ULL + as_index(expert)).bits_at(0);
}

}  // namespace

const char* replica_policy_name(ReplicaPolicy policy) {
  switch (policy) {
    case ReplicaPolicy::kEven:
      return "even";
    case ReplicaPolicy::kConsistentHash:
      return "hash";
    case ReplicaPolicy::kLeastLoaded:
      return "least_loaded";
    case ReplicaPolicy::kLocalFirst:
      return "local_first";
    case ReplicaPolicy::kTwoLevel:
      return "two_level";
  }
  return "";
}

ReplicaRouter::ReplicaRouter(const Placement& placement, const Cluster& cluster)
    : placement_(&placement),
      cluster_(&cluster),
      turn_(as_index(placement.num_experts)),
      arriving_(as_index(placement.num_gpus())) {
  MOE_CHECK(cluster.num_gpus() == placement.num_gpus());
}

void ReplicaRouter::select_layer(std::int32_t layer) {
  if (layer == layer_) return;
  layer_ = layer;
  const std::span<const std::int32_t> slots = placement_->layer(layer);
  std::vector<std::vector<std::int32_t>> holders(as_index(placement_->num_experts));
  for (std::int32_t gpu = 0; gpu < placement_->num_gpus(); ++gpu) {
    for (std::int32_t slot = placement_->slot_begin[as_index(gpu)];
         slot < placement_->slot_begin[as_index(gpu) + 1]; ++slot) {
      std::vector<std::int32_t>& gpus = holders[as_index(slots[as_index(slot)])];
      if (gpus.empty() || gpus.back() != gpu) gpus.push_back(gpu);
    }
  }
  first_.assign(1, 0);
  gpus_.clear();
  for (const std::vector<std::int32_t>& gpus : holders) {
    gpus_.insert(gpus_.end(), gpus.begin(), gpus.end());
    first_.push_back(static_cast<std::int32_t>(gpus_.size()));
  }
}

std::int32_t ReplicaRouter::least_loaded(std::span<const std::int32_t> gpus) const {
  std::int32_t best = gpus.front();
  for (const std::int32_t gpu : gpus) {
    const double time =
        static_cast<double>(arriving_[as_index(gpu)]) / cluster_->speed[as_index(gpu)];
    const double best_time =
        static_cast<double>(arriving_[as_index(best)]) / cluster_->speed[as_index(best)];
    if (time < best_time) best = gpu;
  }
  return best;
}

std::int32_t ReplicaRouter::choose(ReplicaPolicy policy, const Copy& copy) {
  const std::span<const std::int32_t> gpus(
      gpus_.data() + first_[as_index(copy.expert)],
      as_index(first_[as_index(copy.expert) + 1] - first_[as_index(copy.expert)]));
  if (gpus.size() == 1) return gpus.front();
  const bool is_local = std::binary_search(gpus.begin(), gpus.end(), copy.source_gpu);
  switch (policy) {
    case ReplicaPolicy::kLocalFirst:
      if (is_local) return copy.source_gpu;
      [[fallthrough]];
    case ReplicaPolicy::kEven: {
      std::int32_t& turn = turn_[as_index(copy.expert)];
      turn = (turn + 1) % static_cast<std::int32_t>(gpus.size());
      return gpus[as_index(turn)];
    }
    case ReplicaPolicy::kConsistentHash:
      return *std::max_element(gpus.begin(), gpus.end(), [&](std::int32_t a, std::int32_t b) {
        return draw(copy.key, copy.expert, a) < draw(copy.key, copy.expert, b);
      });
    case ReplicaPolicy::kLeastLoaded:
      return least_loaded(gpus);
    case ReplicaPolicy::kTwoLevel: {
      if (is_local) return copy.source_gpu;
      near_.clear();
      for (const std::int32_t gpu : gpus) {
        if (cluster_->node[as_index(gpu)] == cluster_->node[as_index(copy.source_gpu)])
          near_.push_back(gpu);
      }
      return least_loaded(near_.empty() ? gpus : std::span<const std::int32_t>(near_));
    }
  }
  return gpus.front();
}

RouteResult ReplicaRouter::route(ReplicaPolicy policy, std::int32_t layer,
                                 std::span<const Copy> copies) {
  select_layer(layer);
  std::fill(turn_.begin(), turn_.end(), -1);
  std::fill(arriving_.begin(), arriving_.end(), 0);
  RouteResult result;
  for (const Copy& copy : copies) {
    const std::int32_t gpu = choose(policy, copy);
    ++arriving_[as_index(gpu)];
    ++result.num_copies;
    if (gpu != copy.source_gpu) ++result.num_cross_gpu;
    if (cluster_->node[as_index(gpu)] != cluster_->node[as_index(copy.source_gpu)])
      ++result.num_cross_node;
  }
  result.gpu_copies = arriving_;
  return result;
}

double ReplicaRouter::min_max_load(std::int32_t layer, std::span<const double> counts) {
  select_layer(layer);
  return balance::min_max_load(counts, first_, gpus_, cluster_->speed);
}

}  // namespace moe::balance
