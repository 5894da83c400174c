// Rules about which NIC serves which GPU.

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"
#include "lib/topology/lint_rules.hpp"
#include "lib/topology/routes.hpp"

namespace moe::topology {
namespace {

void find_ports_without_gdr(const Topology& topology, std::vector<Remark>& remarks) {
  std::vector<std::string> names;
  for (const Node& node : topology.nodes) {
    for (const Port& port : node.ports) {
      if (port.has_gdr && !*port.has_gdr) names.push_back(port.name);
    }
  }
  if (names.empty() || topology.count(NodeKind::kGpu) == 0) return;
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  remarks.push_back({"nic.no_gdr", Weight::kWarning,
                     fmt::format("no GPUDirect RDMA on {}: traffic between nodes is copied through "
                                 "host memory and halves or worse",
                                 text),
                     "Load nvidia-peermem or use DMA-BUF; in a VM, check that the NIC is a real "
                     "virtual function",
                     names, 0});
}

// A GPU whose nearest NICs all serve another GPU, while a NIC at the same distance from no GPU but
// near this one stands by.
void find_shared(const Topology& topology, const std::vector<NearestNics>& nearest,
                 std::vector<Remark>& remarks) {
  std::map<std::int32_t, std::vector<std::int32_t>> alone_on;  // NIC -> GPUs that have only it
  std::set<std::int32_t> used;
  for (const NearestNics& entry : nearest) {
    used.insert(entry.nics.begin(), entry.nics.end());
    if (entry.nics.size() == 1) alone_on[entry.nics.front()].push_back(entry.gpu);
  }
  std::vector<std::int32_t> idle;
  for (const std::int32_t nic : topology.nodes_of(NodeKind::kNic)) {
    const bool is_near = std::any_of(nearest.begin(), nearest.end(), [&](const NearestNics& entry) {
      return topology.relation_of(entry.gpu, nic).path < PathKind::kSys;
    });
    if (is_near && !used.contains(nic)) idle.push_back(nic);
  }
  if (idle.empty()) return;
  for (const auto& [nic, gpus] : alone_on) {
    if (gpus.size() < 2) continue;
    remarks.push_back(
        {"nic.shared_while_idle",
         Weight::kWarning,
         fmt::format("{} share {} as their nearest NIC while {} is nearest to none",
                     join_names(topology, gpus), topology.nodes[as_index(nic)].name,
                     join_names(topology, idle)),
         "Move a card, or spread the GPUs over the NICs with NCCL_IB_HCA or NCCL_NETDEVS_POLICY",
         {topology.nodes[as_index(nic)].name},
         0});
  }
}

void find_reversed(const Topology& topology, const std::vector<NearestNics>& nearest,
                   std::vector<Remark>& remarks) {
  std::vector<std::pair<std::int32_t, std::int32_t>> order;  // GPU number, NIC number
  std::set<std::int32_t> nics;
  for (const NearestNics& entry : nearest) {
    if (entry.nics.size() != 1 || !nics.insert(entry.nics.front()).second) return;
    order.emplace_back(topology.nodes[as_index(entry.gpu)].index.value_or(0),
                       topology.nodes[as_index(entry.nics.front())].index.value_or(0));
  }
  if (order.size() < 3) return;
  std::sort(order.begin(), order.end());
  const bool is_reversed = std::is_sorted(
      order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (!is_reversed) return;
  remarks.push_back({"nic.reversed",
                     Weight::kWarning,
                     fmt::format("the nearest NIC of GPU{} is NIC{}, and so on backwards: NICs are "
                                 "numbered in the reverse order of the GPUs",
                                 order.front().first, order.front().second),
                     "Software that pairs GPU i with NIC i crosses the machine; pair by path",
                     {},
                     0});
}

// One NUMA node, NODE and PHB everywhere: a VM that shows no structure.
void find_flat(const Topology& topology, std::vector<Remark>& remarks) {
  constexpr std::size_t kManyDevices = 4;
  if (topology.format != Format::kTopoMatrix || topology.devices.size() < kManyDevices) return;
  std::set<PathKind> kinds;
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    for (std::size_t j = i + 1; j < topology.devices.size(); ++j) {
      const PathKind path = topology.relation(i, j).path;
      if (path != PathKind::kNvlink && path != PathKind::kUnknown) kinds.insert(path);
    }
  }
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  const bool has_no_numa = std::all_of(gpus.begin(), gpus.end(), [&](std::int32_t gpu) {
    return topology.nodes[as_index(gpu)].numa_nodes.size() != 1;
  });
  const bool is_flat =
      kinds.size() == 1 && (*kinds.begin() == PathKind::kPhb || *kinds.begin() == PathKind::kSys);
  if (!is_flat || !has_no_numa || gpus.size() < 2) return;
  remarks.push_back(
      {"topology.flat",
       Weight::kWarning,
       fmt::format(
           "every PCIe path is {} and no GPU has one NUMA node: a virtual machine that hides "
           "the real structure, not a better machine",
           path_kind_name(*kinds.begin())),
       "Give NCCL the provider's topology file (NCCL_TOPO_FILE): without it one report fell from "
       "475 to 27 GB/s",
       {},
       0});
}

}  // namespace

void lint_nics(const Topology& topology, std::vector<Remark>& remarks) {
  const std::vector<NearestNics> nearest = nearest_nics(topology);
  find_ports_without_gdr(topology, remarks);
  find_shared(topology, nearest, remarks);
  find_reversed(topology, nearest, remarks);
  find_flat(topology, remarks);
}

}  // namespace moe::topology
