#include "lib/topology/limits.hpp"

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::topology {

void require_room(const Topology& topology, const std::string& where) {
  if (topology.nodes.size() >= kMaxNodes || topology.links.size() >= kMaxLinks) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: more than {} devices or {} links are no single machine", where,
                            kMaxNodes, kMaxLinks));
  }
}

void require_sane_counts(const Topology& topology, const std::string& where) {
  const auto num_devices =
      static_cast<std::size_t>(topology.count(NodeKind::kGpu) + topology.count(NodeKind::kNic));
  const auto num_cpus = static_cast<std::size_t>(topology.count(NodeKind::kCpu));
  if (num_devices > kMaxDevices || num_cpus > kMaxCpus || topology.links.size() > kMaxLinks) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} GPUs and NICs and {} CPUs; at most {} and {} are read", where,
                            num_devices, num_cpus, kMaxDevices, kMaxCpus));
  }
}

}  // namespace moe::topology
