#include "lib/topology/routes.hpp"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"

namespace moe::topology {
RouteTable::RouteTable(const Topology& topology, const RouteOptions& options)
    : topology_(topology), links_of_(topology.nodes.size()) {
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    const Link& link = topology.links[i];
    links_of_[as_index(link.a)].push_back(static_cast<std::int32_t>(i));
    if (link.a != link.b) links_of_[as_index(link.b)].push_back(static_cast<std::int32_t>(i));
  }
  find_fabric();
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  num_gpus_ = gpus.size();
  routes_.resize(num_gpus_ * num_gpus_);
  for (std::size_t i = 0; i < num_gpus_; ++i) {
    for (std::size_t j = 0; j < num_gpus_; ++j) {
      if (i != j) routes_[i * num_gpus_ + j] = route(gpus[i], gpus[j], options);
    }
  }
}

void RouteTable::find_fabric() {
  to_switch_.assign(topology_.nodes.size(), -1);
  switch_capacity_.assign(topology_.nodes.size(), std::nullopt);
  for (std::size_t node = 0; node < topology_.nodes.size(); ++node) {
    if (topology_.nodes[node].kind != NodeKind::kGpu) continue;
    bool is_known = true;
    double total = 0.0;
    for (const std::int32_t index : links_of_[node]) {
      const Link& link = topology_.links[as_index(index)];
      const std::int32_t other = as_index(link.a) == node ? link.b : link.a;
      const bool is_to_switch =
          is_fabric(link.kind) && topology_.nodes[as_index(other)].kind == NodeKind::kNvSwitch;
      if (!is_to_switch) continue;
      if (to_switch_[node] < 0) to_switch_[node] = index;
      is_known = is_known && link.bytes_per_s.has_value();
      total += link.bytes_per_s.value_or(0.0);
    }
    if (to_switch_[node] >= 0 && is_known) switch_capacity_[node] = total;
  }
}

std::vector<Hop> RouteTable::fabric_route(std::int32_t from, std::int32_t to) const {
  for (const std::int32_t index : links_of_[as_index(from)]) {
    const Link& link = topology_.links[as_index(index)];
    if (!is_fabric(link.kind) || link.a == link.b) continue;
    if (link.a == to || link.b == to) return {{index, link.b == from}};
  }
  const std::int32_t up = to_switch_[as_index(from)];
  const std::int32_t down = to_switch_[as_index(to)];
  if (up < 0 || down < 0) return {};
  return {{up, topology_.links[as_index(up)].b == from},
          {down, topology_.links[as_index(down)].a == to}};
}

// Fewest hops over PCIe, C2C and CPU links.
std::vector<Hop> RouteTable::tree_route(std::int32_t from, std::int32_t to) const {
  std::vector<Hop> arrived_by(topology_.nodes.size(), {-1, false});
  std::vector<bool> is_seen(topology_.nodes.size(), false);
  std::deque<std::int32_t> queue = {from};
  is_seen[as_index(from)] = true;
  while (!queue.empty() && !is_seen[as_index(to)]) {
    const std::int32_t node = queue.front();
    queue.pop_front();
    // Traffic does not turn around inside another GPU or a NIC.
    const NodeKind kind = topology_.nodes[as_index(node)].kind;
    if (node != from && (kind == NodeKind::kGpu || kind == NodeKind::kNic)) continue;
    for (const std::int32_t index : links_of_[as_index(node)]) {
      const Link& link = topology_.links[as_index(index)];
      if (is_fabric(link.kind)) continue;
      const std::int32_t other = link.a == node ? link.b : link.a;
      if (is_seen[as_index(other)]) continue;
      is_seen[as_index(other)] = true;
      arrived_by[as_index(other)] = {index, link.b == node};
      queue.push_back(other);
    }
  }
  std::vector<Hop> hops;
  for (std::int32_t node = to; is_seen[as_index(to)] && node != from;) {
    const Hop hop = arrived_by[as_index(node)];
    hops.push_back(hop);
    const Link& link = topology_.links[as_index(hop.link)];
    node = hop.is_reverse ? link.b : link.a;
  }
  std::reverse(hops.begin(), hops.end());
  return hops;
}

