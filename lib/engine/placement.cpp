#include "lib/engine/placement.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/check.hpp"

namespace moe::engine {
namespace {

using sysinfo::NumaNode;
using sysinfo::NumaTopology;

// Nodes with usable CPUs: first the one with most of them, then by distance from it. Equal ones
// ascend.
std::vector<std::size_t> nodes_in_order(const NumaTopology& topology) {
  const std::vector<NumaNode>& nodes = topology.nodes;
  std::vector<std::size_t> order;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (!nodes[node].cpus.empty()) order.push_back(node);
  }
  if (order.empty()) return order;
  const std::size_t first = *std::ranges::max_element(
      order, {}, [&](std::size_t node) { return nodes[node].cpus.size(); });
  const auto distance = [&](std::size_t node) {
    if (node == first) return 0;
    return nodes[first].distances.empty() ? 1 : nodes[first].distances[node];
  };
  std::ranges::stable_sort(order, {}, distance);
  return order;
}

// [thread] index of its node: each goes where most CPUs a thread are left (the highest averages of
// D'Hondt).
std::vector<std::size_t> spread_threads(const NumaTopology& topology, std::int32_t num_threads) {
  const std::vector<std::size_t> order = nodes_in_order(topology);
  std::vector<std::int64_t> num_on(topology.nodes.size());
  std::vector<std::size_t> nodes;
  if (order.empty()) return nodes;
  for (std::int32_t thread = 0; thread < num_threads; ++thread) {
    std::size_t best = order.front();
    for (const std::size_t node : order) {
      const auto cpus = std::ssize(topology.nodes[node].cpus);
      const auto best_cpus = std::ssize(topology.nodes[best].cpus);
      if (cpus * (num_on[best] + 1) > best_cpus * (num_on[node] + 1)) best = node;
    }
    ++num_on[best];
    nodes.push_back(best);
  }
  return nodes;
}

std::string error_text(int error) {
  return std::generic_category().message(error);
}

std::string list_text(const std::vector<std::int32_t>& nodes) {
  return fmt::format("{}", fmt::join(nodes, ", "));
}

}  // namespace

Placement decide_placement(const NumaTopology& topology, std::int32_t num_threads) {
  MOE_CHECK(num_threads >= 1 && !topology.nodes.empty());
  const std::vector<std::size_t> spread = spread_threads(topology, num_threads);
  Placement placement;
  placement.unknown_reason = topology.unknown_reason;
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    if (std::ranges::find(spread, node) == spread.end()) continue;
    placement.nodes.push_back(topology.nodes[node].id);
    if (topology.nodes[node].memory_bytes.value_or(0) > 0) {
      placement.memory_nodes.push_back(topology.nodes[node].id);
    }
  }
  if (placement.memory_nodes.size() < 2) placement.memory_nodes.clear();
  if (placement.nodes.size() < 2) return placement;
  for (const std::size_t node : spread) {
    placement.thread_nodes.push_back(topology.nodes[node].id);
    placement.thread_cpus.push_back(topology.nodes[node].cpus);
  }
  return placement;
}

Placer::Placer(const sysinfo::NumaSystem& system, std::int32_t num_threads)
    : system_(&system), placement_(decide_placement(system.topology(), num_threads)) {}

void Placer::bind_workers(ThreadPool& pool) {
  if (placement_.thread_cpus.empty()) return;
  MOE_CHECK(placement_.thread_cpus.size() == static_cast<std::size_t>(pool.num_threads()));
  std::atomic<int> first_error{0};
  pool.run([&](int thread_idx) {
    if (thread_idx == 0) return;
    const int error =
        system_->bind_thread(placement_.thread_cpus[static_cast<std::size_t>(thread_idx)]);
    int none = 0;
    if (error != 0) first_error.compare_exchange_strong(none, error);
  });
  bind_error_ = first_error.load();
}

void Placer::interleave(std::span<const std::byte> block) {
  if (placement_.memory_nodes.empty() || block.empty()) return;
  const int error = system_->interleave(block, placement_.memory_nodes);
  if (interleave_error_ == 0) interleave_error_ = error;
}

PlacementOutcome Placer::outcome() const {
  PlacementOutcome outcome{placement_, false, false, "", ""};
  outcome.are_threads_bound = !placement_.thread_cpus.empty() && bind_error_ == 0;
  outcome.is_interleaved = !placement_.memory_nodes.empty() && interleave_error_ == 0;
  const auto add = [](std::string& text, const std::string& part) {
    text += (text.empty() ? "" : "; ") + part;
  };
  if (bind_error_ != 0) {
    add(outcome.trouble, fmt::format("threads could not be bound to the CPUs of nodes {}: {}",
                                     list_text(placement_.nodes), error_text(bind_error_)));
  }
  if (interleave_error_ != 0) {
    add(outcome.trouble,
        fmt::format("memory could not be interleaved over nodes {}: {}",
                    list_text(placement_.memory_nodes), error_text(interleave_error_)));
  }
  if (!placement_.unknown_reason.empty()) {
    add(outcome.summary, fmt::format("taken as one node ({})", placement_.unknown_reason));
  } else if (placement_.nodes.size() < 2) {
    add(outcome.summary, "one node in use");
  }
  add(outcome.summary,
      outcome.are_threads_bound
          ? fmt::format("workers bound to the CPUs of nodes {}", list_text(placement_.nodes))
          : "no thread is bound");
  add(outcome.summary, outcome.is_interleaved
                           ? fmt::format("packed weights and KV cache interleaved over nodes {}",
                                         list_text(placement_.memory_nodes))
                           : "memory lies on the node that first touched it");
  return outcome;
}

}  // namespace moe::engine
