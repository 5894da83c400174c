#include "lib/topology/nccl_xml.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/limits.hpp"
#include "lib/topology/xml_tree.hpp"

namespace moe::topology {
namespace {

constexpr std::string_view kHiddenSwitch = "fffffff:ff:ff.0";
constexpr double kNetDefaultMbits = 10000.0;

struct FabricRow {
  std::int32_t gpu = 0;
  std::string target;
  std::string target_class;
  std::int32_t count = 1;
  bool is_xgmi = false;
  std::int32_t line = 0;
};

class NcclXmlReader {
 public:
  NcclXmlReader(const std::string& where, const LinkCatalog& catalog)
      : where_(where), catalog_(catalog) {
    topology_.source = where;
  }

  Topology read(const XmlDocument& document) {
    topology_.num_elements = document.num_elements;
    topology_.format = is_rccl(document.root) ? Format::kRcclTopology : Format::kNcclTopology;
    if (const std::string* version = document.root.find("version")) {
      topology_.version = printable(*version);
    }
    for (const XmlElement& child : document.root.children) {
      if (child.name == "cpu") {
        read_cpu(child);
      } else {
        note_unknown(child);
      }
    }
    add_fabric();
    require_sane_counts(topology_, where_);
    add_cpu_links();
    number_devices();
    derive_relations(topology_);
    topology_.is_domain_known = true;
    topology_.is_fabric_known = has_gpu_element_;
    return std::move(topology_);
  }

 private:
  static bool is_rccl(const XmlElement& element) {
    if (element.name == "xgmi" || (element.name == "gpu" && element.find("gcn") != nullptr)) {
      return true;
    }
    const bool is_amd_gpu = element.name == "pci" && element.get("class").starts_with("0x1200");
    return is_amd_gpu || std::any_of(element.children.begin(), element.children.end(), &is_rccl);
  }

  void remark(const std::string& code, Weight weight, const XmlElement& element,
              const std::string& message, const std::string& advice,
              std::vector<std::string> subjects = {}) {
    topology_.remarks.push_back({code, weight, fmt::format("line {}: {}", element.line, message),
                                 advice, std::move(subjects), element.line});
  }

  void note_unknown(const XmlElement& element) {
    remark("xml.unknown_element", Weight::kInfo, element,
           fmt::format("<{}> is not known here and passed over", printable(element.name)), "");
  }

  std::int32_t add(Node node) {
    require_room(topology_, where_);
    topology_.nodes.push_back(std::move(node));
    return static_cast<std::int32_t>(topology_.nodes.size()) - 1;
  }
  Node& at(std::int32_t node) { return topology_.nodes[static_cast<std::size_t>(node)]; }

  void read_cpu(const XmlElement& element) {
    Node cpu;
    cpu.kind = NodeKind::kCpu;
    cpu.line = element.line;
    cpu.arch = printable(element.get("arch"));
    cpu.vendor = printable(element.get("vendor"));
    cpu.family = printable(element.get("familyid"));
    cpu.model = printable(element.get("modelid"));
    const auto numa = element.integer("numaid");
    if (numa && *numa >= 0 && *numa <= kMaxNumber) {
      cpu.index = static_cast<std::int32_t>(*numa);
      cpu.numa_nodes = NumberSet({{*cpu.index, *cpu.index}});
      cpu.name = fmt::format("NUMA {}", *numa);
    } else {
      cpu.name = fmt::format("CPU {}", topology_.count(NodeKind::kCpu));
      if (element.find("numaid") != nullptr) {
        remark("cpu.numa_unreadable", Weight::kWarning, element,
               fmt::format("numaid \"{}\" is no NUMA node", printable(element.get("numaid"))), "");
      }
    }
    if (const std::string* mask = element.find("affinity"); mask != nullptr && !mask->empty()) {
      if (const auto cpus = parse_mask(*mask)) {
        cpu.cpus = *cpus;
      } else {
        remark("cpu.affinity_unreadable", Weight::kWarning, element,
               fmt::format("affinity \"{}\" is no mask of 32-bit words", printable(*mask)), "");
      }
    }
    const std::int32_t node = add(std::move(cpu));
    for (const XmlElement& child : element.children) read_below(child, node, node);
  }

