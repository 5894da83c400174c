// This host through libhwloc: exported as XML and read like any other.

#include <memory>
#include <string>

#include <hwloc.h>

#include "lib/base/error.hpp"
#include "lib/topology/hwloc_xml.hpp"

namespace moe::topology {
namespace {

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};

[[noreturn]] void fail(const char* step) {
  throw Error(ErrorCode::kUnavailable,
              std::string("hwloc could not ") + step + " the topology of this host");
}

}  // namespace

Topology read_host_topology(const LinkCatalog& catalog) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail("begin");
  const std::unique_ptr<hwloc_topology, Destroy> topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Bridges are what tells one PCIe switch from two.
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) fail("read");
  char* xml = nullptr;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(raw, &xml, &length, 0) != 0) fail("export");
  std::string text(xml, static_cast<std::size_t>(length > 0 ? length - 1 : 0));
  hwloc_free_xmlbuffer(raw, xml);
  Topology host = read_hwloc_topology(text, "this host", catalog);
  return host;
}

}  // namespace moe::topology
