#pragma once

// Any supported description of a machine, by its content.

#include <filesystem>
#include <string>
#include <string_view>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

struct ReadOptions {
  std::string gpu;  // id or alias of the GPU's type; empty: from the input where it says
};

// nvidia-smi topo -m, NCCL or RCCL topology XML, hwloc XML. `where` names the source in messages.
// Throws Error(kInput) for anything else, Error(kUsage) for a GPU that the catalog lacks.
[[nodiscard]] Topology read_topology_text(std::string_view text, const std::string& where,
                                          const LinkCatalog& catalog, const ReadOptions& options);
[[nodiscard]] Topology read_topology(const std::filesystem::path& path, const LinkCatalog& catalog,
                                     const ReadOptions& options);

}  // namespace moe::topology
