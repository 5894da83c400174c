#include "lib/topology/hwloc_xml.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/limits.hpp"
#include "lib/topology/xml_tree.hpp"

namespace moe::topology {
namespace {

constexpr std::size_t kMaxDistanceObjects = 256;

bool is_type(const XmlElement& element, std::string_view type) {
  const std::string* found = element.find("type");
  return element.name == "object" && found != nullptr && *found == type;
}

std::string info_of(const XmlElement& element, std::string_view name) {
  for (const XmlElement& child : element.children) {
    if (child.name == "info" && child.get("name") == name) return printable(child.get("value"));
  }
  return "";
}

enum class Device : std::uint8_t { kNone, kGpu, kNic, kNvSwitch };

// "0302 [10de:1db8] ...": class, vendor, device.
Device device_of(const XmlElement& element) {
  if (!is_type(element, "PCIDev")) return Device::kNone;
  const std::string type = element.get("pci_type");
  const std::string_view pci_class = std::string_view(type).substr(0, 4);
  const std::size_t bracket = type.find('[');
  const std::string vendor = bracket == std::string::npos ? "" : type.substr(bracket + 1, 4);
  // A management controller is a display device too.
  const bool is_gpu_vendor = vendor == "10de" || vendor == "1002" || vendor == "8086";
  if (element.get("subtype") == "NVSwitch") return Device::kNvSwitch;
  if ((pci_class == "0302" || pci_class == "0300" || pci_class == "1200") && is_gpu_vendor) {
    return Device::kGpu;
  }
  if (pci_class == "0680" && vendor == "10de") return Device::kNvSwitch;
  if (pci_class == "0200" || pci_class == "0207") return Device::kNic;
  return Device::kNone;
}

// Children that hold a device worth keeping.
std::vector<const XmlElement*> kept_children(const XmlElement& element) {
  std::vector<const XmlElement*> kept;
  for (const XmlElement& child : element.children) {
    const bool is_device = device_of(child) != Device::kNone;
    const bool is_bridge = is_type(child, "Bridge") && !kept_children(child).empty();
    if (is_device || is_bridge) kept.push_back(&child);
  }
  return kept;
}

class HwlocXmlReader {
 public:
  HwlocXmlReader(const std::string& where, const LinkCatalog& catalog)
      : where_(where), catalog_(catalog) {
    topology_.format = Format::kHwloc;
    topology_.source = where;
    topology_.is_fabric_known = false;
  }

  Topology read(const XmlDocument& document) {
    topology_.num_elements = document.num_elements;
    topology_.version = printable(document.root.get("version"));
    const auto machine =
        std::find_if(document.root.children.begin(), document.root.children.end(),
                     [](const XmlElement& child) { return is_type(child, "Machine"); });
    if (machine == document.root.children.end()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: no Machine object in the file", where_));
    }
    arch_ = info_of(*machine, "Architecture");
    walk(*machine, -1, *machine);
    for (const XmlElement& child : document.root.children) {
      const bool is_distances = child.name == "distances2" || child.name == "distances2hetero";
      if (is_distances && child.get("name") == "NVLinkBandwidth") {
        topology_.is_fabric_known = true;
        read_nvlinks(child);
      }
    }
    require_sane_counts(topology_, where_);
    const std::vector<std::int32_t> cpus = topology_.nodes_of(NodeKind::kCpu);
    if (cpus.size() > 1) {
      const CpuLinkRate rate = cpu_link_rate(catalog_, at(cpus.front()));
      connect_cpus(topology_, rate.bytes_per_s, rate.source);
    }
    name_devices();
    derive_relations(topology_);
    topology_.is_domain_known = true;
    return std::move(topology_);
  }

 private:
  Node& at(std::int32_t node) { return topology_.nodes[static_cast<std::size_t>(node)]; }

  std::int32_t add(Node node, const XmlElement& element) {
    require_room(topology_, where_);
    topology_.nodes.push_back(std::move(node));
    const std::int32_t index = static_cast<std::int32_t>(topology_.nodes.size()) - 1;
    if (const auto id = element.integer("gp_index")) by_id_[*id] = index;
    return index;
  }

