#include "lib/balance/layer_search.hpp"

#include <algorithm>
#include <numeric>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::balance {
namespace {

// Gains below this are rounding.
constexpr double kMinGain = 1e-12;

}  // namespace

LayerSearch::LayerSearch(const SearchShape& shape)
    : shape_(shape),
      num_gpus_(static_cast<std::int32_t>(shape.speed.size())),
      num_slots_(shape.slot_begin.back()),
      peak_(as_index(shape.num_experts)),
      replicas_(as_index(shape.num_experts)),
      share_(as_index(shape.num_experts) * as_index(shape.num_traces)),
      gpu_load_(as_index(num_gpus_) * as_index(shape.num_traces)),
      fill_(as_index(num_gpus_)),
      slot_expert_(as_index(num_slots_)),
      present_(as_index(num_gpus_) * as_index(shape.num_experts)) {
  MOE_CHECK(shape.num_traces > 0 && num_slots_ >= shape.num_experts);
  for (const double speed : shape.speed) inverse_speed_.push_back(1.0 / speed);
  for (std::int32_t gpu = 0; gpu < num_gpus_; ++gpu) {
    const std::int32_t slots =
        shape.slot_begin[as_index(gpu) + 1] - shape.slot_begin[as_index(gpu)];
    gpu_of_slot_.insert(gpu_of_slot_.end(), as_index(slots), gpu);
  }
}

std::uint8_t& LayerSearch::present(std::int32_t gpu, std::int32_t expert) {
  return present_[as_index(gpu) * as_index(shape_.num_experts) + as_index(expert)];
}

std::uint8_t LayerSearch::present(std::int32_t gpu, std::int32_t expert) const {
  return present_[as_index(gpu) * as_index(shape_.num_experts) + as_index(expert)];
}

void LayerSearch::set_loads(std::span<const double> loads) {
  const std::size_t num_traces = as_index(shape_.num_traces);
  MOE_CHECK(loads.size() == as_index(shape_.num_experts) * num_traces);
  loads_.assign(loads.begin(), loads.end());
  has_load_ = false;
  const double total_speed = std::accumulate(shape_.speed.begin(), shape_.speed.end(), 0.0);
  for (std::size_t trace = 0; trace < num_traces; ++trace) {
    double sum = 0.0;
    for (std::size_t i = trace; i < loads_.size(); i += num_traces) sum += loads_[i];
    if (sum <= 0.0) continue;
    has_load_ = true;
    for (std::size_t i = trace; i < loads_.size(); i += num_traces) loads_[i] *= total_speed / sum;
  }
  for (std::size_t expert = 0; expert < peak_.size(); ++expert) {
    const double* first = loads_.data() + expert * num_traces;
    peak_[expert] = *std::max_element(first, first + num_traces);
  }
}

void LayerSearch::set_share(std::int32_t expert) {
  const std::size_t num_traces = as_index(shape_.num_traces);
  const double factor = 1.0 / static_cast<double>(replicas_[as_index(expert)]);
  for (std::size_t trace = 0; trace < num_traces; ++trace) {
    const std::size_t i = as_index(expert) * num_traces + trace;
    share_[i] = loads_[i] * factor;
  }
}

// Each spare slot goes to the expert with the largest load per replica; of equals to the one with
// fewer replicas, then to the first.
void LayerSearch::count_replicas() {
  struct Claim {
    double share = 0.0;
    std::int32_t replicas = 1;
    std::int32_t expert = 0;
  };
  const auto is_weaker = [](const Claim& a, const Claim& b) {
    if (a.share != b.share) return a.share < b.share;
    if (a.replicas != b.replicas) return a.replicas > b.replicas;
    return a.expert > b.expert;
  };
  std::vector<Claim> heap;
  heap.reserve(peak_.size());
  for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    heap.push_back({peak_[as_index(expert)], 1, expert});
  }
  std::make_heap(heap.begin(), heap.end(), is_weaker);
  std::fill(replicas_.begin(), replicas_.end(), 1);
  for (std::int32_t spare = num_slots_ - shape_.num_experts; spare > 0;) {
    MOE_CHECK(!heap.empty());
    std::pop_heap(heap.begin(), heap.end(), is_weaker);
    Claim& claim = heap.back();
    if (claim.replicas >= num_gpus_) {  // one on every GPU already
      heap.pop_back();
      continue;
    }
    replicas_[as_index(claim.expert)] = ++claim.replicas;
    claim.share = peak_[as_index(claim.expert)] / static_cast<double>(claim.replicas);
    std::push_heap(heap.begin(), heap.end(), is_weaker);
    --spare;
  }
}

