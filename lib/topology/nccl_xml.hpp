#pragma once

// Readers of NCCL's and RCCL's XML: the topology (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE) and the
// result of NCCL's search for rings and trees (NCCL_GRAPH_DUMP_FILE). What an XML library accepts
// and NCCL's own parser does not becomes a remark.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

// Limits of NCCL's parser.
inline constexpr std::size_t kNcclMaxString = 255;
inline constexpr std::size_t kNcclMaxAttributes = 16;
inline constexpr std::size_t kNcclMaxChildren = 640;
inline constexpr std::int64_t kNcclMaxElements = 256;

// Throws Error(kInput).
[[nodiscard]] Topology read_nccl_topology(std::string_view text, const std::string& where,
                                          const LinkCatalog& catalog);

struct NcclGraph {
  std::int64_t id = 0;
  std::string pattern;
  std::int64_t num_channels = 0;
  double intra_bytes_per_s = 0.0;  // a channel
  double inter_bytes_per_s = 0.0;
  std::string type_intra;  // NCCL's path names
  std::string type_inter;
  std::vector<std::string> gpus;  // of the first channel, in order
  std::vector<std::string> nets;  // of all channels, each once
};

struct NcclGraphFile {
  std::string version;
  std::vector<NcclGraph> graphs;
  std::vector<Remark> remarks;
};

[[nodiscard]] NcclGraphFile read_nccl_graph(std::string_view text, const std::string& where);

}  // namespace moe::topology
