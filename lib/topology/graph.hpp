#pragma once

// One graph for every kind of topology input: GPUs, NICs, CPUs and switches, the links between them
// with their one-way bandwidth and where that figure comes from. The readers fill it; lint, diff,
// ceilings and documents read it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/topology/cpu_set.hpp"

namespace moe::topology {

enum class Format : std::uint8_t {
  kTopoMatrix,    // text of nvidia-smi topo -m
  kNcclTopology,  // NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE
  kRcclTopology,  // the same of RCCL
  kHwloc,         // hwloc XML, or this host through hwloc
};
[[nodiscard]] std::string_view format_name(Format format);

enum class NodeKind : std::uint8_t { kCpu, kGpu, kNic, kPciSwitch, kNvSwitch };
[[nodiscard]] std::string_view node_kind_name(NodeKind kind);

enum class LinkKind : std::uint8_t { kPcie, kNvlink, kXgmi, kC2c, kCpu };
[[nodiscard]] std::string_view link_kind_name(LinkKind kind);
// A link that GPUs have among themselves.
[[nodiscard]] constexpr bool is_fabric(LinkKind kind) {
  return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi;
}

// How two devices reach each other, in nvidia-smi's words, best first. NCCL has no NODE: it calls
// that PHB.
enum class PathKind : std::uint8_t { kSelf, kNvlink, kPix, kPxb, kPhb, kNode, kSys, kUnknown };
[[nodiscard]] std::string_view path_kind_name(PathKind kind);

// A network port.
struct Port {
  std::string name;  // mlx5_0
  std::optional<double> bytes_per_s;
  std::optional<bool> has_gdr;
};

struct Node {
  NodeKind kind = NodeKind::kCpu;
  std::string name;                   // GPU0, NIC3, NUMA 1, switch 0000:08:00.0
  std::string device_name;            // what the operating system calls it; empty: not in the input
  std::string bus_id;                 // lower case; empty: not in the input
  std::optional<std::int32_t> index;  // number among its kind, as the input has it
  NumberSet numa_nodes;               // empty: unknown
  std::optional<std::int32_t> gpu_numa;  // NUMA node that is the GPU's own memory
  NumberSet cpus;                        // empty: unknown
  std::optional<std::int32_t> sm;        // compute capability, 90
  std::string gcn;                       // gfx942
  std::optional<bool> has_gdr;
  std::string arch;  // CPUs
  std::string vendor;
  std::string family;
  std::string model;
  std::string pci_class;  // 0x030200
  std::vector<Port> ports;
  std::int32_t line = 0;  // in the input; 0: not from a line
};

// Undirected, with the same bandwidth each way.
struct Link {
  std::int32_t a = 0;  // PCIe: the device
  std::int32_t b = 0;  // PCIe: its parent
  LinkKind kind = LinkKind::kPcie;
  std::int32_t count = 1;             // NVLinks and the like
  std::optional<double> bytes_per_s;  // of all of them, one way; nullopt: unknown
  std::string source;                 // of the bandwidth, or why it is unknown
  std::string pcie_speed;             // as the input spells it
  std::int32_t pcie_lanes = 0;        // 0: not in the input
  std::int32_t line = 0;
};

enum class Weight : std::uint8_t { kInfo, kWarning, kError };

// What a reader or a rule of the lint has to say.
struct Remark {
  std::string code;  // "link.speed_unknown", stable
  Weight weight = Weight::kInfo;
  std::string message;
  std::string advice;
  std::vector<std::string> subjects;  // names of the nodes it is about
  std::int32_t line = 0;
};

// Relation of two devices as the input states it or as it follows from the graph.
struct Relation {
  PathKind path = PathKind::kUnknown;
  std::int32_t num_nvlinks = 0;
};

struct Topology {
  Format format = Format::kTopoMatrix;
  std::string source;  // path, or "this host"
  std::vector<Node> nodes;
  std::vector<Link> links;
  // GPUs then NICs, by position in the input; the relation of devices[i] and devices[j] stands at
  // i * devices.size() + j.
  std::vector<std::int32_t> devices;
  std::vector<Relation> relations;
  std::vector<Remark> remarks;  // of the reader
  // Facts that only some formats have.
  std::optional<std::string> version;  // of the XML
  std::int64_t num_elements = 0;       // of the XML
  bool is_domain_known = false;        // all GPUs of the NVLink domain are in the input
  bool is_fabric_known = true;         // NVLinks would be in the input if there were any
  std::string gpu_type;                // id in the link catalog; empty: unknown
  std::string gpu_type_source;         // why this type

  [[nodiscard]] std::vector<std::int32_t> nodes_of(NodeKind kind) const;
  [[nodiscard]] std::int64_t count(NodeKind kind) const;
  // By position among `devices`.
  [[nodiscard]] const Relation& relation(std::size_t i, std::size_t j) const;
  // By node; unknown when one of them is no device.
  [[nodiscard]] Relation relation_of(std::int32_t node_a, std::int32_t node_b) const;
};

// NVLinks (or xGMI links) of a node, all peers together, self links left out.
[[nodiscard]] std::int32_t num_fabric_links(const Topology& topology, std::int32_t node);

// Adds a CPU link between every two CPUs. `bytes_per_s` and its source hold for all of them.
void connect_cpus(Topology& topology, double bytes_per_s, const std::string& source);

// Fills devices and relations from the PCIe tree and the fabric links.
void derive_relations(Topology& topology);

// "0000:0F:00.0" -> "0000:0f:00.0".
[[nodiscard]] std::string normal_bus_id(std::string_view text);

// "GPU0, GPU3" of the nodes.
[[nodiscard]] std::string join_names(const Topology& topology,
                                     const std::vector<std::int32_t>& nodes);

}  // namespace moe::topology
