#pragma once

// Which replica a token goes to, once a placement is there. All policies see one layer of one batch
// at a time: how many copies each GPU's tokens send to each expert. What a choice costs is the
// slowest GPU and the copies that leave their GPU or their node.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lib/balance/placement.hpp"

namespace moe::balance {

enum class ReplicaPolicy : std::uint8_t {
  kEven,            // round robin over the replicas, in order
  kConsistentHash,  // by the token's key: the same key goes to the same replica
  kLeastLoaded,     // the replica on the GPU that has least so far, in the order of the copies
  kLocalFirst,      // a replica on the token's GPU when there is one, else round robin
  kTwoLevel,        // own GPU, then the least loaded of the own node, then of all
};

// "even", "hash", "least_loaded", "local_first", "two_level".
[[nodiscard]] const char* replica_policy_name(ReplicaPolicy policy);
inline constexpr ReplicaPolicy kReplicaPolicies[] = {
    ReplicaPolicy::kEven, ReplicaPolicy::kConsistentHash, ReplicaPolicy::kLeastLoaded,
    ReplicaPolicy::kLocalFirst, ReplicaPolicy::kTwoLevel};

// One routed copy of a batch.
struct Copy {
  std::int32_t expert = 0;
  std::int32_t source_gpu = 0;  // where its token is
  std::uint64_t key = 0;        // for consistent hashing: the request or the token
};

struct RouteResult {
  std::vector<std::int64_t> gpu_copies;  // [GPUs], arriving
  std::int64_t num_copies = 0;
  std::int64_t num_cross_gpu = 0;
  std::int64_t num_cross_node = 0;
};

class ReplicaRouter {
 public:
  // References outlive the router.
  ReplicaRouter(const Placement& placement, const Cluster& cluster);

  // The copies of one layer of one batch.
  [[nodiscard]] RouteResult route(ReplicaPolicy policy, std::int32_t layer,
                                  std::span<const Copy> copies);

  // Smallest possible load of the busiest GPU (in copies / speed) when copies of an expert may be
  // split over its replicas in any shares: the linear program, solved exactly by maximum flow and
  // the cut that it leaves (Newton's method on the cuts). counts[expert].
  [[nodiscard]] double min_max_load(std::int32_t layer, std::span<const double> counts);

 private:
  void select_layer(std::int32_t layer);
  [[nodiscard]] std::int32_t choose(ReplicaPolicy policy, const Copy& copy);
  [[nodiscard]] std::int32_t least_loaded(std::span<const std::int32_t> gpus) const;

  const Placement* placement_;
  const Cluster* cluster_;
  std::int32_t layer_ = -1;
  std::vector<std::int32_t> first_;     // [experts + 1] into gpus_
  std::vector<std::int32_t> gpus_;      // GPUs that hold the expert, ascending, without repeats
  std::vector<std::int32_t> turn_;      // [experts], of round robin
  std::vector<std::int64_t> arriving_;  // [GPUs]
  std::vector<std::int32_t> near_;      // scratch
};

}  // namespace moe::balance