void LayerSearch::build() {
  count_replicas();
  std::fill(present_.begin(), present_.end(), std::uint8_t{0});
  std::fill(fill_.begin(), fill_.end(), 0);
  std::fill(gpu_load_.begin(), gpu_load_.end(), 0.0);
  open_load_.assign(as_index(num_gpus_), 0.0);
  std::fill(slot_expert_.begin(), slot_expert_.end(), -1);
  std::vector<std::pair<double, std::int32_t>> order;
  order.reserve(peak_.size());
  for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    set_share(expert);
    order.emplace_back(-peak_[as_index(expert)] / static_cast<double>(replicas_[as_index(expert)]),
                       expert);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [share, expert] : order) {
    for (std::int32_t replica = 0; replica < replicas_[as_index(expert)]; ++replica) place(expert);
  }
}

std::vector<std::int32_t> LayerSearch::copies_by_node(std::int32_t expert,
                                                      std::int32_t leaving) const {
  std::vector<std::int32_t> copies(as_index(shape_.node.back()) + 1, 0);
  for (std::int32_t gpu = 0; gpu < num_gpus_; ++gpu) {
    if (gpu != leaving) copies[as_index(shape_.node[as_index(gpu)])] += present(gpu, expert);
  }
  return copies;
}

// With `spreads_nodes` a replica goes where there are fewest and leaves where there are most.
bool LayerSearch::node_allows(std::int32_t gpu, std::int32_t expert, std::int32_t leaving) const {
  if (!shape_.spreads_nodes) return true;
  const std::vector<std::int32_t> copies = copies_by_node(expert, leaving);
  return copies[as_index(shape_.node[as_index(gpu)])] ==
         *std::min_element(copies.begin(), copies.end());
}

bool LayerSearch::node_releases(std::int32_t gpu, std::int32_t expert) const {
  if (!shape_.spreads_nodes) return true;
  const std::vector<std::int32_t> copies = copies_by_node(expert, -1);
  return copies[as_index(shape_.node[as_index(gpu)])] ==
         *std::max_element(copies.begin(), copies.end());
}

bool LayerSearch::may_hold(std::int32_t gpu, std::int32_t expert) const {
  return present(gpu, expert) == 0 && node_allows(gpu, expert, -1);
}

void LayerSearch::put(std::int32_t gpu, std::int32_t expert) {
  slot_expert_[as_index(shape_.slot_begin[as_index(gpu)] + fill_[as_index(gpu)])] = expert;
  ++fill_[as_index(gpu)];
  ++present(gpu, expert);
  const std::size_t num_traces = as_index(shape_.num_traces);
  for (std::size_t trace = 0; trace < num_traces; ++trace) {
    gpu_load_[as_index(gpu) * num_traces + trace] += share_[as_index(expert) * num_traces + trace];
  }
}

// place() for one trace without a rule about nodes, the case that has to be fast. A full GPU is
// never the least.
bool LayerSearch::place_one_trace(std::int32_t expert) {
  const double share = share_[as_index(expert)];
  const bool is_replicated = replicas_[as_index(expert)] > 1;
  std::int32_t best = -1;
  double best_time = std::numeric_limits<double>::infinity();
  for (std::int32_t gpu = 0; gpu < num_gpus_; ++gpu) {
    const double time = (open_load_[as_index(gpu)] + share) * inverse_speed_[as_index(gpu)];
    if (time >= best_time || (is_replicated && present(gpu, expert) != 0)) continue;
    best_time = time;
    best = gpu;
  }
  if (best < 0) return false;
  put(best, expert);
  const std::int32_t room =
      shape_.slot_begin[as_index(best) + 1] - shape_.slot_begin[as_index(best)];
  open_load_[as_index(best)] = fill_[as_index(best)] == room
                                   ? std::numeric_limits<double>::infinity()
                                   : gpu_load_[as_index(best)];
  return true;
}

