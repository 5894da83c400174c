#include "lib/app/a2a/a2a_inputs.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/fnv1a.hpp"
#include "lib/base/units.hpp"
#include "lib/topology/flows.hpp"
#include "lib/topology/hwloc_xml.hpp"
#include "lib/topology/read_topology.hpp"
#include "lib/topology/routes.hpp"

namespace moe::app {
namespace {

constexpr const char* kHost = "host";

std::filesystem::path data_file(const std::string& scenarios, const char* folder,
                                const char* file) {
  return find_scenario(file, scenarios_dir(scenarios), folder, "");
}

topology::Fabric parse_fabric(const std::string& name) {
  if (name == "rail") return topology::Fabric::kRailOptimised;
  if (name == "rail-only") return topology::Fabric::kRailOnly;
  return topology::Fabric::kFlat;
}

const topology::GpuType& gpu_type(const std::string& id, const topology::LinkCatalog& catalog) {
  const topology::GpuType* gpu = catalog.find_gpu(id);
  if (gpu == nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--gpu: no GPU \"{}\"; known are {}", id, catalog.gpu_ids()));
  }
  return *gpu;
}

// As many NICs as --nics says, or the topology has, at the rate that the topology gives them; where
// it gives none, as the text of nvidia-smi does, at --nic-gbits.
void use_topology_nics(const ClusterArgs& args, const topology::Topology& machine,
                       std::int64_t num_gpus, const topology::LinkCatalog& catalog,
                       ClusterFacts& facts) {
  const topology::NicShare share = topology::nic_share(machine);
  if (share.num_nics == 0) return;
  const double gpus = static_cast<double>(num_gpus);
  const double of_topology =
      share.bytes_per_s_per_gpu.value_or(0.0) * gpus / static_cast<double>(share.num_nics);
  const double rate = share.bytes_per_s_per_gpu ? of_topology : args.nic_gbits * 1e9 / 8.0;
  facts.num_nics = args.nics > 0 ? args.nics : share.num_nics;
  facts.input.cluster.nic_bytes_per_s =
      rate * static_cast<double>(facts.num_nics) / gpus * catalog.network.nic_rate_share;
  const std::string of =
      args.nics == 0 ? "" : fmt::format(" (the topology has {} that serve GPUs)", share.num_nics);
  facts.nic_source = fmt::format(
      "{} NICs{} of {:.1f} GB/s, {}, for {} GPUs, {} of the nominal rate", facts.num_nics, of,
      rate / 1e9, share.bytes_per_s_per_gpu ? "by the topology" : "by --nic-gbits: " + share.source,
      num_gpus, catalog.network.nic_rate_share);
}

// The rate inside the domain and the NICs as a topology has them.
void use_topology(const ClusterArgs& args, const topology::Topology& machine,
                  const topology::LinkCatalog& catalog, ClusterFacts& facts) {
  const std::int64_t num_gpus = machine.count(topology::NodeKind::kGpu);
  topology::Cluster& cluster = facts.input.cluster;
  if (args.domain == 0) cluster.gpus_per_domain = num_gpus;
  const topology::MachineCeiling ceiling = topology::machine_ceiling(machine);
  if (ceiling.busbw_bytes_per_s) {
    cluster.intra_bytes_per_s = *ceiling.busbw_bytes_per_s;
    facts.intra_source =
        fmt::format("max-min fair flows on {}; {} decides", args.topology, ceiling.bottleneck);
  }
  use_topology_nics(args, machine, num_gpus, catalog, facts);
}

// The topology that the options name, with at least two GPUs of a known type.
std::optional<topology::Topology> named_topology(const ClusterArgs& args,
                                                 const topology::LinkCatalog& catalog) {
  if (args.topology.empty()) return std::nullopt;
  topology::Topology machine = load_topology(args.topology, args.scenarios, args.gpu, catalog);
  const std::int64_t num_gpus = machine.count(topology::NodeKind::kGpu);
  if (num_gpus < 2) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: an all-to-all takes two GPUs, the topology has {}", args.topology,
                            num_gpus));
  }
  if (machine.gpu_type.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: the topology does not say which GPU this is; name it with --gpu",
                            args.topology));
  }
  return machine;
}

}  // namespace

