#include "lib/topology/flows.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "lib/base/check.hpp"

namespace moe::topology {
namespace {

// Links whose share is this close to the smallest are full at the same moment.
constexpr double kTie = 1.0 + 1e-9;

}  // namespace

std::vector<double> max_min_rates(const std::vector<Flow>& flows,
                                  const std::vector<double>& capacities) {
  std::vector<double> rates(flows.size(), 0.0);
  std::vector<double> left = capacities;
  std::vector<std::int64_t> num_open(capacities.size(), 0);
  std::vector<bool> is_open(flows.size(), false);
  std::size_t num_left = 0;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    if (flows[i].links.empty() || flows[i].bytes <= 0.0) continue;
    is_open[i] = true;
    ++num_left;
    for (const std::int32_t link : flows[i].links) ++num_open[static_cast<std::size_t>(link)];
  }
  while (num_left > 0) {
    double share = std::numeric_limits<double>::infinity();
    for (std::size_t link = 0; link < left.size(); ++link) {
      if (num_open[link] > 0) {
        share = std::min(share, left[link] / static_cast<double>(num_open[link]));
      }
    }
    std::vector<bool> is_full(left.size(), false);
    for (std::size_t link = 0; link < left.size(); ++link) {
      is_full[link] =
          num_open[link] > 0 && left[link] / static_cast<double>(num_open[link]) <= share * kTie;
    }
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (!is_open[i]) continue;
      const bool is_bound =
          std::any_of(flows[i].links.begin(), flows[i].links.end(),
                      [&](std::int32_t link) { return is_full[static_cast<std::size_t>(link)]; });
      if (!is_bound) continue;
      rates[i] = share;
      is_open[i] = false;
      --num_left;
      for (const std::int32_t link : flows[i].links) {
        left[static_cast<std::size_t>(link)] =
            std::max(0.0, left[static_cast<std::size_t>(link)] - share);
        --num_open[static_cast<std::size_t>(link)];
      }
    }
  }
  return rates;
}

FlowResult simulate_flows(const std::vector<Flow>& flows, const std::vector<double>& capacities) {
  FlowResult result;
  result.finish_s.assign(flows.size(), 0.0);
  std::vector<Flow> open = flows;
  std::vector<double> load(capacities.size(), 0.0);
  for (const Flow& flow : flows) {
    for (const std::int32_t link : flow.links) load[static_cast<std::size_t>(link)] += flow.bytes;
  }
  double most = 0.0;
  for (std::size_t link = 0; link < load.size(); ++link) {
    MOE_CHECK(capacities[link] > 0.0);
    if (load[link] / capacities[link] > most) {
      most = load[link] / capacities[link];
      result.busiest = static_cast<std::int32_t>(link);
    }
  }
  for (;;) {
    const std::vector<double> rates = max_min_rates(open, capacities);
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (rates[i] > 0.0) step = std::min(step, open[i].bytes / rates[i]);
    }
    if (step == std::numeric_limits<double>::infinity()) return result;
    result.time_s += step;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (rates[i] <= 0.0) continue;
      open[i].bytes -= rates[i] * step;
      // What rounding leaves of a flow that ended.
      if (open[i].bytes <= flows[i].bytes * 1e-12) {
        open[i].bytes = 0.0;
        result.finish_s[i] = result.time_s;
      }
    }
  }
}

MachineCeiling machine_ceiling(const Topology& topology, const RouteOptions& options) {
  MachineCeiling ceiling;
  const RouteTable routes(topology, options);
  const std::size_t n = routes.num_gpus();
  ceiling.num_ranks = static_cast<std::int64_t>(n);
  if (n < 2) {
    ceiling.reason = fmt::format("an all-to-all takes two GPUs, the input has {}", n);
    return ceiling;
  }
  if (!topology.is_fabric_known) {
    ceiling.reason =
        "the input leaves NVLinks out, which the library finds itself; dump the whole topology "
        "with "
        "NCCL_TOPO_DUMP_FILE";
    return ceiling;
  }
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  const auto name = [&](std::size_t i) {
    return topology.nodes[static_cast<std::size_t>(gpus[i])].name;
  };
  std::map<std::pair<std::int32_t, bool>, std::int32_t> index_of;
  std::vector<double> capacities;
  std::vector<Hop> hops;
  std::vector<Flow> flows;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      const std::vector<Hop>& route = routes.between(i, j);
      if (route.empty()) {
        ceiling.reason = fmt::format("the input shows no way from {} to {}", name(i), name(j));
        return ceiling;
      }
      Flow flow;
      flow.bytes = 1.0;
      for (const Hop& hop : route) {
        const std::optional<double> capacity = routes.capacity(hop);
        if (!capacity || *capacity <= 0.0) {
          ceiling.reason = fmt::format("the bandwidth of {} is unknown", routes.describe(hop));
          return ceiling;
        }
        const auto [at, is_new] = index_of.try_emplace(
            std::pair(hop.link, hop.is_reverse), static_cast<std::int32_t>(capacities.size()));
        if (is_new) {
          capacities.push_back(*capacity);
          hops.push_back(hop);
        }
        flow.links.push_back(at->second);
      }
      ceiling.uses_relay =
          ceiling.uses_relay ||
          (route.size() == 2 && topology.relation_of(gpus[i], gpus[j]).path != PathKind::kNvlink &&
           topology.links[static_cast<std::size_t>(route[0].link)].kind != LinkKind::kPcie);
      flows.push_back(std::move(flow));
    }
  }
  const FlowResult result = simulate_flows(flows, capacities);
  ceiling.busbw_bytes_per_s = static_cast<double>(n - 1) / result.time_s;
  if (result.busiest >= 0) {
    ceiling.bottleneck = routes.describe(hops[static_cast<std::size_t>(result.busiest)]);
  }
  return ceiling;
}

}  // namespace moe::topology
