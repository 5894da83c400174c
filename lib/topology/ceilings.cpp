#include "lib/topology/ceilings.hpp"

#include <algorithm>

#include "lib/base/check.hpp"

namespace moe::topology {

const char* fabric_name(Fabric fabric) {
  switch (fabric) {
    case Fabric::kFlat:
      return "flat";
    case Fabric::kRailOptimised:
      return "rail";
    case Fabric::kRailOnly:
      return "rail-only";
  }
  return "";
}

double remote_share(const Cluster& cluster) {
  const double n = static_cast<double>(cluster.num_ranks);
  const double domain = static_cast<double>(std::min(cluster.gpus_per_domain, cluster.num_ranks));
  return (n - domain) / n;
}

double network_bytes_per_s(const Cluster& cluster) {
  const double domain = static_cast<double>(std::min(cluster.gpus_per_domain, cluster.num_ranks));
  // One of G targets in another domain is on the sender's own rail.
  const bool stays_on_rail = cluster.fabric != Fabric::kFlat && cluster.uses_pxn;
  const double cross = stays_on_rail ? 0.0 : (domain - 1.0) / domain;
  switch (cluster.fabric) {
    case Fabric::kFlat:
      // All traffic between domains meets the spine.
      return cluster.nic_bytes_per_s / cluster.oversubscription;
    case Fabric::kRailOptimised: {
      const double slowdown =
          cross * std::max(cluster.oversubscription, 1.0 / cluster.cross_rail_share);
      return cluster.nic_bytes_per_s / (1.0 - cross + slowdown);
    }
    case Fabric::kRailOnly:
      return cross > 0.0 ? 0.0 : cluster.nic_bytes_per_s;
  }
  return 0.0;
}

Ceiling a2a_ceiling(const Cluster& cluster) {
  MOE_CHECK(cluster.num_ranks >= 2);
  Ceiling ceiling;
  const double n = static_cast<double>(cluster.num_ranks);
  const double remote = remote_share(cluster);
  const double domain = static_cast<double>(std::min(cluster.gpus_per_domain, cluster.num_ranks));
  // With PXN what changes rail crosses the domain's links once more, on its way to the right NIC.
  const bool hops_first = remote > 0.0 && cluster.uses_pxn && cluster.fabric != Fabric::kFlat;
  const double extra = hops_first ? remote * (domain - 1.0) / domain : 0.0;
  const double inside = (domain - 1.0) / n + extra;
  ceiling.intra_busbw_bytes_per_s =
      inside > 0.0 ? cluster.intra_bytes_per_s * ((n - 1.0) / n) / inside : 0.0;
  if (remote == 0.0) {
    ceiling.busbw_bytes_per_s = ceiling.intra_busbw_bytes_per_s;
    ceiling.limit = "links inside the domain";
    return ceiling;
  }
  const double network = network_bytes_per_s(cluster);
  ceiling.is_reachable = network > 0.0;
  ceiling.inter_busbw_bytes_per_s = network * (n - 1.0) / n / remote;
  const bool is_network =
      inside == 0.0 || ceiling.inter_busbw_bytes_per_s <= ceiling.intra_busbw_bytes_per_s;
  ceiling.busbw_bytes_per_s =
      is_network ? ceiling.inter_busbw_bytes_per_s : ceiling.intra_busbw_bytes_per_s;
  ceiling.limit = is_network ? "NICs between domains" : "links inside the domain";
  return ceiling;
}

}  // namespace moe::topology