  // `cpu` is the NUMA node that PCI devices found here belong to.
  void walk(const XmlElement& element, std::int32_t cpu, const XmlElement& package) {
    const auto own =
        std::find_if(element.children.begin(), element.children.end(), [](const XmlElement& child) {
          // A NUMA node without CPUs is the memory of a GPU.
          return is_type(child, "NUMANode") &&
                 !parse_mask(child.get("cpuset")).value_or(NumberSet()).empty();
        });
    if (own != element.children.end()) cpu = add_cpu(*own, package);
    if (is_type(element, "Package")) {
      if (const auto id = element.integer("gp_index"); id && cpu >= 0) by_id_[*id] = cpu;
    }
    for (const XmlElement& child : element.children) {
      if (child.name != "object") continue;
      if (is_type(child, "Bridge") || is_type(child, "PCIDev")) {
        read_pci(child, cpu, std::nullopt);
      } else {
        walk(child, cpu, is_type(child, "Package") ? child : package);
      }
    }
  }

  std::int32_t add_cpu(const XmlElement& numa, const XmlElement& package) {
    Node node;
    node.kind = NodeKind::kCpu;
    node.line = numa.line;
    node.cpus = parse_mask(numa.get("cpuset")).value_or(NumberSet());
    node.arch = arch_;
    node.vendor = info_of(package, "CPUVendor");
    node.family = info_of(package, "CPUFamilyNumber");
    node.model = info_of(package, "CPUModelNumber");
    const auto index = numa.integer("os_index");
    if (index && *index >= 0 && *index <= kMaxNumber) {
      node.index = static_cast<std::int32_t>(*index);
      node.numa_nodes = NumberSet({{*node.index, *node.index}});
      node.name = fmt::format("NUMA {}", *index);
    } else {
      node.name = fmt::format("CPU {}", topology_.count(NodeKind::kCpu));
    }
    return add(std::move(node), numa);
  }

  // Passes through bridges that join nothing: ports of one switch and root ports. `rate` is the
  // slowest link on the way down, in bytes per second.
  void read_pci(const XmlElement& element, std::int32_t parent, std::optional<double> rate) {
    const std::vector<const XmlElement*> kept = kept_children(element);
    const Device device = device_of(element);
    if (device == Device::kNone && kept.empty()) return;
    if (const auto own = element.number("pci_link_speed"); own && *own > 0.0 && *own < 1e6) {
      rate = std::min(rate.value_or(*own * 1e9), *own * 1e9);
    }
    const bool is_transparent =
        device == Device::kNone && (kept.size() == 1 || element.get("bridge_type") == "0-1");
    if (is_transparent) {
      for (const XmlElement* child : kept) read_pci(*child, parent, rate);
      return;
    }
    Node node;
    node.kind = device == Device::kGpu        ? NodeKind::kGpu
                : device == Device::kNic      ? NodeKind::kNic
                : device == Device::kNvSwitch ? NodeKind::kNvSwitch
                                              : NodeKind::kPciSwitch;
    node.bus_id = normal_bus_id(printable(element.get("pci_busid")));
    node.line = element.line;
    const std::string type = element.get("pci_type");
    node.pci_class = "0x" + printable(type.substr(0, 4)) + "00";
    if (parent >= 0) {
      node.numa_nodes = at(parent).numa_nodes;
      node.cpus = at(parent).cpus;
    }
    const std::int32_t index = add(std::move(node), element);
    add_os_devices(element, index);
    if (parent >= 0) {
      Link link;
      link.a = index;
      link.b = parent;
      link.bytes_per_s = rate;
      link.source = rate ? "pci_link_speed of hwloc" : "not in the file";
      link.line = element.line;
      topology_.links.push_back(std::move(link));
    }
    for (const XmlElement* child : kept) read_pci(*child, index, std::nullopt);
  }

  void add_os_devices(const XmlElement& element, std::int32_t node) {
    for (const XmlElement& child : element.children) {
      if (!is_type(child, "OSDev")) continue;
      if (const auto id = child.integer("gp_index")) by_id_[*id] = node;
      const std::string name = printable(child.get("name"));
      if (at(node).kind == NodeKind::kNic) {
        Port port;
        port.name = name;
        at(node).ports.push_back(std::move(port));
      }
      if (at(node).device_name.empty()) at(node).device_name = name;
      const std::string model = info_of(child, "GPUModel");
      if (!model.empty()) at(node).device_name = model;
    }
  }

