// Which GPU a machine has, and what follows from it for its links.

#include <algorithm>

#include <fmt/format.h>

#include "lib/topology/link_catalog.hpp"

namespace moe::topology {
namespace {

// A Grace CPU has 72 cores without hyperthreads, so CPU lists come in blocks of 72.
constexpr std::int64_t kGraceCores = 72;

bool has_grace(const Topology& topology) {
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  return !gpus.empty() && std::all_of(gpus.begin(), gpus.end(), [&](std::int32_t gpu) {
    const NumberSet& cpus = topology.nodes[static_cast<std::size_t>(gpu)].cpus;
    return cpus.ranges().size() == 1 && cpus.size() == kGraceCores &&
           cpus.first() % kGraceCores == 0;
  });
}

// GPUs that share one CPU list with the first.
std::int64_t num_beside_first(const Topology& topology) {
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  const NumberSet& cpus = topology.nodes[static_cast<std::size_t>(gpus.front())].cpus;
  return std::count_if(gpus.begin(), gpus.end(), [&](std::int32_t gpu) {
    return topology.nodes[static_cast<std::size_t>(gpu)].cpus == cpus;
  });
}

std::int32_t max_fabric_links(const Topology& topology) {
  std::int32_t most = 0;
  for (const std::int32_t gpu : topology.nodes_of(NodeKind::kGpu)) {
    most = std::max(most, num_fabric_links(topology, gpu));
  }
  return most;
}

// A stated compute capability and the number of links decide; a Grace host tells boards apart.
bool fits(const Topology& topology, const GpuType& gpu) {
  const bool is_xgmi = gpu.num_xgmi_peers > 0;
  const std::int32_t num_links = max_fabric_links(topology);
  const std::int32_t expected = is_xgmi ? gpu.num_xgmi_peers : gpu.num_nvlinks;
  if (num_links == 0 || num_links != expected) return false;
  for (const std::int32_t node : topology.nodes_of(NodeKind::kGpu)) {
    const Node& found = topology.nodes[static_cast<std::size_t>(node)];
    if (is_xgmi || !found.gcn.empty()) {
      if (found.gcn != gpu.gcn) return false;
    } else if (found.sm && *found.sm != gpu.sm) {
      return false;
    }
  }
  if (topology.format != Format::kTopoMatrix) return true;
  if (has_grace(topology) != gpu.is_grace) return false;
  // GH200 has one GPU a CPU, GB200 and GB300 two.
  const bool is_alone = num_beside_first(topology) == 1;
  return !gpu.is_grace ||
         is_alone == (gpu.domain_gpus == gpu.gpus_per_node || gpu.domain_gpus <= 4);
}

}  // namespace

void apply_gpu_type(Topology& topology, const LinkCatalog& catalog, const GpuType& gpu,
                    const std::string& why) {
  topology.gpu_type = gpu.id;
  topology.gpu_type_source = why;
  for (const std::int32_t node : topology.nodes_of(NodeKind::kGpu)) {
    Node& found = topology.nodes[static_cast<std::size_t>(node)];
    if (!found.sm && gpu.sm > 0) found.sm = gpu.sm;
    if (found.gcn.empty()) found.gcn = gpu.gcn;
  }
  const PcieRate pcie = pcie_rate(catalog, gpu.pcie_speed, gpu.pcie_lanes);
  // nvidia-smi topo -m states no rate at all: its switches are taken to be of the GPUs' generation.
  const auto has_rate_of_gpu = [&](std::int32_t node) {
    const NodeKind kind = topology.nodes[static_cast<std::size_t>(node)].kind;
    return kind == NodeKind::kGpu ||
           (kind == NodeKind::kPciSwitch && topology.format == Format::kTopoMatrix);
  };
  for (Link& link : topology.links) {
    if (link.bytes_per_s) continue;
    if (link.kind == LinkKind::kNvlink) {
      if (const auto rate = nvlink_rate(catalog, gpu.sm)) {
        link.bytes_per_s = *rate * link.count;
        link.source = fmt::format("{} links of {:.1f} GB/s, NCCL's rate of {} ({})", link.count,
                                  *rate / 1e9, gpu.name, why);
      }
    } else if (link.kind == LinkKind::kPcie && has_rate_of_gpu(link.a)) {
      link.bytes_per_s = pcie.bytes_per_s;
      link.source =
          fmt::format("PCIe of {}: {} x{} ({})", gpu.name, gpu.pcie_speed, gpu.pcie_lanes, why);
    }
  }
}

void guess_gpu_type(Topology& topology, const LinkCatalog& catalog) {
  if (topology.count(NodeKind::kGpu) == 0) return;
  std::vector<const GpuType*> candidates;
  for (const GpuType& gpu : catalog.gpus) {
    if (fits(topology, gpu)) candidates.push_back(&gpu);
  }
  std::string names;
  std::vector<double> rates;
  for (const GpuType* gpu : candidates) {
    names += (names.empty() ? "" : ", ") + gpu->id;
    rates.push_back(fabric_bytes_per_s(catalog, *gpu));
  }
  if (candidates.empty()) {
    topology.remarks.push_back({"gpu.type_unknown",
                                Weight::kInfo,
                                "the input does not say which GPU this is",
                                "Name it with --gpu to get the bandwidth of its links",
                                {},
                                0});
    return;
  }
  const std::size_t slowest =
      static_cast<std::size_t>(std::min_element(rates.begin(), rates.end()) - rates.begin());
  const bool is_sure =
      candidates.size() == 1 ||
      std::all_of(rates.begin(), rates.end(), [&](double rate) { return rate == rates.front(); });
  if (!is_sure) {
    topology.remarks.push_back({"gpu.type_ambiguous",
                                Weight::kInfo,
                                fmt::format("{} NVLinks a GPU fit {}; the slowest is assumed",
                                            max_fabric_links(topology), names),
                                "Name the GPU with --gpu",
                                {},
                                0});
  }
  const std::string why = is_sure ? "from the number of links" : "assumed, the slowest that fits";
  apply_gpu_type(topology, catalog, *candidates[slowest], why);
}

}  // namespace moe::topology
