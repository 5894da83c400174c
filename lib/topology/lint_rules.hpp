#pragma once

// Groups of rules, one a file. Each adds its findings.

#include <vector>

#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"

namespace moe::topology {

void lint_fabric(const Topology& topology, std::vector<Remark>& remarks);
void lint_pcie(const Topology& topology, std::vector<Remark>& remarks);
void lint_nics(const Topology& topology, std::vector<Remark>& remarks);
void lint_cpus(const Topology& topology, std::vector<Remark>& remarks);
void lint_file(const Topology& topology, std::vector<Remark>& remarks);
void lint_against_host(const Topology& topology, const Topology& host,
                       std::vector<Remark>& remarks);

}  // namespace moe::topology