  void read_below(const XmlElement& element, std::int32_t parent, std::int32_t cpu) {
    if (element.name == "pci") {
      read_pci(element, parent, cpu);
    } else if (element.name == "nic") {
      // A NIC that has no PCI device of its own, as virtual ones in a VM.
      read_nic(element, parent, cpu, -1);
    } else {
      note_unknown(element);
    }
  }

  static NodeKind kind_of(const XmlElement& element) {
    const auto has = [&](std::string_view name) {
      return std::any_of(element.children.begin(), element.children.end(),
                         [&](const XmlElement& child) { return child.name == name; });
    };
    const std::string pci_class = element.get("class");
    if (has("gpu") || pci_class.starts_with("0x0302") || pci_class.starts_with("0x0300") ||
        pci_class.starts_with("0x1200")) {
      return NodeKind::kGpu;
    }
    if (has("nic") || has("net") || pci_class.starts_with("0x0200") ||
        pci_class.starts_with("0x0207")) {
      return NodeKind::kNic;
    }
    if (pci_class.starts_with("0x0680")) return NodeKind::kNvSwitch;
    return NodeKind::kPciSwitch;
  }

  void read_pci(const XmlElement& element, std::int32_t parent, std::int32_t cpu) {
    Node node;
    node.kind = kind_of(element);
    node.bus_id = normal_bus_id(printable(element.get("busid")));
    node.pci_class = printable(element.get("class"));
    node.line = element.line;
    node.name = node.bus_id;
    node.numa_nodes = at(cpu).numa_nodes;
    node.cpus = at(cpu).cpus;
    const std::int32_t index = add(std::move(node));
    add_pcie_link(element, index, parent);
    for (const XmlElement& child : element.children) {
      if (child.name == "gpu") {
        read_gpu(child, index, cpu);
      } else if (child.name == "nic") {
        read_nic(child, index, cpu, index);
      } else if (child.name == "net") {
        read_net(child, index);
      } else if (child.name == "pcilink") {
        continue;  // a link between bridges that carries no figure
      } else {
        read_below(child, index, cpu);
      }
    }
  }

  void add_pcie_link(const XmlElement& element, std::int32_t node, std::int32_t parent) {
    Link link;
    link.a = node;
    link.b = parent;
    link.line = element.line;
    link.pcie_speed = printable(element.get("link_speed"));
    const std::int64_t lanes = element.integer("link_width").value_or(0);
    link.pcie_lanes = lanes > 0 && lanes <= 64 ? static_cast<std::int32_t>(lanes) : 0;
    const bool is_stated =
        element.find("link_speed") != nullptr || element.find("link_width") != nullptr;
    if (!is_stated) {
      link.source = "not in the file: NCCL reads it from the system";
      topology_.links.push_back(std::move(link));
      return;
    }
    const PcieRate rate = pcie_rate(catalog_, link.pcie_speed, link.pcie_lanes);
    link.bytes_per_s = rate.bytes_per_s;
    link.source = fmt::format("link_speed \"{}\" x{} as NCCL reads it{}", link.pcie_speed,
                              link.pcie_lanes, rate.is_speed_known ? "" : " (not in its table)");
    if (!rate.is_speed_known) {
      remark("link.speed_unknown", Weight::kWarning, element,
             fmt::format("{}: link_speed \"{}\" is not in NCCL's table; it counts as Gen3, {:.0f} "
                         "GB/s, without a word",
                         at(node).name, link.pcie_speed, rate.bytes_per_s / 1e9),
             "Write it as NCCL does, for instance \"32.0 GT/s PCIe\"", {at(node).name});
    }
    topology_.links.push_back(std::move(link));
  }

