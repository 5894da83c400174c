#pragma once

// Every pair of ranks by itself, each direction apart: what a link does when nothing else is on it,
// and which host sits behind the slow ones.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/comm/communicator.hpp"

namespace moe::comm {

struct PairOptions {
  std::int64_t bytes = 1 << 20;  // for the bandwidth
  std::int64_t num_repeats = 3;  // the median counts
  const Interrupt* interrupt = nullptr;
  Progress* progress = nullptr;  // of rank 0
};

struct PairFigure {
  int sender = 0;
  int receiver = 0;
  double latency_s = 0.0;  // from the common start until 8 bytes are there
  double bytes_per_s = 0.0;
};

// Collective. Rounds of pairs that share no rank; one pair at a time where ranks of several pairs
// sit on one host, whose port they would share. Whole at rank 0, empty elsewhere.
[[nodiscard]] std::vector<PairFigure> measure_pairs(Communicator& communicator,
                                                    const PairOptions& options,
                                                    std::span<const int> nodes);

// The same for rounds that are given, the same at every rank.
[[nodiscard]] std::vector<PairFigure> measure_rounds(
    Communicator& communicator, const PairOptions& options,
    const std::vector<std::vector<std::pair<int, int>>>& rounds);

// Rounds of disjoint pairs (circle method): in n-1 rounds (n even) or n (odd) everybody meets
// everybody once.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> pair_rounds(int num_ranks);

// A node whose pairs to others are slow while the others are not among themselves.
struct SlowNode {
  int node = 0;
  bool is_sending = false;          // slow when it sends; false: when it receives
  double bytes_per_s = 0.0;         // median over its pairs
  double others_bytes_per_s = 0.0;  // median over the pairs without it
};

struct PairVerdict {
  double reachable_bytes_per_s = 0.0;  // what pairs between nodes reach
  std::vector<PairFigure> slow;        // below the share of what their kind reaches, slowest first
  std::vector<SlowNode> nodes;         // that explain them, worst first
};

// Pairs between nodes are judged among themselves, pairs inside a node too; with one node each rank
// counts as a node of its own. Needs three nodes to blame one.
[[nodiscard]] PairVerdict judge_pairs(const std::vector<PairFigure>& pairs,
                                      std::span<const int> nodes, double min_share);

}  // namespace moe::comm
