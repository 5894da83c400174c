// Topology XML of NCCL or RCCL from arbitrary bytes: refused with an Error or read, checked, drawn
// and compared, nothing else.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/error.hpp"
#include "lib/topology/diff.hpp"
#include "lib/topology/document.hpp"
#include "lib/topology/flows.hpp"
#include "lib/topology/link_catalog.hpp"
#include "lib/topology/lint.hpp"
#include "lib/topology/nccl_xml.hpp"

namespace {

const moe::topology::LinkCatalog& catalog() {
  static const moe::topology::LinkCatalog kCatalog = moe::topology::read_link_catalog(
      std::string(MOE_SOURCE_DIR) + "/scenarios/topologies/link_catalog.json");
  return kCatalog;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const moe::topology::Topology topology =
        moe::topology::read_nccl_topology(text, "fuzz", catalog());
    (void)moe::topology::lint(topology, catalog());
    (void)moe::topology::machine_ceiling(topology);
    (void)moe::topology::to_svg(topology);
    (void)moe::topology::diff_topologies(topology, topology);
  } catch (const moe::Error&) {
  }
  return 0;
}
