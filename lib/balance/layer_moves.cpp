// The moves of LayerSearch: finding the best one for the slowest GPU, and making it.

#include <algorithm>

#include "lib/balance/layer_search.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

constexpr double kMinSlowestGain = 1e-12;

}  // namespace

std::int32_t LayerSearch::cost_of(std::int32_t gpu, std::int32_t in, std::int32_t out) const {
  const std::size_t row = as_index(gpu) * as_index(shape_.num_experts);
  return (start_present_[row + as_index(in)] == 0 ? 1 : 0) -
         (start_present_[row + as_index(out)] == 0 ? 1 : 0);
}

// `limit` is the time of the slowest GPU before the move.
void LayerSearch::offer(Move move, double limit, Move& best) const {
  if (move.slowest >= limit - kMinSlowestGain) return;
  if (!counts_moves_) {
    if (move.slowest < best.slowest) best = move;
    return;
  }
  if (move.kind == MoveKind::kSwap) {
    const std::int32_t gpu_a = gpu_of_slot_[as_index(move.slot_a)];
    const std::int32_t gpu_b = gpu_of_slot_[as_index(move.slot_b)];
    const std::int32_t expert_a = slot_expert_[as_index(move.slot_a)];
    const std::int32_t expert_b = slot_expert_[as_index(move.slot_b)];
    move.num_moved = cost_of(gpu_a, expert_b, expert_a) + cost_of(gpu_b, expert_a, expert_b);
  } else {
    move.num_moved = cost_of(gpu_of_slot_[as_index(move.slot_a)], move.expert,
                             slot_expert_[as_index(move.slot_a)]);
  }
  // Going below the mean gains nothing. A move that brings a slot back home counts as a quarter.
  const double gain = limit - std::max(move.slowest, 1.0);
  move.merit = gain / std::max(0.25, static_cast<double>(move.num_moved));
  if (best.kind == MoveKind::kNone || move.merit > best.merit) best = move;
}

void LayerSearch::descend(std::int64_t max_evaluations, double tolerance) {
  while (num_evaluations_ < max_evaluations) {
    const std::int32_t gpu = find_slowest_gpu();
    const double time = time_of(gpu);
    if (time <= 1.0 + tolerance) return;
    Move best;
    try_swaps(gpu, best);
    if (best.kind == MoveKind::kNone) try_retypes(gpu, best);
    if (best.kind == MoveKind::kNone) return;
    apply(best);
  }
}

// The common case, one trace, without the inner loop over traces.
void LayerSearch::try_swaps_one_trace(std::int32_t gpu, Move& best) {
  const double limit = time_of(gpu);
  const double load = gpu_load_[as_index(gpu)];
  const double inverse = inverse_speed_[as_index(gpu)];
  for (std::int32_t other = 0; other < num_gpus_; ++other) {
    const double other_load = gpu_load_[as_index(other)];
    const double other_inverse = inverse_speed_[as_index(other)];
    if (other == gpu || other_load * other_inverse >= best.slowest) continue;
    for (std::int32_t a = shape_.slot_begin[as_index(gpu)];
         a < shape_.slot_begin[as_index(gpu) + 1]; ++a) {
      const std::int32_t expert_a = slot_expert_[as_index(a)];
      const double share_a = share_[as_index(expert_a)];
      const bool blocked = present(other, expert_a) != 0;
      num_evaluations_ +=
          shape_.slot_begin[as_index(other) + 1] - shape_.slot_begin[as_index(other)];
      if (blocked) continue;
      for (std::int32_t b = shape_.slot_begin[as_index(other)];
           b < shape_.slot_begin[as_index(other) + 1]; ++b) {
        const std::int32_t expert_b = slot_expert_[as_index(b)];
        const double moved = share_a - share_[as_index(expert_b)];
        if (moved <= 0.0) continue;
        const double slowest =
            std::max((load - moved) * inverse, (other_load + moved) * other_inverse);
        if (slowest >= best.slowest || slowest >= limit - kMinSlowestGain) continue;
        if (present(gpu, expert_b) != 0) continue;
        if (!node_allows(gpu, expert_b, other) || !node_allows(other, expert_a, gpu)) continue;
        best = {.kind = MoveKind::kSwap, .slot_a = a, .slot_b = b, .slowest = slowest};
      }
    }
  }
}