// Onto the GPU that is fastest done with it. With `spreads_nodes` the rule about nodes gives way
// before a slot stays empty.
void LayerSearch::place(std::int32_t expert) {
  const std::size_t num_traces = as_index(shape_.num_traces);
  const double* share = share_.data() + as_index(expert) * num_traces;
  if (num_traces == 1 && !shape_.spreads_nodes) {
    if (!place_one_trace(expert)) place_by_exchange(expert);
    return;
  }
  for (const bool minds_nodes : {true, false}) {
    if (!minds_nodes && !shape_.spreads_nodes) break;
    std::int32_t best = -1;
    double best_time = std::numeric_limits<double>::infinity();
    for (std::int32_t gpu = 0; gpu < num_gpus_; ++gpu) {
      const std::int32_t room =
          shape_.slot_begin[as_index(gpu) + 1] - shape_.slot_begin[as_index(gpu)];
      if (fill_[as_index(gpu)] == room || present(gpu, expert) != 0) continue;
      const double* load = gpu_load_.data() + as_index(gpu) * num_traces;
      double time = 0.0;
      for (std::size_t trace = 0; trace < num_traces; ++trace) {
        time = std::max(time, load[trace] + share[trace]);
      }
      time *= inverse_speed_[as_index(gpu)];
      if (time >= best_time) continue;
      if (minds_nodes && !node_allows(gpu, expert, -1)) continue;
      best_time = time;
      best = gpu;
    }
    if (best >= 0) {
      put(best, expert);
      return;
    }
  }
  place_by_exchange(expert);
}

// All GPUs with room hold the expert already: another expert goes there from a GPU without it.
void LayerSearch::place_by_exchange(std::int32_t expert) {
  for (std::int32_t target = 0; target < num_gpus_; ++target) {
    const std::int32_t room =
        shape_.slot_begin[as_index(target) + 1] - shape_.slot_begin[as_index(target)];
    if (fill_[as_index(target)] == room) continue;
    for (std::int32_t slot = 0; slot < num_slots_; ++slot) {
      const std::int32_t gpu = gpu_of_slot_[as_index(slot)];
      const std::int32_t moving = slot_expert_[as_index(slot)];
      if (moving < 0 || present(gpu, expert) != 0 || present(target, moving) != 0) continue;
      --present(gpu, moving);
      slot_expert_[as_index(slot)] = expert;
      ++present(gpu, expert);
      put(target, moving);
      refresh();
      reopen();
      return;
    }
  }
  // A GPU has no more slots than there are experts, so another arrangement exists; the descent
  // does not need it, one copy beside another does no harm to what follows.
  for (std::int32_t gpu = 0; gpu < num_gpus_; ++gpu) {
    const std::int32_t room =
        shape_.slot_begin[as_index(gpu) + 1] - shape_.slot_begin[as_index(gpu)];
    if (fill_[as_index(gpu)] == room) continue;
    put(gpu, expert);
    reopen();
    return;
  }
  MOE_CHECK(false);
}

void LayerSearch::reopen() {
  if (shape_.num_traces != 1) return;
  for (std::int32_t gpu = 0; gpu < num_gpus_; ++gpu) {
    const std::int32_t room =
        shape_.slot_begin[as_index(gpu) + 1] - shape_.slot_begin[as_index(gpu)];
    open_load_[as_index(gpu)] = fill_[as_index(gpu)] == room
                                    ? std::numeric_limits<double>::infinity()
                                    : gpu_load_[as_index(gpu)];
  }
}

// Shares, presence and loads from the slots: no drift from sums updated many times.
void LayerSearch::refresh() {
  const std::size_t num_traces = as_index(shape_.num_traces);
  std::fill(gpu_load_.begin(), gpu_load_.end(), 0.0);
  for (std::size_t slot = 0; slot < slot_expert_.size(); ++slot) {
    if (slot_expert_[slot] < 0) continue;
    const double* share = share_.data() + as_index(slot_expert_[slot]) * num_traces;
    double* load = gpu_load_.data() + as_index(gpu_of_slot_[slot]) * num_traces;
    for (std::size_t trace = 0; trace < num_traces; ++trace) load[trace] += share[trace];
  }
}

void LayerSearch::start_from(std::span<const std::int32_t> slot_expert) {
  MOE_CHECK(slot_expert.size() == slot_expert_.size());
  std::copy(slot_expert.begin(), slot_expert.end(), slot_expert_.begin());
  std::fill(present_.begin(), present_.end(), std::uint8_t{0});
  std::fill(replicas_.begin(), replicas_.end(), 0);
  for (std::size_t slot = 0; slot < slot_expert_.size(); ++slot) {
    ++replicas_[as_index(slot_expert_[slot])];
    ++present(gpu_of_slot_[slot], slot_expert_[slot]);
  }
  for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    MOE_CHECK(replicas_[as_index(expert)] > 0);
    set_share(expert);
  }
  refresh();
}

