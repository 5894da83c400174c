#pragma once

// Flow-level time of a communication pattern: every pair is a flow over directed links, flows share
// each link fairly in the max-min sense, and rates are set anew whenever a flow ends. Exact for
// uniform patterns on fat links; it explains boxes of PCIe and meshes of NVLink.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/topology/graph.hpp"
#include "lib/topology/routes.hpp"

namespace moe::topology {

struct Flow {
  std::vector<std::int32_t> links;  // of the capacity list
  double bytes = 0.0;
};

// Rates of all flows under max-min fairness by progressive filling, in bytes per second. A flow
// without links gets no rate (0). Capacities are positive.
[[nodiscard]] std::vector<double> max_min_rates(const std::vector<Flow>& flows,
                                                const std::vector<double>& capacities);

struct FlowResult {
  double time_s = 0.0;           // until the last flow ends
  std::int32_t busiest = -1;     // link that carries the most time
  std::vector<double> finish_s;  // by flow
};
[[nodiscard]] FlowResult simulate_flows(const std::vector<Flow>& flows,
                                        const std::vector<double>& capacities);

// A uniform all-to-all inside one machine.
struct MachineCeiling {
  std::optional<double> busbw_bytes_per_s;  // (n-1)/n x bytes of one rank / time
  std::string bottleneck;                   // the link that decides
  std::string reason;                       // when there is no ceiling: why
  std::int64_t num_ranks = 0;
  bool uses_relay = false;
};
[[nodiscard]] MachineCeiling machine_ceiling(const Topology& topology,
                                             const RouteOptions& options = {});

}  // namespace moe::topology
