#include "lib/balance/replica_choice.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "lib/balance/planner.hpp"
#include "lib/base/rng.hpp"
#include "tests/lib/balance/support.hpp"

namespace moe::balance {
namespace {

struct Batch {
  std::vector<Copy> copies;
  std::vector<double> counts;
};

Batch random_batch(std::int32_t num_experts, std::int32_t num_gpus, std::uint64_t seed) {
  Rng rng(seed);
  Batch batch;
  batch.counts.assign(static_cast<std::size_t>(num_experts), 0.0);
  for (std::uint64_t i = 0; i < 400; ++i) {
    const std::uint64_t bound = 1 + rng.next_below(static_cast<std::uint64_t>(num_experts));
    const auto expert = static_cast<std::int32_t>(rng.next_below(bound));
    const auto source =
        static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(num_gpus)));
    batch.copies.push_back({expert, source, i});
    batch.counts[static_cast<std::size_t>(expert)] += 1.0;
  }
  return batch;
}

double slowest(const RouteResult& result, const Cluster& cluster) {
  double time = 0.0;
  for (std::size_t gpu = 0; gpu < result.gpu_copies.size(); ++gpu) {
    time = std::max(time, static_cast<double>(result.gpu_copies[gpu]) / cluster.speed[gpu]);
  }
  return time;
}

// Smallest largest load by subsets: max over sets of GPUs of the load that can go nowhere else.
double bound_by_subsets(const Placement& placement, const Cluster& cluster,
                        const std::vector<double>& counts) {
  double bound = 0.0;
  for (std::uint32_t set = 1; set < (1U << placement.num_gpus()); ++set) {
    double load = 0.0;
    for (std::int32_t expert = 0; expert < placement.num_experts; ++expert) {
      bool is_inside = true;
      for (std::int32_t slot = 0; slot < placement.num_slots(); ++slot) {
        if (placement.layer(0)[static_cast<std::size_t>(slot)] != expert) continue;
        const auto gpu = static_cast<std::uint32_t>(
            std::upper_bound(placement.slot_begin.begin(), placement.slot_begin.end(), slot) -
            placement.slot_begin.begin() - 1);
        is_inside = is_inside && ((set >> gpu) & 1U) != 0;
      }
      if (is_inside) load += counts[static_cast<std::size_t>(expert)];
    }
    double speed = 0.0;
    for (std::size_t gpu = 0; gpu < cluster.speed.size(); ++gpu) {
      if (((set >> gpu) & 1U) != 0) speed += cluster.speed[gpu];
    }
    bound = std::max(bound, load / speed);
  }
  return bound;
}

TEST(ReplicaChoice, BoundIsExact) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Cluster cluster = uniform_cluster(5, 15, 2);
    cluster.speed = {1.0, 1.0, 2.0, 1.0, 0.5};
    const LoadMatrix loads = test::random_loads(1, 10, seed);
    const Placement placement = plan_joint({&loads, 1}, cluster).placement;
    const Batch batch = random_batch(10, 5, seed);
    ReplicaRouter router(placement, cluster);
    EXPECT_NEAR(router.min_max_load(0, batch.counts),
                bound_by_subsets(placement, cluster, batch.counts), 1e-6)
        << "seed " << seed;
  }
}

TEST(ReplicaChoice, EveryPolicyRoutesEachCopyAndStaysAboveTheBound) {
  const Cluster cluster = uniform_cluster(8, 24, 2);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const LoadMatrix loads = test::random_loads(1, 16, seed);
    const Placement placement = plan_joint({&loads, 1}, cluster).placement;
    const Batch batch = random_batch(16, 8, seed);
    ReplicaRouter router(placement, cluster);
    const double bound = router.min_max_load(0, batch.counts);
    for (const ReplicaPolicy policy : kReplicaPolicies) {
      const RouteResult result = router.route(policy, 0, batch.copies);
      EXPECT_EQ(
          std::accumulate(result.gpu_copies.begin(), result.gpu_copies.end(), std::int64_t{0}),
          400);
      EXPECT_GE(slowest(result, cluster), bound - 1e-6) << replica_policy_name(policy);
      EXPECT_LE(result.num_cross_node, result.num_cross_gpu);
    }
    EXPECT_LE(router.route(ReplicaPolicy::kLocalFirst, 0, batch.copies).num_cross_gpu,
              router.route(ReplicaPolicy::kEven, 0, batch.copies).num_cross_gpu);
    EXPECT_LE(router.route(ReplicaPolicy::kTwoLevel, 0, batch.copies).num_cross_node,
              router.route(ReplicaPolicy::kLeastLoaded, 0, batch.copies).num_cross_node);
  }
}

TEST(ReplicaChoice, SplitsEvenlyInTurn) {
  const Cluster cluster = uniform_cluster(2, 4, 1);
  Placement placement = linear_placement(cluster, 1, 2);
  ReplicaRouter router(placement, cluster);
  const std::vector<Copy> copies(10, Copy{.expert = 0, .source_gpu = 1, .key = 0});
  EXPECT_EQ(router.route(ReplicaPolicy::kEven, 0, copies).gpu_copies,
            (std::vector<std::int64_t>{5, 5}));
  // One key: always the same replica. Own GPU: nothing leaves.
  const auto hashed = router.route(ReplicaPolicy::kConsistentHash, 0, copies).gpu_copies;
  EXPECT_EQ(std::max(hashed[0], hashed[1]), 10);
  EXPECT_EQ(router.route(ReplicaPolicy::kLocalFirst, 0, copies).num_cross_gpu, 0);
}

TEST(ReplicaChoice, HashMovesOnlyTheKeysOfTheReplicaThatWent) {
  const Cluster cluster = uniform_cluster(4, 4, 1);
  Placement four = empty_placement(cluster, 1, 1);
  four.slot_expert = {0, 0, 0, 0};
  const Cluster three_gpus = uniform_cluster(3, 3, 1);
  Placement three = empty_placement(three_gpus, 1, 1);
  three.slot_expert = {0, 0, 0};
  ReplicaRouter before(four, cluster);
  ReplicaRouter after(three, three_gpus);
  int num_moved = 0;
  for (std::uint64_t key = 0; key < 400; ++key) {
    const std::vector<Copy> copy = {{.expert = 0, .source_gpu = 0, .key = key}};
    const auto old_gpus = before.route(ReplicaPolicy::kConsistentHash, 0, copy).gpu_copies;
    const auto new_gpus = after.route(ReplicaPolicy::kConsistentHash, 0, copy).gpu_copies;
    if (old_gpus[3] == 1) {
      ++num_moved;
      continue;
    }
    EXPECT_TRUE(std::equal(new_gpus.begin(), new_gpus.end(), old_gpus.begin())) << key;
  }
  EXPECT_NEAR(num_moved, 100, 40);
}

}  // namespace
}  // namespace moe::balance