double LayerSearch::time_of(std::int32_t gpu) const {
  const std::size_t num_traces = as_index(shape_.num_traces);
  const double* load = gpu_load_.data() + as_index(gpu) * num_traces;
  return *std::max_element(load, load + num_traces) * inverse_speed_[as_index(gpu)];
}

std::int32_t LayerSearch::find_slowest_gpu() const {
  std::int32_t slowest = 0;
  for (std::int32_t gpu = 1; gpu < num_gpus_; ++gpu) {
    if (time_of(gpu) > time_of(slowest)) slowest = gpu;
  }
  return slowest;
}

double LayerSearch::slowest() const {
  return time_of(find_slowest_gpu());
}

void LayerSearch::kick(Rng& rng) {
  const auto random_slot = [&] {
    return static_cast<std::int32_t>(rng.next_below(static_cast<std::uint64_t>(num_slots_)));
  };
  const std::uint64_t num_exchanges = 2 + rng.next_below(3);
  for (std::uint64_t i = 0; i < num_exchanges; ++i) {
    const std::int32_t slot_a = random_slot();
    const std::int32_t slot_b = random_slot();
    const std::int32_t gpu_a = gpu_of_slot_[as_index(slot_a)];
    const std::int32_t gpu_b = gpu_of_slot_[as_index(slot_b)];
    const std::int32_t expert_a = slot_expert_[as_index(slot_a)];
    const std::int32_t expert_b = slot_expert_[as_index(slot_b)];
    if (gpu_a == gpu_b || expert_a == expert_b) continue;
    if (i == 0 && replicas_[as_index(expert_a)] > 1 && may_hold(gpu_a, expert_b) &&
        node_releases(gpu_a, expert_a)) {
      retype(slot_a, expert_b);
      continue;
    }
    if (present(gpu_a, expert_b) != 0 || present(gpu_b, expert_a) != 0) continue;
    if (!node_allows(gpu_a, expert_b, gpu_b) || !node_allows(gpu_b, expert_a, gpu_a)) continue;
    exchange(slot_a, slot_b);
  }
  refresh();
}

void LayerSearch::search(std::int64_t max_evaluations, double good_enough, std::uint64_t seed) {
  num_evaluations_ = 0;
  descend(max_evaluations, good_enough - 1.0);
  std::vector<std::int32_t> best = slot_expert_;
  double best_slowest = slowest();
  Rng rng(seed);
  while (best_slowest > good_enough && num_evaluations_ < max_evaluations) {
    kick(rng);
    num_evaluations_ += num_gpus_;
    descend(max_evaluations, good_enough - 1.0);
    const double now = slowest();
    if (now < best_slowest - kMinGain) {
      best_slowest = now;
      best = slot_expert_;
    } else if (now > best_slowest + kMinGain) {
      start_from(best);
    } else {
      best = slot_expert_;  // sideways: as good, from where other moves are open
    }
  }
  start_from(best);
}

std::vector<MovePoint> LayerSearch::trade(std::int32_t max_moved, std::int64_t max_evaluations,
                                          double good_enough) {
  counts_moves_ = true;
  start_present_ = present_;
  num_evaluations_ = 0;
  std::vector<MovePoint> points = {{0, slowest(), slot_expert_}};
  std::int32_t num_moved = 0;
  while (num_evaluations_ < max_evaluations && points.back().slowest > good_enough) {
    const std::int32_t gpu = find_slowest_gpu();
    Move best;
    try_swaps(gpu, best);
    try_retypes(gpu, best);
    if (best.kind == MoveKind::kNone || num_moved + best.num_moved > max_moved) break;
    apply(best);
    refresh();
    num_moved += best.num_moved;
    const double now = slowest();
    if (now >= points.back().slowest - kMinGain) continue;
    while (!points.empty() && points.back().num_moved >= num_moved) points.pop_back();
    points.push_back({num_moved, now, slot_expert_});
  }
  counts_moves_ = false;
  return points;
}

}  // namespace moe::balance