  void read_gpu(const XmlElement& element, std::int32_t node, std::int32_t cpu) {
    at(node).kind = NodeKind::kGpu;
    has_gpu_element_ = true;
    if (const auto dev = element.integer("dev"); dev && *dev >= 0 && *dev <= kMaxNumber) {
      at(node).index = static_cast<std::int32_t>(*dev);
    }
    at(node).gcn = printable(element.get("gcn"));
    const auto sm = element.integer("sm");
    if (at(node).gcn.empty() && sm && *sm > 0 && *sm < 1000) {
      at(node).sm = static_cast<std::int32_t>(*sm);
    }
    if (const auto gdr = element.integer("gdr")) at(node).has_gdr = *gdr != 0;
    for (const XmlElement& child : element.children) {
      if (child.name == "nvlink" || child.name == "xgmi") {
        FabricRow row;
        row.gpu = node;
        row.target = normal_bus_id(printable(child.get("target")));
        row.target_class = child.get("tclass");
        row.is_xgmi = child.name == "xgmi";
        row.line = child.line;
        const std::int64_t count = child.integer("count").value_or(1);
        row.count = count > 0 && count <= 1024 ? static_cast<std::int32_t>(count) : 0;
        fabric_rows_.push_back(std::move(row));
      } else if (child.name == "c2c") {
        add_c2c(child, node, cpu);
      } else {
        note_unknown(child);
      }
    }
  }

  void add_c2c(const XmlElement& element, std::int32_t node, std::int32_t cpu) {
    Link link;
    link.kind = LinkKind::kC2c;
    link.a = node;
    link.b = cpu;
    link.line = element.line;
    const std::int64_t count = element.integer("count").value_or(1);
    link.count = count > 0 && count <= 1024 ? static_cast<std::int32_t>(count) : 1;
    if (const auto rate = element.number("bw"); rate && *rate > 0.0) {
      link.bytes_per_s = *rate * 1e6 * link.count;
      link.source = fmt::format("{} links of {} MB/s in the file", link.count, *rate);
    }
    topology_.links.push_back(std::move(link));
  }

  // `owner` is the PCI device, or -1 when the NIC stands alone under `parent`.
  void read_nic(const XmlElement& element, std::int32_t parent, std::int32_t cpu,
                std::int32_t owner) {
    if (owner < 0) {
      Node node;
      node.kind = NodeKind::kNic;
      node.line = element.line;
      node.numa_nodes = at(cpu).numa_nodes;
      node.cpus = at(cpu).cpus;
      owner = add(std::move(node));
      Link link;
      link.a = owner;
      link.b = parent;
      link.line = element.line;
      link.source = "a NIC without a PCI device";
      topology_.links.push_back(std::move(link));
    }
    at(owner).kind = NodeKind::kNic;
    for (const XmlElement& child : element.children) {
      if (child.name == "net") {
        read_net(child, owner);
      } else {
        note_unknown(child);
      }
    }
  }

  void read_net(const XmlElement& element, std::int32_t nic) {
    Port port;
    port.name = printable(element.get("name"));
    const double mbits = element.number("speed").value_or(0.0);
    // NCCL takes a speed of 0 or less as 10 Gb/s.
    port.bytes_per_s = (mbits > 0.0 ? std::min(mbits, 1e9) : kNetDefaultMbits) * 1e6 / 8.0;
    if (element.find("speed") == nullptr) port.bytes_per_s.reset();
    if (const auto gdr = element.integer("gdr")) port.has_gdr = *gdr != 0;
    if (at(nic).device_name.empty()) at(nic).device_name = port.name;
    const auto dev = element.integer("dev");
    if (!at(nic).index && dev && *dev >= 0 && *dev <= kMaxNumber) {
      at(nic).index = static_cast<std::int32_t>(*dev);
    }
    at(nic).ports.push_back(std::move(port));
  }

  void add_fabric() {
    std::map<std::string, std::int32_t> by_bus;
    for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
      if (!topology_.nodes[i].bus_id.empty()) {
        by_bus.emplace(topology_.nodes[i].bus_id, static_cast<std::int32_t>(i));
      }
    }
    std::set<std::pair<std::int32_t, std::int32_t>> seen;
    for (const FabricRow& row : fabric_rows_) {
      auto target = by_bus.find(row.target);
      if (target == by_bus.end()) {
        Node node;
        node.kind = NodeKind::kNvSwitch;
        node.bus_id = row.target;
        node.line = row.line;
        node.name = row.target == kHiddenSwitch ? "NVSwitch (hidden)" : "NVSwitch " + row.target;
        target = by_bus.emplace(row.target, add(std::move(node))).first;
      }
      const bool is_gpu = at(target->second).kind == NodeKind::kGpu;
      // Each of two GPUs lists the other: the pair is one link.
      if (is_gpu && row.gpu != target->second && seen.contains({target->second, row.gpu})) continue;
      seen.insert({row.gpu, target->second});
      topology_.links.push_back(fabric_link(row, target->second));
    }
  }