topology::LinkCatalog load_catalog(const std::string& scenarios) {
  return topology::read_link_catalog(data_file(scenarios, "topologies", "link_catalog.json"));
}

topology::MeasuredLaws load_laws(const std::string& scenarios) {
  return topology::read_laws(data_file(scenarios, "measured", "collectives_fits.json"));
}

topology::Topology load_topology(const std::string& name, const std::string& scenarios,
                                 const std::string& gpu, const topology::LinkCatalog& catalog) {
  if (name == kHost) return topology::read_host_topology(catalog);
  topology::ReadOptions options;
  options.gpu = gpu;
  return topology::read_topology(find_scenario(name, scenarios_dir(scenarios), "topologies", ""),
                                 catalog, options);
}

json::Json topology_hash(const std::string& name, const std::string& scenarios) {
  if (name == kHost) return nullptr;
  const FileMap file(find_scenario(name, scenarios_dir(scenarios), "topologies", ""));
  Fnv1a64 hash;
  hash.add(file.bytes());
  return hash.to_string();
}

void add_cluster_options(Options& options, ClusterArgs& args) {
  options.group("Cluster");
  options.text("--gpu", "ID", args.gpu,
               "Type of GPU, as in scenarios/topologies/link_catalog.json; without it that of the "
               "topology, else h100_sxm");
  options.text("--topology", "FILE", args.topology,
               "Topology of a node: its links and NICs instead of those of the GPU's type; --nics "
               "still says how many of them");
  options.integer("--domain", args.domain, IntRange{0, 100000},
                  "GPUs that NVLink joins; 0 takes the GPU's type or the topology");
  options.integer("--gpus-per-node", args.gpus_per_node, IntRange{0, 1024},
                  "GPUs that share the NICs of a node; 0 takes the GPU's type");
  options.integer(
      "--nics", args.nics, IntRange{0, 1024},
      "NICs of a node that serve GPUs; 0 takes those of the topology, or one for each GPU");
  options.real("--nic-gbits", args.nic_gbits, RealRange{1.0, 100000.0},
               "Nominal rate of a NIC in Gb/s");
  options.choice("--fabric", {"flat", "rail", "rail-only"}, args.fabric,
                 "Network: one tree; rails that meet at a spine; rails alone");
  options.flag("--no-pxn", args.has_no_pxn,
               "Traffic does not change rail inside the node (NCCL_PXN_DISABLE=1)");
  options.real("--oversubscription", args.oversubscription, RealRange{1.0, 1000.0},
               "Of the spine: 2 means half of the leaf's rate");
  options.choice("--schedule", {"flat", "two-level"}, args.schedule,
                 "All pairs at once, or gathered by rail and sent once for each domain");
  options.text("--library", "NAME", args.library, "Whose measured all-to-all is used");
  options.text("--scenarios", "DIR", args.scenarios, "Folder of the inputs that come with moekit");
}

