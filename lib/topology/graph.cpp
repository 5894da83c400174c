#include "lib/topology/graph.hpp"

#include <algorithm>
#include <cctype>

#include "lib/base/check.hpp"

namespace moe::topology {
namespace {

// Parent of each node in the PCIe tree; -1 for none.
std::vector<std::int32_t> pcie_parents(const Topology& topology) {
  std::vector<std::int32_t> parents(topology.nodes.size(), -1);
  for (const Link& link : topology.links) {
    if (link.kind == LinkKind::kPcie) parents[static_cast<std::size_t>(link.a)] = link.b;
  }
  return parents;
}

// The node itself, then its ancestors up to the CPU.
std::vector<std::int32_t> chain_of(const std::vector<std::int32_t>& parents, std::int32_t node) {
  std::vector<std::int32_t> chain;
  while (node >= 0 && chain.size() <= parents.size()) {
    chain.push_back(node);
    node = parents[static_cast<std::size_t>(node)];
  }
  return chain;
}

PathKind pcie_path(const Topology& topology, const std::vector<std::int32_t>& parents,
                   std::int32_t a, std::int32_t b) {
  const std::vector<std::int32_t> up_a = chain_of(parents, a);
  const std::vector<std::int32_t> up_b = chain_of(parents, b);
  for (std::size_t i = 1; i < up_a.size(); ++i) {
    const auto at = std::find(up_b.begin() + 1, up_b.end(), up_a[i]);
    if (at == up_b.end()) continue;
    if (topology.nodes[static_cast<std::size_t>(up_a[i])].kind == NodeKind::kCpu) {
      return PathKind::kPhb;
    }
    const std::size_t num_switches = i + static_cast<std::size_t>(at - up_b.begin()) - 1;
    return num_switches > 1 ? PathKind::kPxb : PathKind::kPix;
  }
  const auto ends_at_cpu = [&](const std::vector<std::int32_t>& chain) {
    return topology.nodes[static_cast<std::size_t>(chain.back())].kind == NodeKind::kCpu;
  };
  return ends_at_cpu(up_a) && ends_at_cpu(up_b) ? PathKind::kSys : PathKind::kUnknown;
}

// NVLinks and xGMI links of GPUs: to each other, and to switches.
class FabricCounts {
 public:
  FabricCounts(const Topology& topology, std::size_t num_gpus)
      : num_gpus_(num_gpus), direct_(num_gpus * num_gpus, 0), to_switch_(num_gpus, 0) {
    std::vector<std::int32_t> position(topology.nodes.size(), -1);
    for (std::size_t i = 0; i < num_gpus; ++i) {
      position[static_cast<std::size_t>(topology.devices[i])] = static_cast<std::int32_t>(i);
    }
    for (const Link& link : topology.links) {
      if (!is_fabric(link.kind) || link.a == link.b) continue;
      const std::int32_t a = position[static_cast<std::size_t>(link.a)];
      const std::int32_t b = position[static_cast<std::size_t>(link.b)];
      if (a >= 0 && b >= 0) {
        direct_[index(a, b)] += link.count;
        direct_[index(b, a)] += link.count;
      } else if (a >= 0 && is_switch(topology, link.b)) {
        to_switch_[static_cast<std::size_t>(a)] += link.count;
      } else if (b >= 0 && is_switch(topology, link.a)) {
        to_switch_[static_cast<std::size_t>(b)] += link.count;
      }
    }
  }

  // Direct ones, else through switches.
  [[nodiscard]] std::int32_t between(std::size_t i, std::size_t j) const {
    const std::int32_t direct = direct_[i * num_gpus_ + j];
    return direct > 0 ? direct : std::min(to_switch_[i], to_switch_[j]);
  }

 private:
  [[nodiscard]] std::size_t index(std::int32_t i, std::int32_t j) const {
    return static_cast<std::size_t>(i) * num_gpus_ + static_cast<std::size_t>(j);
  }
  static bool is_switch(const Topology& topology, std::int32_t node) {
    return topology.nodes[static_cast<std::size_t>(node)].kind == NodeKind::kNvSwitch;
  }

  std::size_t num_gpus_;
  std::vector<std::int32_t> direct_;
  std::vector<std::int32_t> to_switch_;
};

}  // namespace

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kTopoMatrix:
      return "nvidia-smi topo -m";
    case Format::kNcclTopology:
      return "NCCL topology XML";
    case Format::kRcclTopology:
      return "RCCL topology XML";
    case Format::kHwloc:
      return "hwloc";
  }
  return "";
}

