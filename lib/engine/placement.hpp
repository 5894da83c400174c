#pragma once

// Where threads run and memory lies on a machine with several memory nodes. Work is claimed item by
// item from one counter, so any thread may read any weight at any time: no node owns a share of the
// weights. So they lie on all nodes in use by turns, page by page, which loads every memory
// controller alike, and the threads are spread over the same nodes. On one node nothing is done.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/thread_pool.hpp"
#include "lib/sysinfo/numa.hpp"

namespace moe::engine {

// The decision, from the topology and the number of threads alone.
struct Placement {
  std::vector<std::int32_t> nodes;  // that threads run on, ascending
  // [thread] the node of each thread's CPUs, and these. The first thread is the caller's own, which
  // is counted and left where it is. Both empty: no thread is bound.
  std::vector<std::int32_t> thread_nodes;
  std::vector<std::vector<std::int32_t>> thread_cpus;
  std::vector<std::int32_t> memory_nodes;  // to interleave over; empty, or two and more
  std::string unknown_reason;              // of the topology
};

// Threads are spread over the nodes in proportion to their usable CPUs, a few threads over nodes
// near to each other. Nodes without usable CPUs are passed over: their memory is of another kind,
// or was not meant for this process.
[[nodiscard]] Placement decide_placement(const sysinfo::NumaTopology& topology,
                                         std::int32_t num_threads);

// What became of it.
struct PlacementOutcome {
  Placement decided;
  bool are_threads_bound = false;
  bool is_interleaved = false;
  std::string summary;  // one line for the report
  std::string trouble;  // what the system refused, one line; empty when nothing
};

// Carries a decision out. A refusal is no error: figures are then those of an unplaced run, and
// the outcome says so.
class Placer {
 public:
  // `system` must outlive this.
  Placer(const sysinfo::NumaSystem& system, std::int32_t num_threads);

  // Binds the workers of the pool that was decided for. Not inside a region.
  void bind_workers(ThreadPool& pool);
  // The block is not touched yet and begins at a page. An empty one is passed over.
  void interleave(std::span<const std::byte> block);

  [[nodiscard]] PlacementOutcome outcome() const;

 private:
  const sysinfo::NumaSystem* system_;
  Placement placement_;
  int bind_error_ = 0;        // errno of the first refusal
  int interleave_error_ = 0;  // errno of the first refusal
};

}  // namespace moe::engine