void LayerSearch::try_swaps(std::int32_t gpu, Move& best) {
  if (shape_.num_traces == 1 && !counts_moves_) {
    try_swaps_one_trace(gpu, best);
    return;
  }
  const std::size_t num_traces = as_index(shape_.num_traces);
  const double limit = time_of(gpu);
  const double* load = gpu_load_.data() + as_index(gpu) * num_traces;
  for (std::int32_t b = 0; b < num_slots_; ++b) {
    const std::int32_t other = gpu_of_slot_[as_index(b)];
    const std::int32_t expert_b = slot_expert_[as_index(b)];
    if (other == gpu || present(gpu, expert_b) != 0) continue;
    const double* other_load = gpu_load_.data() + as_index(other) * num_traces;
    const double* share_b = share_.data() + as_index(expert_b) * num_traces;
    for (std::int32_t a = shape_.slot_begin[as_index(gpu)];
         a < shape_.slot_begin[as_index(gpu) + 1]; ++a) {
      ++num_evaluations_;
      const std::int32_t expert_a = slot_expert_[as_index(a)];
      if (present(other, expert_a) != 0) continue;
      const double* share_a = share_.data() + as_index(expert_a) * num_traces;
      double here = 0.0;
      double there = 0.0;
      for (std::size_t trace = 0; trace < num_traces; ++trace) {
        const double moved = share_a[trace] - share_b[trace];
        here = std::max(here, load[trace] - moved);
        there = std::max(there, other_load[trace] + moved);
      }
      const double slowest =
          std::max(here * inverse_speed_[as_index(gpu)], there * inverse_speed_[as_index(other)]);
      if (slowest >= limit - kMinSlowestGain || (!counts_moves_ && slowest >= best.slowest))
        continue;
      if (!node_allows(gpu, expert_b, other) || !node_allows(other, expert_a, gpu)) continue;
      offer({.kind = MoveKind::kSwap, .slot_a = a, .slot_b = b, .slowest = slowest}, limit, best);
    }
  }
}

// What slot `slot` holds becomes `expert`: replicas of the old expert get busier, those of the new
// one less busy. `gpu` is the slowest, its time `limit`.
void LayerSearch::try_retype(std::int32_t gpu, std::int32_t slot, std::int32_t expert, double limit,
                             Move& best) {
  const std::size_t num_traces = as_index(shape_.num_traces);
  const std::int32_t target = gpu_of_slot_[as_index(slot)];
  const std::int32_t leaving = slot_expert_[as_index(slot)];
  const double old_replicas = static_cast<double>(replicas_[as_index(leaving)]);
  const double new_replicas = static_cast<double>(replicas_[as_index(expert)]) + 1.0;
  const double* leaving_load = loads_.data() + as_index(leaving) * num_traces;
  const double* expert_load = loads_.data() + as_index(expert) * num_traces;
  const double bound =
      counts_moves_ ? limit - kMinSlowestGain : std::min(limit - kMinSlowestGain, best.slowest);
  ++num_evaluations_;
  double slowest = 0.0;
  for (std::size_t trace = 0; trace < num_traces; ++trace) {
    const double load = gpu_load_[as_index(target) * num_traces + trace] -
                        leaving_load[trace] / old_replicas + expert_load[trace] / new_replicas;
    slowest = std::max(slowest, load * inverse_speed_[as_index(target)]);
  }
  if (slowest >= bound) return;
  const double up = 1.0 / (old_replicas - 1.0) - 1.0 / old_replicas;
  const double down = 1.0 / (new_replicas - 1.0) - 1.0 / new_replicas;
  for (std::int32_t other = 0; other < num_gpus_; ++other) {
    const bool has_leaving = present(other, leaving) != 0;
    if (other == target || (!has_leaving && other != gpu)) continue;
    ++num_evaluations_;
    const bool has_expert = present(other, expert) != 0;
    for (std::size_t trace = 0; trace < num_traces; ++trace) {
      double load = gpu_load_[as_index(other) * num_traces + trace];
      if (has_leaving) load += leaving_load[trace] * up;
      if (has_expert) load -= expert_load[trace] * down;
      slowest = std::max(slowest, load * inverse_speed_[as_index(other)]);
    }
    if (slowest >= bound) return;
  }
  offer({.kind = MoveKind::kRetype, .slot_a = slot, .expert = expert, .slowest = slowest}, limit,
        best);
}

