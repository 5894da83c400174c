#pragma once

// What differs between two machines, or one machine at two times, whatever the numbers of devices
// and buses: nodes are matched by what they are and what they are connected to.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/topology/graph.hpp"

namespace moe::topology {

struct Difference {
  std::string subject;  // name of the node or link in A, or in B when A lacks it
  std::string what;     // "cpus"
  std::string in_a;     // empty: not there
  std::string in_b;
};

struct TopologyDiff {
  std::vector<Difference> differences;
  // Pairs of different names that stand for the same device: GPU0 -> GPU3.
  std::vector<std::pair<std::string, std::string>> renamed;

  [[nodiscard]] bool is_same() const { return differences.empty(); }
};

// Numbers and bus ids of GPUs, NICs and switches may differ; NUMA nodes keep their number, since
// software is bound to it.
[[nodiscard]] TopologyDiff diff_topologies(const Topology& a, const Topology& b);

// Equal for machines that diff_topologies calls the same (but for colliding hashes): 16 hex digits.
[[nodiscard]] std::string fingerprint(const Topology& topology);

}  // namespace moe::topology
