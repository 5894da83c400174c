#pragma once

// Rates of links by kind and generation (scenarios/topologies/link_catalog.json): data, with the
// source of each group. All rates are one way.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/topology/graph.hpp"

namespace moe::topology {

struct PcieSpeed {
  std::string text;    // "32.0 GT/s PCIe"
  double units = 0.0;  // of pcie_unit_bits_per_s, for one lane
};

struct FabricRate {
  std::int32_t sm = 0;  // NVLink
  std::string gcn;      // xGMI: beginning of the architecture's name
  double bytes_per_s = 0.0;
};

struct CpuRate {
  std::string vendor;
  std::string arch;
  std::int32_t min_model = 0;
  std::string name;
  double bytes_per_s = 0.0;
};

struct GpuType {
  std::string id;  // h100_sxm
  std::string name;
  std::int32_t sm = 0;
  std::string gcn;
  std::int32_t num_nvlinks = 0;
  std::int32_t num_xgmi_peers = 0;
  double line_bytes_per_s = 0.0;  // of the vendor's data sheet, one way
  std::string pcie_speed;
  std::int32_t pcie_lanes = 16;
  std::int32_t domain_gpus = 1;  // GPUs that NVLink or xGMI joins
  std::int32_t gpus_per_node = 8;
  bool is_grace = false;                  // on a board with a Grace CPU
  bool goes_through_host_memory = false;  // no peer-to-peer access over PCIe
  std::vector<std::string> aliases;
};

// Assumptions for a network that nobody measured.
struct NetworkDefaults {
  std::string source;
  double nic_rate_share = 0.0;    // of the nominal rate that a NIC achieves
  double ceiling_share = 0.0;     // of the ceiling that an all-to-all achieves
  double floor_s = 0.0;           // smallest time of an all-to-all over two nodes
  double message_s = 0.0;         // more for each remote peer beyond the first
  double cross_rail_share = 0.0;  // of the rate when traffic leaves its rail
};

struct LinkCatalog {
  double pcie_unit_bits_per_s = 0.0;
  double pcie_fallback_units = 0.0;
  std::int32_t pcie_fallback_lanes = 16;
  std::vector<PcieSpeed> pcie;
  std::int32_t max_nvlinks_per_gpu = 0;
  std::vector<FabricRate> nvlink;  // ascending sm
  std::vector<FabricRate> xgmi;
  double cpu_unknown_bytes_per_s = 0.0;
  std::vector<CpuRate> cpu_links;
  std::vector<GpuType> gpus;
  NetworkDefaults network;

  // By id or alias, in any case; nullptr when unknown.
  [[nodiscard]] const GpuType* find_gpu(std::string_view id) const;
  [[nodiscard]] std::string gpu_ids() const;  // "a100_sxm, h100_sxm, ..."
};

// Throws Error(kInput) that names the place.
[[nodiscard]] LinkCatalog read_link_catalog(const std::filesystem::path& path);

struct PcieRate {
  double bytes_per_s = 0.0;
  bool is_speed_known = false;  // the text begins with an entry of the table
  bool is_width_known = false;
};

// What NCCL makes of a link_speed and a link_width: a speed it does not know counts as Gen3, a
// width of 0 as 16 lanes.
[[nodiscard]] PcieRate pcie_rate(const LinkCatalog& catalog, std::string_view speed,
                                 std::int32_t lanes);

// Of one NVLink of a compute capability; nullopt below the first entry.
[[nodiscard]] std::optional<double> nvlink_rate(const LinkCatalog& catalog, std::int32_t sm);

[[nodiscard]] std::optional<double> xgmi_rate(const LinkCatalog& catalog, std::string_view gcn);

// The rate between two CPUs like this node, and what it rests on.
struct CpuLinkRate {
  double bytes_per_s = 0.0;
  std::string source;
};
[[nodiscard]] CpuLinkRate cpu_link_rate(const LinkCatalog& catalog, const Node& cpu);

// One way, out of one GPU into its NVLink or xGMI fabric by the library's rates; 0 without one.
[[nodiscard]] double fabric_bytes_per_s(const LinkCatalog& catalog, const GpuType& gpu);

// Fills in every bandwidth that the GPU's type decides and the input does not state.
void apply_gpu_type(Topology& topology, const LinkCatalog& catalog, const GpuType& gpu,
                    const std::string& why);

// The type that the input implies, applied; several candidates or none leave the type empty and a
// remark that says so.
void guess_gpu_type(Topology& topology, const LinkCatalog& catalog);

}  // namespace moe::topology
