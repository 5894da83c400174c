#pragma once

// The samples in scenarios/topologies and the catalog, for tests.

#include <string>
#include <string_view>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"
#include "lib/topology/read_topology.hpp"

namespace moe::topology {

inline std::string scenario_path(const std::string& name) {
  return std::string(MOE_SOURCE_DIR) + "/scenarios/" + name;
}

inline const LinkCatalog& test_catalog() {
  static const LinkCatalog kCatalog =
      read_link_catalog(scenario_path("topologies/link_catalog.json"));
  return kCatalog;
}

inline Topology sample(const std::string& name, const std::string& gpu = "") {
  return read_topology(scenario_path("topologies/" + name), test_catalog(), ReadOptions{gpu});
}

inline Topology from_text(std::string_view text) {
  return read_topology_text(text, "text", test_catalog(), ReadOptions{});
}

inline bool has_remark(const std::vector<Remark>& remarks, std::string_view code) {
  for (const Remark& remark : remarks) {
    if (remark.code == code) return true;
  }
  return false;
}

inline int count_weight(const std::vector<Remark>& remarks, Weight weight) {
  int count = 0;
  for (const Remark& remark : remarks) count += remark.weight == weight ? 1 : 0;
  return count;
}

}  // namespace moe::topology
