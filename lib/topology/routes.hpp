#pragma once

// How traffic runs through a machine: the path between two GPUs as a list of directed links, and
// for each NIC and GPU how far they are apart.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/topology/graph.hpp"

namespace moe::topology {

// A link in one direction: index of the link, and whether it is used from b to a.
struct Hop {
  std::int32_t link = 0;
  bool is_reverse = false;
  friend bool operator==(const Hop&, const Hop&) = default;
};

struct RouteOptions {
  // Two GPUs without a link of their own go over a third that both have NVLinks to, as NCCL does on
  // cube meshes; otherwise over PCIe.
  bool allow_relay = true;
};

// NVLink or xGMI first (directly, through a switch, then by a relay), else PCIe and CPU links.
// Empty when there is no way. Links to and from NVSwitches count as one fabric: the first link of
// each GPU stands for all of them, see RouteTable::capacity.
class RouteTable {
 public:
  RouteTable(const Topology& topology, const RouteOptions& options);

  // Between two nodes of kind GPU, by position among the GPUs.
  [[nodiscard]] const std::vector<Hop>& between(std::size_t from, std::size_t to) const {
    return routes_[from * num_gpus_ + to];
  }
  [[nodiscard]] std::size_t num_gpus() const { return num_gpus_; }
  // One way, of the directed link a hop names; nullopt when the input does not say. Links of one
  // GPU into its switches are added up.
  [[nodiscard]] std::optional<double> capacity(const Hop& hop) const;
  [[nodiscard]] std::string describe(const Hop& hop) const;  // "GPU0 -> switch 0 (PCIe)"

 private:
  void find_fabric();
  std::vector<Hop> route(std::int32_t from, std::int32_t to, const RouteOptions& options) const;
  std::vector<Hop> fabric_route(std::int32_t from, std::int32_t to) const;
  std::vector<Hop> tree_route(std::int32_t from, std::int32_t to) const;

  const Topology& topology_;
  std::size_t num_gpus_ = 0;
  std::vector<std::vector<Hop>> routes_;
  std::vector<std::int32_t> to_switch_;  // by node: its first link into a switch, or -1
  std::vector<std::optional<double>> switch_capacity_;
  std::vector<std::vector<std::int32_t>> links_of_;  // by node
};

// The NICs that a GPU reaches by its best path, when that is better than SYS.
struct NearestNics {
  std::int32_t gpu = 0;
  PathKind path = PathKind::kUnknown;
  std::vector<std::int32_t> nics;
};
[[nodiscard]] std::vector<NearestNics> nearest_nics(const Topology& topology);

// One-way rate of each GPU's share of the NICs of the machine: those that are near some GPU, or all
// of them when none is, over the GPUs. nullopt when a rate is unknown or there is no NIC.
struct NicShare {
  std::int64_t num_nics = 0;  // that serve GPUs
  std::optional<double> bytes_per_s_per_gpu;
  std::string source;
};
[[nodiscard]] NicShare nic_share(const Topology& topology);

// Nominal rate of all its ports, one way, no more than the PCIe link above it.
[[nodiscard]] std::optional<double> nic_rate(const Topology& topology, std::int32_t nic);

}  // namespace moe::topology
