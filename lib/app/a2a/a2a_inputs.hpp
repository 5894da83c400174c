#pragma once

// What the commands of moe-a2a read: catalog, constants, topologies, and the cluster that options
// describe.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/report/report.hpp"
#include "lib/topology/a2a_model.hpp"
#include "lib/topology/graph.hpp"
#include "lib/topology/link_catalog.hpp"
#include "lib/topology/time_laws.hpp"

namespace moe::app {

[[nodiscard]] topology::LinkCatalog load_catalog(const std::string& scenarios);
[[nodiscard]] topology::MeasuredLaws load_laws(const std::string& scenarios);

// A file, a name in scenarios/topologies, or "host" for this machine.
[[nodiscard]] topology::Topology load_topology(const std::string& name,
                                               const std::string& scenarios, const std::string& gpu,
                                               const topology::LinkCatalog& catalog);

// "fnv1a64:..." of the file behind a name; null for this machine.
[[nodiscard]] json::Json topology_hash(const std::string& name, const std::string& scenarios);

// The options that say what cluster is modelled.
struct ClusterArgs {
  std::string gpu;                 // empty: of the topology, else h100_sxm
  std::string topology;            // empty: the GPU's type alone
  std::int64_t domain = 0;         // 0: of the GPU's type or the topology
  std::int64_t nics = 0;           // of a node; 0: those of the topology, else one a GPU
  std::int64_t gpus_per_node = 0;  // 0: of the GPU's type
  double nic_gbits = 400.0;
  std::string fabric = "flat";
  bool has_no_pxn = false;
  double oversubscription = 1.0;
  std::string schedule = "flat";
  std::string library = "nccl";
  std::string scenarios;
};
void add_cluster_options(Options& options, ClusterArgs& args);

// What the options mean, without the number of ranks.
struct ClusterFacts {
  topology::A2aInput input;
  std::string intra_source;  // of the rate inside the domain
  std::string nic_source;
  std::int64_t num_nics = 0;  // of a node
  bool goes_through_host_memory = false;
};
[[nodiscard]] ClusterFacts resolve_cluster(const ClusterArgs& args,
                                           const topology::LinkCatalog& catalog);

// As settings of a report.
[[nodiscard]] json::Json cluster_settings(const ClusterFacts& facts);

// What a reader should know of this GPU: the two-direction figure of NVLink, host memory paths.
[[nodiscard]] std::vector<report::Finding> gpu_findings(const std::string& gpu,
                                                        double ceiling_bytes_per_s);

[[nodiscard]] std::vector<double> parse_sizes(const std::string& text, const std::string& option);

}  // namespace moe::app
