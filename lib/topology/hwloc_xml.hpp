#pragma once

// Reader of hwloc's XML, versions 2.x and 3.0, without hwloc: a library of version 2 does not load
// a file of version 3. PCI link speeds are in GB/s here, unlike NCCL's text of GT/s for one lane.

#include <string>
#include <string_view>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

// Throws Error(kInput).
[[nodiscard]] Topology read_hwloc_topology(std::string_view text, const std::string& where,
                                           const LinkCatalog& catalog);

// This host through libhwloc, with its PCI devices. Throws Error(kUnavailable).
[[nodiscard]] Topology read_host_topology(const LinkCatalog& catalog);

}  // namespace moe::topology