  Link fabric_link(const FabricRow& row, std::int32_t target) {
    Link link;
    link.a = row.gpu;
    link.b = target;
    link.kind = row.is_xgmi ? LinkKind::kXgmi : LinkKind::kNvlink;
    link.count = row.count;
    link.line = row.line;
    const Node& gpu = at(row.gpu);
    const std::optional<double> rate =
        row.is_xgmi ? xgmi_rate(catalog_, gpu.gcn)
                    : (gpu.sm ? nvlink_rate(catalog_, *gpu.sm) : std::nullopt);
    if (rate) {
      link.bytes_per_s = *rate * row.count;
      link.source = row.is_xgmi ? fmt::format("{} links of {:.1f} GB/s, RCCL's rate of {}",
                                              row.count, *rate / 1e9, gpu.gcn)
                                : fmt::format("{} links of {:.1f} GB/s, NCCL's rate of sm {}",
                                              row.count, *rate / 1e9, *gpu.sm);
    } else {
      link.source = "the GPU's generation is not in the file";
    }
    return link;
  }

  void add_cpu_links() {
    const std::vector<std::int32_t> cpus = topology_.nodes_of(NodeKind::kCpu);
    if (cpus.size() < 2) return;
    const CpuLinkRate rate = cpu_link_rate(catalog_, at(cpus.front()));
    connect_cpus(topology_, rate.bytes_per_s, rate.source);
  }

  // Names as people use them: GPU0 by `dev` where the file has it, else by position.
  void number_devices() {
    number_kind(NodeKind::kGpu, "GPU");
    number_kind(NodeKind::kNic, "NIC");
    for (Node& node : topology_.nodes) {
      if (node.kind == NodeKind::kPciSwitch) node.name = "switch " + node.bus_id;
      if (node.kind == NodeKind::kNvSwitch && node.name == node.bus_id) {
        node.name = "NVSwitch " + node.bus_id;
      }
    }
  }

  void number_kind(NodeKind kind, const char* prefix) {
    const std::vector<std::int32_t> nodes = topology_.nodes_of(kind);
    std::set<std::int32_t> numbers;
    for (const std::int32_t node : nodes) {
      if (at(node).index) numbers.insert(*at(node).index);
    }
    const bool is_numbered = numbers.size() == nodes.size();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Node& node = at(nodes[i]);
      if (!is_numbered) node.index = static_cast<std::int32_t>(i);
      node.name = fmt::format("{}{}", prefix, *node.index);
    }
  }

  const std::string& where_;
  const LinkCatalog& catalog_;
  Topology topology_;
  std::vector<FabricRow> fabric_rows_;
  bool has_gpu_element_ = false;
};

void check_limits(const XmlElement& element, std::vector<Remark>& remarks) {
  const auto add = [&](const char* code, const std::string& message) {
    remarks.push_back({code,
                       Weight::kWarning,
                       fmt::format("line {}: {}", element.line, message),
                       "An XML library reads this, NCCL's parser does not",
                       {},
                       element.line});
  };
  if (element.attributes.size() > kNcclMaxAttributes) {
    add("nccl.attributes",
        fmt::format("<{}> has {} attributes; NCCL keeps {}", printable(element.name),
                    element.attributes.size(), kNcclMaxAttributes));
  }
  if (element.children.size() > kNcclMaxChildren) {
    add("nccl.children", fmt::format("<{}> has {} children; NCCL takes {}", printable(element.name),
                                     element.children.size(), kNcclMaxChildren));
  }
  for (const XmlAttribute& attribute : element.attributes) {
    if (attribute.value.size() > kNcclMaxString || attribute.name.size() > kNcclMaxString) {
      add("nccl.string", fmt::format("an attribute of <{}> is longer than {} bytes",
                                     printable(element.name), kNcclMaxString));
    }
  }
  for (const XmlElement& child : element.children) check_limits(child, remarks);
}

