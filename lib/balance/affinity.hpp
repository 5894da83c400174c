#pragma once

// Placement that keeps tokens where they are from one layer to the next: experts that follow each
// other go to the same GPU, or at least to the same node. One replica an expert, equally many
// experts a GPU. Load balance is a constraint, not the aim.
//
// The cost of a transition (expert a in one layer, b in the next, of the same token) is 0 on one
// GPU, 1 within a node, 2 between nodes, as in ExFlow (arXiv 2401.08383). Every pair of a token's
// choices counts.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/balance/loads.hpp"
#include "lib/balance/placement.hpp"

namespace moe::balance {

// How often expert b of layer l + 1 followed expert a of layer l.
class Transitions {
 public:
  Transitions(std::int32_t num_layers, std::int32_t num_experts);

  // One token: chosen[layer * top_k ...], negative for an unused slot.
  void add(std::span<const std::int32_t> chosen, std::int32_t top_k);

  [[nodiscard]] std::int32_t num_layers() const { return num_layers_; }
  [[nodiscard]] std::int32_t num_experts() const { return num_experts_; }
  // [experts, experts] from layer to layer + 1.
  [[nodiscard]] std::span<const double> between(std::int32_t layer) const;
  [[nodiscard]] double total() const;

 private:
  std::int32_t num_layers_;
  std::int32_t num_experts_;
  std::vector<double> counts_;
};

struct TransitionShares {
  double cross_gpu = 0.0;  // of all transitions
  double cross_node = 0.0;
};

// Replicas count as chosen evenly.
[[nodiscard]] TransitionShares transition_shares(const Placement& placement, const Cluster& cluster,
                                                 const Transitions& transitions);

// No placement of one replica an expert crosses less: a GPU (node) with room for s experts keeps at
// most the s largest flows into, and out of, each expert. Optimistic: all experts may pick
// their neighbours freely.
[[nodiscard]] TransitionShares transition_bound(const Cluster& cluster,
                                                const Transitions& transitions);

struct AffinityOptions {
  // A layer's balancedness does not fall below this share of what it was at the start (linear
  // placement). 0: balance does not matter.
  double min_balancedness = 0.0;
  std::int32_t max_sweeps = 50;
};

// Starts from the linear placement; exchanges experts within a layer while that lowers the cost,
// layer by layer, until a sweep changes nothing. Needs as many slots as experts; throws
// Error(kUsage) otherwise. `loads` has the transitions' layers and experts.
[[nodiscard]] Placement plan_affinity(const Transitions& transitions, const LoadMatrix& loads,
                                      const Cluster& cluster, const AffinityOptions& options = {});

}  // namespace moe::balance
