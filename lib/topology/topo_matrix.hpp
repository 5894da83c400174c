#pragma once

// Reader of the text of `nvidia-smi topo -m`, of every driver generation, as it was printed or as
// it came through a terminal, a mail or an issue tracker; and of the matrix of `topo -p2p`.

#include <string>
#include <string_view>
#include <vector>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

inline constexpr std::size_t kMaxTopoBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxTopoDevices = 512;

// `where` names the source in messages. A matrix that is not square, not symmetric or cut short is
// read as far as it is certain, and each fault becomes a remark with its line. Bandwidths stay
// unknown until the GPU's type is applied. Throws Error(kInput) when there is no matrix.
[[nodiscard]] Topology read_topo_matrix(std::string_view text, const std::string& where,
                                        const LinkCatalog& catalog);

// True when a line begins a matrix of GPUs.
[[nodiscard]] bool looks_like_topo_matrix(std::string_view text);

// One cell of `topo -p2p`: OK, CNS, GNS, TNS, NS, DR, U.
struct P2pMatrix {
  std::vector<std::string> gpus;
  std::vector<std::vector<std::string>> cells;
};
[[nodiscard]] P2pMatrix read_p2p_matrix(std::string_view text, const std::string& where);

// Adds what the p2p matrix says as remarks: pairs that have no direct access.
void add_p2p_remarks(Topology& topology, const P2pMatrix& matrix);

}  // namespace moe::topology
