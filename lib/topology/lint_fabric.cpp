// Rules about NVLink, xGMI and the domain they form.

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"
#include "lib/topology/lint_rules.hpp"

namespace moe::topology {
namespace {

void find_self_links(const Topology& topology, std::vector<Remark>& remarks) {
  for (const Link& link : topology.links) {
    if (link.kind != LinkKind::kNvlink && link.kind != LinkKind::kXgmi) continue;
    if (link.a != link.b) continue;
    const std::string& name = topology.nodes[as_index(link.a)].name;
    remarks.push_back(
        {"nvlink.self",
         Weight::kError,
         fmt::format("line {}: the target of {} NVLinks of {} is {} itself, so it has none",
                     link.line, link.count, name, name),
         "Put the peer's bus id, or that of the switch, into target",
         {name},
         link.line});
  }
}

// More than two GPUs joined: one that is left out slows everyone, not only itself.
void find_left_out(const Topology& topology, std::vector<Remark>& remarks) {
  std::vector<std::int32_t> without;
  std::int32_t most = 0;
  std::int64_t num_with = 0;
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  for (const std::int32_t gpu : gpus) {
    const std::int32_t links = num_fabric_links(topology, gpu);
    most = std::max(most, links);
    if (links == 0) {
      without.push_back(gpu);
    } else {
      ++num_with;
    }
  }
  if (most == 0) return;
  if (!without.empty()) {
    std::vector<std::string> names;
    for (const std::int32_t gpu : without) names.push_back(topology.nodes[as_index(gpu)].name);
    const bool is_board = num_with > 2;
    remarks.push_back(
        {"nvlink.missing", is_board ? Weight::kError : Weight::kWarning,
         fmt::format("{} has no NVLink while {} of {} GPUs have {}; every all-to-all waits for its "
                     "PCIe path",
                     join_names(topology, without), num_with, gpus.size(), most),
         is_board
             ? "Look at nvidia-smi nvlink -s, the fabric manager and the driver log of that GPU"
             : "Keep groups that talk much on the joined GPUs",
         names, 0});
  }
  for (const std::int32_t gpu : gpus) {
    const std::int32_t links = num_fabric_links(topology, gpu);
    if (links == 0 || links == most) continue;
    const std::string& name = topology.nodes[as_index(gpu)].name;
    remarks.push_back({"nvlink.fewer",
                       Weight::kError,
                       fmt::format("{} has {} NVLinks, its peers have {}", name, links, most),
                       "Look at nvidia-smi nvlink -s: a link is down",
                       {name},
                       0});
  }
}

void note_domain(const Topology& topology, std::vector<Remark>& remarks) {
  const bool is_switched = topology.count(NodeKind::kNvSwitch) > 0;
  if (topology.is_domain_known || !is_switched || topology.count(NodeKind::kGpu) >= 8) return;
  remarks.push_back(
      {"domain.unknown",
       Weight::kInfo,
       fmt::format(
           "{} GPUs on an NVSwitch fabric: nvidia-smi lists those of this tray or container "
           "only, the NVLink domain may be larger",
           topology.count(NodeKind::kGpu)),
       "State the size of the domain with --domain when modelling",
       {},
       0});
}

}  // namespace

void lint_fabric(const Topology& topology, std::vector<Remark>& remarks) {
  find_self_links(topology, remarks);
  find_left_out(topology, remarks);
  note_domain(topology, remarks);
}

}  // namespace moe::topology