// A tab inside a tag separates attributes for everyone but NCCL.
std::int32_t line_of_tab_in_tag(std::string_view text) {
  std::int32_t line = 1;
  bool is_in_tag = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (!is_in_tag && text.substr(i).starts_with("<!--")) {
      const std::size_t end = std::min(text.find("-->", i), text.size() - 1);
      line += static_cast<std::int32_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                                                   text.begin() + static_cast<std::ptrdiff_t>(end),
                                                   '\n'));
      i = end;
    } else if (!is_in_tag) {
      is_in_tag = c == '<';
    } else if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '>') {
      is_in_tag = false;
    } else if (c == '\t') {
      return line;
    }
  }
  return 0;
}

void check_for_nccl(std::string_view text, const XmlDocument& document, Topology& topology) {
  if (document.has_declaration) {
    topology.remarks.push_back({"nccl.prolog",
                                Weight::kWarning,
                                "the file begins with <?xml ...?>, which NCCL does not accept",
                                "Remove that line",
                                {},
                                1});
  }
  if (const std::int32_t line = line_of_tab_in_tag(text); line > 0) {
    topology.remarks.push_back(
        {"nccl.tab",
         Weight::kWarning,
         fmt::format("line {}: a tab between attributes, which NCCL does not accept", line),
         "Use spaces",
         {},
         line});
  }
  check_limits(document.root, topology.remarks);
}

}  // namespace

Topology read_nccl_topology(std::string_view text, const std::string& where,
                            const LinkCatalog& catalog) {
  const XmlDocument document = read_xml(text, where);
  if (document.root.name != "system") {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a topology of NCCL or RCCL (<system>), found <{}>", where,
                            printable(document.root.name)));
  }
  Topology topology = NcclXmlReader(where, catalog).read(document);
  check_for_nccl(text, document, topology);
  return topology;
}

NcclGraphFile read_nccl_graph(std::string_view text, const std::string& where) {
  const XmlDocument document = read_xml(text, where);
  if (document.root.name != "graphs") {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected a graph file of NCCL (<graphs>), "
                                               "found <{}>",
                                               where, printable(document.root.name)));
  }
  NcclGraphFile file;
  file.version = printable(document.root.get("version"));
  for (const XmlElement& element : document.root.children) {
    if (element.name != "graph") continue;
    NcclGraph graph;
    graph.id = element.integer("id").value_or(0);
    graph.pattern = printable(element.get("pattern"));
    graph.num_channels = element.integer("nchannels").value_or(0);
    graph.intra_bytes_per_s = element.number("speedintra").value_or(0.0) * 1e9;
    graph.inter_bytes_per_s = element.number("speedinter").value_or(0.0) * 1e9;
    graph.type_intra = printable(element.get("typeintra"));
    graph.type_inter = printable(element.get("typeinter"));
    bool is_first = true;
    for (const XmlElement& channel : element.children) {
      for (const XmlElement& step : channel.children) {
        const std::string dev =
            printable(step.find("dev") != nullptr ? step.get("dev") : step.get("rank"));
        if (step.name == "gpu" && is_first) graph.gpus.push_back(dev);
        const bool is_new =
            std::find(graph.nets.begin(), graph.nets.end(), dev) == graph.nets.end();
        if (step.name == "net" && is_new) graph.nets.push_back(dev);
      }
      is_first = false;
    }
    file.graphs.push_back(std::move(graph));
  }
  if (file.graphs.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: no <graph> in the file", where));
  }
  if (file.version != "1") {
    file.remarks.push_back({"xml.version",
                            Weight::kWarning,
                            fmt::format("version \"{}\"; NCCL writes 1", file.version),
                            "",
                            {},
                            document.root.line});
  }
  return file;
}

}  // namespace moe::topology