void LayerSearch::try_retypes(std::int32_t gpu, Move& best) {
  const double limit = time_of(gpu);
  // A slot here goes to any expert that is not here.
  for (std::int32_t slot = shape_.slot_begin[as_index(gpu)];
       slot < shape_.slot_begin[as_index(gpu) + 1]; ++slot) {
    if (replicas_[as_index(slot_expert_[as_index(slot)])] < 2) continue;
    if (!node_releases(gpu, slot_expert_[as_index(slot)])) continue;
    for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert) {
      if (may_hold(gpu, expert)) try_retype(gpu, slot, expert, limit, best);
    }
  }
  // A slot elsewhere takes a replica of an expert that is here.
  for (std::int32_t slot = 0; slot < num_slots_; ++slot) {
    const std::int32_t target = gpu_of_slot_[as_index(slot)];
    if (target == gpu || replicas_[as_index(slot_expert_[as_index(slot)])] < 2) continue;
    if (!node_releases(target, slot_expert_[as_index(slot)])) continue;
    for (std::int32_t own = shape_.slot_begin[as_index(gpu)];
         own < shape_.slot_begin[as_index(gpu) + 1]; ++own) {
      const std::int32_t expert = slot_expert_[as_index(own)];
      if (expert != slot_expert_[as_index(slot)] && may_hold(target, expert)) {
        try_retype(gpu, slot, expert, limit, best);
      }
    }
  }
}

void LayerSearch::apply(const Move& move) {
  if (move.kind == MoveKind::kSwap) {
    exchange(move.slot_a, move.slot_b);
  } else {
    retype(move.slot_a, move.expert);
  }
}

void LayerSearch::exchange(std::int32_t slot_a, std::int32_t slot_b) {
  const std::size_t num_traces = as_index(shape_.num_traces);
  const std::int32_t gpu_a = gpu_of_slot_[as_index(slot_a)];
  const std::int32_t gpu_b = gpu_of_slot_[as_index(slot_b)];
  const std::int32_t expert_a = slot_expert_[as_index(slot_a)];
  const std::int32_t expert_b = slot_expert_[as_index(slot_b)];
  for (std::size_t trace = 0; trace < num_traces; ++trace) {
    const double moved = share_[as_index(expert_a) * num_traces + trace] -
                         share_[as_index(expert_b) * num_traces + trace];
    gpu_load_[as_index(gpu_a) * num_traces + trace] -= moved;
    gpu_load_[as_index(gpu_b) * num_traces + trace] += moved;
  }
  --present(gpu_a, expert_a);
  ++present(gpu_b, expert_a);
  --present(gpu_b, expert_b);
  ++present(gpu_a, expert_b);
  std::swap(slot_expert_[as_index(slot_a)], slot_expert_[as_index(slot_b)]);
}

void LayerSearch::retype(std::int32_t slot, std::int32_t expert) {
  const std::int32_t gpu = gpu_of_slot_[as_index(slot)];
  const std::int32_t leaving = slot_expert_[as_index(slot)];
  --present(gpu, leaving);
  ++present(gpu, expert);
  --replicas_[as_index(leaving)];
  ++replicas_[as_index(expert)];
  slot_expert_[as_index(slot)] = expert;
  set_share(leaving);
  set_share(expert);
  refresh();
}

}  // namespace moe::balance
