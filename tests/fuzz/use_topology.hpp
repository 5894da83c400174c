#pragma once

// What the fuzzers of topology readers have in common: an input is refused with an Error, or read,
// checked, drawn and compared.

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

namespace moe::test {

// `read` is called as read(text, where, catalog). Always 0, what a fuzz target returns.
template <typename Read>
int read_and_use_topology(const std::uint8_t* data, std::size_t size, Read read) {
  static const topology::LinkCatalog kCatalog = topology::read_link_catalog(
      std::string(MOE_SOURCE_DIR) + "/scenarios/topologies/link_catalog.json");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const topology::Topology topology = read(text, "fuzz", kCatalog);
    (void)topology::lint(topology, kCatalog);
    (void)topology::machine_ceiling(topology);
    (void)topology::to_svg(topology);
    (void)topology::diff_topologies(topology, topology);
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace moe::test