  void read_nvlinks(const XmlElement& distances) {
    std::vector<std::int64_t> ids;
    std::vector<std::uint64_t> values;
    for (const XmlElement& child : distances.children) {
      for (const std::string& word : words_of(child.text)) {
        if (child.name == "indexes" && ids.size() < kMaxDistanceObjects) {
          ids.push_back(parse_number<std::int64_t>(word.substr(word.find(':') + 1)).value_or(-1));
        } else if (child.name == "u64values" &&
                   values.size() < kMaxDistanceObjects * kMaxDistanceObjects) {
          values.push_back(parse_number<std::uint64_t>(word).value_or(0));
        }
      }
    }
    if (values.size() != ids.size() * ids.size()) {
      topology_.remarks.push_back(
          {"nvlink.matrix_cut",
           Weight::kWarning,
           fmt::format("line {}: the NVLink matrix of {} objects has {} values", distances.line,
                       ids.size(), values.size()),
           "",
           {},
           distances.line});
      return;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (std::size_t j = i + 1; j < ids.size(); ++j) {
        const std::uint64_t megabytes =
            std::max(values[i * ids.size() + j], values[j * ids.size() + i]);
        const auto a = by_id_.find(ids[i]);
        const auto b = by_id_.find(ids[j]);
        if (megabytes == 0 || a == by_id_.end() || b == by_id_.end()) continue;
        add_nvlink(a->second, b->second, static_cast<double>(megabytes) * 1e6, distances.line);
      }
    }
  }

  void add_nvlink(std::int32_t a, std::int32_t b, double bytes_per_s, std::int32_t line) {
    // One NVLink carries 20 GB/s in its first generation and 25 or 50 GB/s since.
    constexpr double kRates[] = {25e9, 20e9};
    Link link;
    link.a = a;
    link.b = b;
    link.kind = LinkKind::kNvlink;
    link.bytes_per_s = std::min(bytes_per_s, 1e15);
    link.count = 1;
    for (const double rate : kRates) {
      const double links = bytes_per_s / rate;
      if (links >= 1.0 && links < 64.0 && links == static_cast<double>(static_cast<int>(links))) {
        link.count = static_cast<std::int32_t>(links);
        break;
      }
    }
    link.source = "NVLinkBandwidth of hwloc";
    link.line = line;
    topology_.links.push_back(std::move(link));
  }

  static std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    std::size_t begin = text.find_first_not_of(" \t\r\n");
    while (begin != std::string::npos) {
      const std::size_t end = std::min(text.find_first_of(" \t\r\n", begin), text.size());
      words.push_back(text.substr(begin, end - begin));
      begin = text.find_first_not_of(" \t\r\n", end);
    }
    return words;
  }

  void name_devices() {
    std::int32_t num_gpus = 0;
    std::int32_t num_nics = 0;
    for (Node& node : topology_.nodes) {
      if (node.kind == NodeKind::kGpu) {
        node.index = num_gpus++;
        node.name = fmt::format("GPU{}", *node.index);
      } else if (node.kind == NodeKind::kNic) {
        node.index = num_nics++;
        node.name = fmt::format("NIC{}", *node.index);
      } else if (node.kind != NodeKind::kCpu) {
        node.name = fmt::format("{} {}", node.kind == NodeKind::kNvSwitch ? "NVSwitch" : "switch",
                                node.bus_id);
      }
    }
    if (num_gpus == 0) {
      topology_.remarks.push_back(
          {"hwloc.no_gpu",
           Weight::kInfo,
           "no GPU among the PCI devices of the file",
           "An integrated GPU is no PCI device, and lstopo leaves devices out without "
           "--whole-io; add nvidia-smi topo -m",
           {},
           0});
    }
  }

  const std::string& where_;
  const LinkCatalog& catalog_;
  Topology topology_;
  std::string arch_;
  std::map<std::int64_t, std::int32_t> by_id_;  // gp_index -> node
};

}  // namespace

Topology read_hwloc_topology(std::string_view text, const std::string& where,
                             const LinkCatalog& catalog) {
  const XmlDocument document = read_xml(text, where);
  if (document.root.name != "topology") {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected hwloc XML (<topology>), found <{}>",
                                               where, printable(document.root.name)));
  }
  const std::string version = document.root.get("version");
  if (!version.starts_with("2.") && !version.starts_with("3.")) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: hwloc XML of version \"{}\"; 2.x and 3.x are read", where,
                            printable(version)));
  }
  return HwlocXmlReader(where, catalog).read(document);
}

}  // namespace moe::topology
