#pragma once

// The search for one layer: which expert is replicated how often and where, decided together. A
// greedy start (as EPLB, but never two replicas of an expert on one GPU), then moves that lower the
// slowest GPU: exchange two slots, or give a slot of a replicated expert to another expert. When no
// move helps, a few random exchanges and another descent; the best state is kept.
//
// Deterministic: same problem, same seed, same result. Internal to lib/balance; planner.hpp is the
// interface.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lib/base/rng.hpp"

namespace moe::balance {

// The part of the problem that all layers share.
struct SearchShape {
  std::int32_t num_experts = 0;
  std::int32_t num_traces = 0;
  std::span<const std::int32_t> slot_begin;  // [GPUs + 1]
  std::span<const double> speed;             // [GPUs]
  std::span<const std::int32_t> node;        // [GPUs]
  // Replicas go to a node without one while there is such a node.
  bool spreads_nodes = false;
};

// One point of the trade of moved slots against the slowest GPU.
struct MovePoint {
  std::int32_t num_moved = 0;
  double slowest = 0.0;
  std::vector<std::int32_t> slot_expert;
};

class LayerSearch {
 public:
  explicit LayerSearch(const SearchShape& shape);

  // loads[expert, trace], any scale: each trace is scaled to a mean time of 1 over the GPUs.
  void set_loads(std::span<const double> loads);
  // Greedy start.
  void build();
  // Starts from slots that hold every expert.
  void start_from(std::span<const std::int32_t> slot_expert);

  // Descends until no move helps, the slowest GPU is within `tolerance` of the mean, or so many
  // moves were looked at.
  void descend(std::int64_t max_evaluations, double tolerance);
  // The same with random kicks until the slowest GPU is at most `good_enough`.
  void search(std::int64_t max_evaluations, double good_enough, std::uint64_t seed);
  // Descends from the current state, fewest moved slots for the gain first, and keeps every state
  // that is better than those before; the first point is the start.
  [[nodiscard]] std::vector<MovePoint> trade(std::int32_t max_moved, std::int64_t max_evaluations,
                                             double good_enough);

  [[nodiscard]] std::span<const std::int32_t> slot_expert() const { return slot_expert_; }
  // Time of the slowest GPU in the worst trace; 1 is perfect.
  [[nodiscard]] double slowest() const;
  // False when a layer has no load in any trace.
  [[nodiscard]] bool has_load() const { return has_load_; }

 private:
  enum class MoveKind : std::uint8_t { kNone, kSwap, kRetype };
  struct Move {
    MoveKind kind = MoveKind::kNone;
    std::int32_t slot_a = -1;
    std::int32_t slot_b = -1;  // kSwap
    std::int32_t expert = -1;  // kRetype: what slot_a holds afterwards
    double slowest = std::numeric_limits<double>::infinity();  // of the GPUs that it touches
    std::int32_t num_moved = 0;
    double merit = 0.0;
  };

  [[nodiscard]] std::int32_t find_slowest_gpu() const;
  [[nodiscard]] double time_of(std::int32_t gpu) const;
  void count_replicas();
  void place(std::int32_t expert);
  [[nodiscard]] bool place_one_trace(std::int32_t expert);
  void reopen();
  void place_by_exchange(std::int32_t expert);
  void put(std::int32_t gpu, std::int32_t expert);
  [[nodiscard]] bool may_hold(std::int32_t gpu, std::int32_t expert) const;
  [[nodiscard]] bool node_allows(std::int32_t gpu, std::int32_t expert, std::int32_t leaving) const;
  [[nodiscard]] bool node_releases(std::int32_t gpu, std::int32_t expert) const;
  [[nodiscard]] std::vector<std::int32_t> copies_by_node(std::int32_t expert,
                                                         std::int32_t leaving) const;
  void refresh();
  void set_share(std::int32_t expert);

  void try_swaps(std::int32_t gpu, Move& best);
  void try_swaps_one_trace(std::int32_t gpu, Move& best);
  void try_retypes(std::int32_t gpu, Move& best);
  void try_retype(std::int32_t gpu, std::int32_t slot, std::int32_t expert, double limit,
                  Move& best);
  void offer(Move move, double limit, Move& best) const;
  [[nodiscard]] std::int32_t cost_of(std::int32_t gpu, std::int32_t in, std::int32_t out) const;
  void apply(const Move& move);
  void exchange(std::int32_t slot_a, std::int32_t slot_b);
  void retype(std::int32_t slot, std::int32_t expert);
  void kick(Rng& rng);

  [[nodiscard]] std::uint8_t& present(std::int32_t gpu, std::int32_t expert);
  [[nodiscard]] std::uint8_t present(std::int32_t gpu, std::int32_t expert) const;

  SearchShape shape_;
  std::int32_t num_gpus_;
  std::int32_t num_slots_;
  std::vector<double> inverse_speed_;
  std::vector<std::int32_t> gpu_of_slot_;
  bool has_load_ = false;

  std::vector<double> loads_;  // [experts, traces], scaled
  std::vector<double> peak_;   // [experts], largest over traces
  std::vector<std::int32_t> replicas_;
  std::vector<double> share_;     // [experts, traces], load of one replica
  std::vector<double> gpu_load_;  // [GPUs, traces]
  std::vector<std::int32_t> fill_;
  std::vector<std::int32_t> slot_expert_;
  std::vector<std::uint8_t> present_;        // [GPUs, experts], copies on the GPU
  std::vector<std::uint8_t> start_present_;  // the same of the state that moves count from
  std::vector<double> open_load_;  // [GPUs] while building: load, infinite when full; one trace
  bool counts_moves_ = false;
  std::int64_t num_evaluations_ = 0;
};

}  // namespace moe::balance
