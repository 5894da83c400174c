// Rules about CPUs: masks against each other and against the host.

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"
#include "lib/topology/lint_rules.hpp"

namespace moe::topology {
namespace {

void compare_masks(const Topology& topology, std::vector<Remark>& remarks) {
  const std::vector<std::int32_t> cpus = topology.nodes_of(NodeKind::kCpu);
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    for (std::size_t j = i + 1; j < cpus.size(); ++j) {
      const Node& a = topology.nodes[as_index(cpus[i])];
      const Node& b = topology.nodes[as_index(cpus[j])];
      if (a.cpus.empty() || !a.cpus.intersects(b.cpus)) continue;
      remarks.push_back({"cpu.overlap",
                         Weight::kError,
                         fmt::format("{} and {} share CPUs ({} and {})", a.name, b.name,
                                     a.cpus.to_string(), b.cpus.to_string()),
                         "A CPU belongs to one NUMA node",
                         {a.name, b.name},
                         b.line});
    }
  }
}

// The first CPUs of a machine belong to its first NUMA node: true of every published host, and
// wrong where someone exchanged two masks.
void check_order(const Topology& topology, std::vector<Remark>& remarks) {
  std::map<std::int32_t, const Node*> by_numa;
  for (const Node& node : topology.nodes) {
    if (node.kind == NodeKind::kCpu && node.index && !node.cpus.empty()) {
      by_numa.emplace(*node.index, &node);
    }
  }
  const Node* before = nullptr;
  for (const auto& [numa, node] : by_numa) {
    if (before != nullptr && before->cpus.first() > node->cpus.first()) {
      remarks.push_back(
          {"cpu.order",
           Weight::kWarning,
           fmt::format(
               "NUMA {} holds CPUs {}, NUMA {} holds {}: numbers run backwards, the masks may "
               "be exchanged",
               *before->index, before->cpus.to_string(), numa, node->cpus.to_string()),
           "Compare with lscpu on the machine, or run the lint there with --host",
           {before->name, node->name},
           node->line});
    }
    before = node;
  }
}

void check_amd_family(const Topology& topology, std::vector<Remark>& remarks) {
  std::vector<std::string> names;
  for (const Node& node : topology.nodes) {
    if (node.kind == NodeKind::kCpu && node.vendor == "AuthenticAMD" &&
        (node.family == "23" || node.family == "25")) {
      names.push_back(node.name);
    }
  }
  const bool is_nccl =
      topology.format == Format::kNcclTopology || topology.format == Format::kRcclTopology;
  if (names.empty() || !is_nccl) return;
  remarks.push_back({"cpu.amd_family", Weight::kWarning,
                     "familyid is the kernel's number of an AMD CPU; NCCL and RCCL compute base + "
                     "(extended << 4): "
                     "143 for Zen 2, 175 for Zen 3 and 4, and RCCL takes this for another CPU",
                     "Write 143 or 175", names, 0});
}

}  // namespace

void lint_cpus(const Topology& topology, std::vector<Remark>& remarks) {
  if (topology.format == Format::kTopoMatrix) return;
  compare_masks(topology, remarks);
  check_order(topology, remarks);
  check_amd_family(topology, remarks);
}

void lint_against_host(const Topology& topology, const Topology& host,
                       std::vector<Remark>& remarks) {
  std::map<std::int32_t, const Node*> of_host;
  for (const Node& node : host.nodes) {
    if (node.kind == NodeKind::kCpu && node.index) of_host.emplace(*node.index, &node);
  }
  for (const Node& node : topology.nodes) {
    if (node.kind != NodeKind::kCpu || !node.index || node.cpus.empty()) continue;
    const auto found = of_host.find(*node.index);
    const bool is_there = found != of_host.end();
    if (is_there && (found->second->cpus == node.cpus || found->second->cpus.empty())) continue;
    remarks.push_back({"cpu.differs_from_host",
                       Weight::kError,
                       is_there
                           ? fmt::format("{} holds CPUs {} here, but {} on the host", node.name,
                                         node.cpus.to_string(), found->second->cpus.to_string())
                           : fmt::format("the host has no {}", node.name),
                       "Proxy threads would run on the wrong socket; correct the affinity mask",
                       {node.name},
                       node.line});
  }
  std::vector<std::string> strangers;
  const auto has_bus = [&](const Node& wanted) {
    return std::any_of(host.nodes.begin(), host.nodes.end(), [&](const Node& node) {
      return node.kind == wanted.kind && node.bus_id == wanted.bus_id;
    });
  };
  for (const Node& node : topology.nodes) {
    if (node.kind == NodeKind::kGpu && !node.bus_id.empty() && !has_bus(node)) {
      strangers.push_back(fmt::format("{} ({})", node.name, node.bus_id));
    }
  }
  if (strangers.empty() || host.count(NodeKind::kGpu) == 0) return;
  remarks.push_back({"gpu.differs_from_host", Weight::kError,
                     fmt::format("{} of the GPUs are not on the host's bus, the first is {}",
                                 strangers.size(), strangers.front()),
                     "The file belongs to another machine", strangers, 0});
}

}  // namespace moe::topology