ClusterFacts resolve_cluster(const ClusterArgs& args, const topology::LinkCatalog& catalog) {
  const std::optional<topology::Topology> machine = named_topology(args, catalog);
  const std::string id = machine ? machine->gpu_type : args.gpu.empty() ? "h100_sxm" : args.gpu;
  const topology::GpuType& gpu = gpu_type(id, catalog);
  ClusterFacts facts;
  topology::Cluster& cluster = facts.input.cluster;
  facts.input.gpu = gpu.id;
  facts.input.library = args.library;
  facts.input.schedule =
      args.schedule == "two-level" ? topology::Schedule::kTwoLevel : topology::Schedule::kFlat;
  const std::int64_t gpus_per_node =
      args.gpus_per_node > 0 ? args.gpus_per_node : gpu.gpus_per_node;
  const bool has_fabric = topology::fabric_bytes_per_s(catalog, gpu) > 0.0;
  // Without links of their own the GPUs of a node are joined by PCIe.
  cluster.gpus_per_domain = args.domain > 0 ? args.domain
                            : has_fabric    ? gpu.domain_gpus
                                            : gpus_per_node;
  cluster.intra_bytes_per_s =
      has_fabric ? topology::fabric_bytes_per_s(catalog, gpu)
                 : topology::pcie_rate(catalog, gpu.pcie_speed, gpu.pcie_lanes).bytes_per_s;
  facts.intra_source = has_fabric ? fmt::format("links of {} at the library's rate", gpu.name)
                                  : fmt::format("PCIe {} x{}", gpu.pcie_speed, gpu.pcie_lanes);
  const std::int64_t nics = args.nics > 0 ? args.nics : gpus_per_node;
  facts.num_nics = nics;
  cluster.nic_bytes_per_s = args.nic_gbits * 1e9 / 8.0 * catalog.network.nic_rate_share *
                            static_cast<double>(nics) / static_cast<double>(gpus_per_node);
  facts.nic_source = fmt::format("{} NICs of {} Gb/s for {} GPUs, {} of the nominal rate", nics,
                                 args.nic_gbits, gpus_per_node, catalog.network.nic_rate_share);
  cluster.fabric = parse_fabric(args.fabric);
  cluster.uses_pxn = !args.has_no_pxn;
  cluster.oversubscription = args.oversubscription;
  cluster.cross_rail_share = catalog.network.cross_rail_share;
  facts.goes_through_host_memory = gpu.goes_through_host_memory;
  if (machine) use_topology(args, *machine, catalog, facts);
  return facts;
}

json::Json cluster_settings(const ClusterFacts& facts) {
  const topology::Cluster& cluster = facts.input.cluster;
  json::Json settings = json::Json::object();
  settings["gpu"] = facts.input.gpu;
  settings["library"] = facts.input.library;
  settings["schedule"] = topology::schedule_name(facts.input.schedule);
  settings["gpus_per_domain"] = cluster.gpus_per_domain;
  settings["intra_bytes_per_s"] = cluster.intra_bytes_per_s;
  settings["intra_source"] = facts.intra_source;
  settings["nic_bytes_per_s_per_gpu"] = cluster.nic_bytes_per_s;
  settings["nic_source"] = facts.nic_source;
  settings["fabric"] = topology::fabric_name(cluster.fabric);
  settings["pxn"] = cluster.uses_pxn;
  settings["oversubscription"] = cluster.oversubscription;
  return settings;
}

std::vector<report::Finding> gpu_findings(const std::string& gpu, double ceiling_bytes_per_s) {
  std::vector<report::Finding> findings;
  if (gpu == "h100_sxm" || gpu == "h200_sxm" || gpu == "gh200") {
    report::Finding finding;
    finding.code = "a2a.quick_limit";
    finding.message = fmt::format(
        "the quick limit of 700 GB/s for an all-to-all on 8 x H100 cannot be met: it is taken from "
        "900 GB/s, which counts both directions. One way is 450 GB/s on the line and 370.8 by "
        "NCCL's rate of 18 NVLinks; about 320 is measured on healthy machines. The ceiling here "
        "is {:.1f} GB/s",
        ceiling_bytes_per_s / 1e9);
    finding.advice = "Judge by the ceiling (--min-of-bound 0.8), or by 300 GB/s at 1 GiB and above";
    finding.evidence = json::Json{{"quick_limit_bytes_per_s", 700e9},
                                  {"line_rate_one_way_bytes_per_s", 450e9},
                                  {"ceiling_bytes_per_s", ceiling_bytes_per_s}};
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<double> parse_sizes(const std::string& text, const std::string& option) {
  std::vector<double> sizes;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    try {
      const std::int64_t bytes = parse_bytes(text.substr(begin, comma - begin));
      if (bytes <= 0) throw Error(ErrorCode::kUsage, "expected a size above 0");
      sizes.push_back(static_cast<double>(bytes));
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", option, error.what()));
    }
    if (comma == text.size()) return sizes;
    begin = comma + 1;
  }
}

}  // namespace moe::app
