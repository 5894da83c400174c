#pragma once

// Ceilings of an all-to-all over a cluster, one way, in the terms of nccl-tests: bus bandwidth is
// bytes of one rank x (n-1)/n / time.

#include <cstdint>
#include <string>

#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

// What the network between NVLink domains does with traffic that leaves its rail.
enum class Fabric : std::uint8_t {
  kFlat,           // any NIC reaches any NIC through one tree
  kRailOptimised,  // NICs of one rail meet at a leaf, rails meet at the spine
  kRailOnly,       // no spine: only NICs of one rail reach each other
};
[[nodiscard]] const char* fabric_name(Fabric fabric);

struct Cluster {
  std::int64_t num_ranks = 0;
  std::int64_t gpus_per_domain = 8;  // that NVLink, xGMI or PCIe joins
  double intra_bytes_per_s = 0.0;    // out of one GPU into its domain, one way
  double nic_bytes_per_s = 0.0;      // of one GPU's share of the NICs, one way; 0: none
  Fabric fabric = Fabric::kFlat;
  bool uses_pxn = true;           // traffic enters the rail of its target inside the node
  double oversubscription = 1.0;  // at the spine, 1 = none
  double cross_rail_share = 1.0;  // of the rate that traffic keeps when it changes rail
};

struct Ceiling {
  double busbw_bytes_per_s = 0.0;  // the smaller of the two
  double intra_busbw_bytes_per_s = 0.0;
  double inter_busbw_bytes_per_s = 0.0;  // 0: all ranks are in one domain
  bool is_reachable = true;              // false: a rail-only network without PXN
  std::string limit;                     // which tier decides
};

// Requires num_ranks >= 2 and positive rates where a tier carries traffic.
[[nodiscard]] Ceiling a2a_ceiling(const Cluster& cluster);

// Share of the bytes of one rank that leave its domain under uniform traffic: (n-G)/n.
[[nodiscard]] double remote_share(const Cluster& cluster);

// Rate of one GPU's way through the network for traffic as this cluster sends it: the NIC's, less
// what the spine and a change of rail cost; 0 when there is no way.
[[nodiscard]] double network_bytes_per_s(const Cluster& cluster);

}  // namespace moe::topology
