#include "lib/topology/read_topology.hpp"

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/hwloc_xml.hpp"
#include "lib/topology/nccl_xml.hpp"
#include "lib/topology/topo_matrix.hpp"
#include "lib/topology/xml_tree.hpp"

namespace moe::topology {
namespace {

Topology read_by_content(std::string_view text, const std::string& where,
                         const LinkCatalog& catalog) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    throw Error(ErrorCode::kInput, fmt::format("{}: the file is empty", where));
  }
  if (text[first] != '<') return read_topo_matrix(text, where, catalog);
  const std::string root = xml_root_name(text);
  if (root == "system") return read_nccl_topology(text, where, catalog);
  if (root == "topology") return read_hwloc_topology(text, where, catalog);
  if (root == "graphs") {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: this is NCCL's graph file (rings and trees); the machine is in its "
                    "topology file (NCCL_TOPO_DUMP_FILE)",
                    where));
  }
  throw Error(ErrorCode::kInput,
              fmt::format("{}: expected XML of NCCL or RCCL (<system>) or of hwloc (<topology>), "
                          "found <{}>",
                          where, printable(root)));
}

}  // namespace

Topology read_topology_text(std::string_view text, const std::string& where,
                            const LinkCatalog& catalog, const ReadOptions& options) {
  const GpuType* gpu = options.gpu.empty() ? nullptr : catalog.find_gpu(options.gpu);
  if (!options.gpu.empty() && gpu == nullptr) {
    throw Error(ErrorCode::kUsage, fmt::format("--gpu: no GPU \"{}\"; known are {}",
                                               printable(options.gpu), catalog.gpu_ids()));
  }
  Topology topology = read_by_content(text, where, catalog);
  if (gpu != nullptr) {
    apply_gpu_type(topology, catalog, *gpu, "--gpu");
  } else {
    guess_gpu_type(topology, catalog);
  }
  return topology;
}

Topology read_topology(const std::filesystem::path& path, const LinkCatalog& catalog,
                       const ReadOptions& options) {
  const FileMap file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  return read_topology_text(text, path.string(), catalog, options);
}

}  // namespace moe::topology