std::vector<Hop> RouteTable::route(std::int32_t from, std::int32_t to,
                                   const RouteOptions& options) const {
  std::vector<Hop> hops = fabric_route(from, to);
  if (!hops.empty()) return hops;
  if (options.allow_relay) {
    for (const std::int32_t relay : topology_.nodes_of(NodeKind::kGpu)) {
      if (relay == from || relay == to) continue;
      const std::vector<Hop> first = fabric_route(from, relay);
      const std::vector<Hop> second = first.empty() ? first : fabric_route(relay, to);
      if (second.empty()) continue;
      hops = first;
      hops.insert(hops.end(), second.begin(), second.end());
      return hops;
    }
  }
  return tree_route(from, to);
}

std::optional<double> RouteTable::capacity(const Hop& hop) const {
  const Link& link = topology_.links[as_index(hop.link)];
  for (const std::int32_t end : {link.a, link.b}) {
    if (to_switch_[as_index(end)] == hop.link) return switch_capacity_[as_index(end)];
  }
  return link.bytes_per_s;
}

std::string RouteTable::describe(const Hop& hop) const {
  const Link& link = topology_.links[as_index(hop.link)];
  const std::int32_t from = hop.is_reverse ? link.b : link.a;
  const std::int32_t to = hop.is_reverse ? link.a : link.b;
  return fmt::format("{} -> {} ({})", topology_.nodes[as_index(from)].name,
                     topology_.nodes[as_index(to)].name, link_kind_name(link.kind));
}

std::vector<NearestNics> nearest_nics(const Topology& topology) {
  std::vector<NearestNics> found;
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    const std::int32_t gpu = topology.devices[i];
    if (topology.nodes[as_index(gpu)].kind != NodeKind::kGpu) continue;
    NearestNics nearest;
    nearest.gpu = gpu;
    for (std::size_t j = 0; j < topology.devices.size(); ++j) {
      const std::int32_t nic = topology.devices[j];
      if (topology.nodes[as_index(nic)].kind != NodeKind::kNic) continue;
      const PathKind path = topology.relation(i, j).path;
      if (path >= PathKind::kSys) continue;
      if (path < nearest.path) {
        nearest.path = path;
        nearest.nics.clear();
      }
      if (path == nearest.path) nearest.nics.push_back(nic);
    }
    found.push_back(std::move(nearest));
  }
  return found;
}

std::optional<double> nic_rate(const Topology& topology, std::int32_t nic) {
  double total = 0.0;
  for (const Port& port : topology.nodes[as_index(nic)].ports) {
    if (!port.bytes_per_s) return std::nullopt;
    total += *port.bytes_per_s;
  }
  if (total <= 0.0) return std::nullopt;
  for (const Link& link : topology.links) {
    if (link.kind == LinkKind::kPcie && link.a == nic && link.bytes_per_s) {
      total = std::min(total, *link.bytes_per_s);
    }
  }
  return total;
}

NicShare nic_share(const Topology& topology) {
  NicShare share;
  std::vector<std::int32_t> nics;
  std::int64_t num_gpus = 0;
  for (const NearestNics& nearest : nearest_nics(topology)) {
    ++num_gpus;
    for (const std::int32_t nic : nearest.nics) {
      if (std::find(nics.begin(), nics.end(), nic) == nics.end()) nics.push_back(nic);
    }
  }
  if (nics.empty()) nics = topology.nodes_of(NodeKind::kNic);
  share.num_nics = static_cast<std::int64_t>(nics.size());
  if (nics.empty() || num_gpus == 0) return share;
  double total = 0.0;
  for (const std::int32_t nic : nics) {
    const std::optional<double> rate = nic_rate(topology, nic);
    if (!rate) {
      share.source =
          fmt::format("the rate of {} is not in the input", topology.nodes[as_index(nic)].name);
      return share;
    }
    total += *rate;
  }
  share.bytes_per_s_per_gpu = total / static_cast<double>(num_gpus);
  share.source =
      fmt::format("{} NICs for {} GPUs, {:.1f} GB/s together", nics.size(), num_gpus, total / 1e9);
  return share;
}

}  // namespace moe::topology
