// Rules about PCIe links: slower than their peers', slower than what hangs off them.

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"
#include "lib/topology/lint_rules.hpp"
#include "lib/topology/routes.hpp"

namespace moe::topology {
namespace {

// A link below this share of its peers' median is another generation or a lost lane.
constexpr double kSlowShare = 0.6;
// NCCL counts PCIe at about 0.76 of its line rate: a 400G NIC on Gen5 x16 is well served by the 48
// GB/s that it allows.
constexpr double kNetSlack = 1.2;

bool is_stated(const Link& link) {
  return link.kind == LinkKind::kPcie && link.bytes_per_s.has_value();
}

bool has_c2c(const Topology& topology, std::int32_t node) {
  return std::any_of(topology.links.begin(), topology.links.end(), [&](const Link& link) {
    return link.kind == LinkKind::kC2c && (link.a == node || link.b == node);
  });
}

void find_slow_links(const Topology& topology, NodeKind kind, std::vector<Remark>& remarks) {
  std::vector<const Link*> links;
  std::vector<double> rates;
  for (const Link& link : topology.links) {
    // A GPU with a link of its own to the CPU does not use PCIe for data.
    if (!is_stated(link) || topology.nodes[as_index(link.a)].kind != kind ||
        has_c2c(topology, link.a)) {
      continue;
    }
    links.push_back(&link);
    rates.push_back(*link.bytes_per_s);
  }
  if (links.empty()) return;
  std::sort(rates.begin(), rates.end());
  // Of an even number the upper one: of two GPUs, the slower is the odd one out.
  const double usual = rates[rates.size() / 2];
  for (const Link* link : links) {
    const std::string& name = topology.nodes[as_index(link->a)].name;
    const bool is_one_lane = link->pcie_lanes == 1;
    if (*link->bytes_per_s >= usual * kSlowShare && !is_one_lane) continue;
    remarks.push_back(
        {"link.slow",
         Weight::kError,
         fmt::format("{} hangs on \"{}\" x{}, {:.2f} GB/s; its peers have {:.0f}", name,
                     link->pcie_speed, link->pcie_lanes, *link->bytes_per_s / 1e9, usual / 1e9),
         "Reseat the card or riser, look at LnkSta and LnkCap in lspci -vv; in a file, put the "
         "real link there",
         {name},
         link->line});
  }
}

// What hangs below a node: fastest link, and whether there is a GPU and a NIC.
struct Below {
  double fastest = 0.0;
  bool has_gpu = false;
  bool has_nic = false;
};

Below look_below(const Topology& topology, std::int32_t node,
                 const std::multimap<std::int32_t, const Link*>& children, int depth) {
  Below below;
  if (depth > 64) return below;
  const auto [begin, end] = children.equal_range(node);
  for (auto child = begin; child != end; ++child) {
    const Link& link = *child->second;
    const NodeKind kind = topology.nodes[as_index(link.a)].kind;
    const Below deeper = look_below(topology, link.a, children, depth + 1);
    below.fastest = std::max({below.fastest, link.bytes_per_s.value_or(0.0)});
    below.has_gpu = below.has_gpu || kind == NodeKind::kGpu || deeper.has_gpu;
    below.has_nic = below.has_nic || kind == NodeKind::kNic || deeper.has_nic;
  }
  return below;
}

void find_chokes(const Topology& topology, std::vector<Remark>& remarks) {
  std::multimap<std::int32_t, const Link*> children;
  for (const Link& link : topology.links) {
    if (link.kind == LinkKind::kPcie) children.emplace(link.b, &link);
  }
  for (const Link& link : topology.links) {
    const Node& node = topology.nodes[as_index(link.a)];
    if (!is_stated(link) || node.kind != NodeKind::kPciSwitch) continue;
    const Below below = look_below(topology, link.a, children, 0);
    if (below.fastest <= 0.0 || *link.bytes_per_s >= below.fastest * kSlowShare) continue;
    // A GPU and its NIC under one switch do not need the uplink.
    const bool is_harmless = below.has_gpu && below.has_nic;
    const bool matters = below.has_gpu || below.has_nic;
    if (!matters) continue;
    remarks.push_back(
        {"link.choke",
         is_harmless ? Weight::kInfo : Weight::kWarning,
         fmt::format(
             "the uplink of {} is \"{}\" x{}, {:.0f} GB/s, below it hang {:.0f} GB/s{}", node.name,
             link.pcie_speed, link.pcie_lanes, *link.bytes_per_s / 1e9, below.fastest / 1e9,
             is_harmless ? "; harmless while GPU and NIC traffic stays under the switch" : ""),
         is_harmless ? "" : "Traffic to other GPUs and to host memory is bound by it",
         {node.name},
         link.line});
  }
}

void find_slow_nics(const Topology& topology, std::vector<Remark>& remarks) {
  for (const Link& link : topology.links) {
    const Node& node = topology.nodes[as_index(link.a)];
    if (!is_stated(link) || node.kind != NodeKind::kNic) continue;
    double net = 0.0;
    for (const Port& port : node.ports) net += port.bytes_per_s.value_or(0.0);
    if (net <= *link.bytes_per_s * kNetSlack) continue;
    remarks.push_back(
        {"nic.link_slower_than_net",
         Weight::kWarning,
         fmt::format("{} ({}) has a network of {:.1f} GB/s behind a PCIe link of {:.1f} GB/s "
                     "(\"{}\" x{})",
                     node.name, node.device_name, net / 1e9, *link.bytes_per_s / 1e9,
                     link.pcie_speed, link.pcie_lanes),
         "Count on the slower of the two; a slot with more lanes mends it",
         {node.name},
         link.line});
  }
}

}  // namespace

void lint_pcie(const Topology& topology, std::vector<Remark>& remarks) {
  // nvidia-smi topo -m states no PCIe link.
  if (topology.format == Format::kTopoMatrix) return;
  find_slow_links(topology, NodeKind::kGpu, remarks);
  find_slow_links(topology, NodeKind::kNic, remarks);
  find_chokes(topology, remarks);
  find_slow_nics(topology, remarks);
}

}  // namespace moe::topology