std::string_view node_kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCpu:
      return "CPU";
    case NodeKind::kGpu:
      return "GPU";
    case NodeKind::kNic:
      return "NIC";
    case NodeKind::kPciSwitch:
      return "PCIe switch";
    case NodeKind::kNvSwitch:
      return "NVSwitch";
  }
  return "";
}

std::string_view link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kPcie:
      return "PCIe";
    case LinkKind::kNvlink:
      return "NVLink";
    case LinkKind::kXgmi:
      return "xGMI";
    case LinkKind::kC2c:
      return "C2C";
    case LinkKind::kCpu:
      return "CPU link";
  }
  return "";
}

std::string_view path_kind_name(PathKind kind) {
  switch (kind) {
    case PathKind::kSelf:
      return "X";
    case PathKind::kNvlink:
      return "NV";
    case PathKind::kPix:
      return "PIX";
    case PathKind::kPxb:
      return "PXB";
    case PathKind::kPhb:
      return "PHB";
    case PathKind::kNode:
      return "NODE";
    case PathKind::kSys:
      return "SYS";
    case PathKind::kUnknown:
      return "?";
  }
  return "";
}

std::vector<std::int32_t> Topology::nodes_of(NodeKind kind) const {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == kind) found.push_back(static_cast<std::int32_t>(i));
  }
  return found;
}

std::int64_t Topology::count(NodeKind kind) const {
  return std::count_if(nodes.begin(), nodes.end(),
                       [kind](const Node& node) { return node.kind == kind; });
}

const Relation& Topology::relation(std::size_t i, std::size_t j) const {
  MOE_CHECK(i < devices.size() && j < devices.size());
  return relations[i * devices.size() + j];
}

Relation Topology::relation_of(std::int32_t node_a, std::int32_t node_b) const {
  const auto at_a = std::find(devices.begin(), devices.end(), node_a);
  const auto at_b = std::find(devices.begin(), devices.end(), node_b);
  if (at_a == devices.end() || at_b == devices.end()) return {};
  return relation(static_cast<std::size_t>(at_a - devices.begin()),
                  static_cast<std::size_t>(at_b - devices.begin()));
}

std::int32_t num_fabric_links(const Topology& topology, std::int32_t node) {
  std::int32_t total = 0;
  for (const Link& link : topology.links) {
    const bool is_self = link.a == link.b;
    const bool touches = link.a == node || link.b == node;
    if (is_fabric(link.kind) && touches && !is_self) total += link.count;
  }
  return total;
}

void connect_cpus(Topology& topology, double bytes_per_s, const std::string& source) {
  const std::vector<std::int32_t> cpus = topology.nodes_of(NodeKind::kCpu);
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    for (std::size_t j = i + 1; j < cpus.size(); ++j) {
      Link link;
      link.a = cpus[i];
      link.b = cpus[j];
      link.kind = LinkKind::kCpu;
      link.bytes_per_s = bytes_per_s;
      link.source = source;
      topology.links.push_back(std::move(link));
    }
  }
}

void derive_relations(Topology& topology) {
  topology.devices = topology.nodes_of(NodeKind::kGpu);
  const std::vector<std::int32_t> nics = topology.nodes_of(NodeKind::kNic);
  const std::size_t num_gpus = topology.devices.size();
  topology.devices.insert(topology.devices.end(), nics.begin(), nics.end());
  const std::size_t n = topology.devices.size();
  topology.relations.assign(n * n, {});
  const std::vector<std::int32_t> parents = pcie_parents(topology);
  const FabricCounts fabric(topology, num_gpus);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      Relation& relation = topology.relations[i * n + j];
      if (i == j) {
        relation.path = PathKind::kSelf;
        continue;
      }
      const std::int32_t a = topology.devices[i];
      const std::int32_t b = topology.devices[j];
      if (i < num_gpus && j < num_gpus) relation.num_nvlinks = fabric.between(i, j);
      relation.path =
          relation.num_nvlinks > 0 ? PathKind::kNvlink : pcie_path(topology, parents, a, b);
    }
  }
}

std::string normal_bus_id(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string join_names(const Topology& topology, const std::vector<std::int32_t>& nodes) {
  std::string text;
  for (const std::int32_t node : nodes) {
    if (!text.empty()) text += ", ";
    text += topology.nodes[static_cast<std::size_t>(node)].name;
  }
  return text;
}

}  // namespace moe::topology
