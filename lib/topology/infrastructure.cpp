// Infrastructure as code.

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"
#include "lib/topology/diff.hpp"
#include "lib/topology/document.hpp"
#include "lib/topology/flows.hpp"
#include "lib/topology/routes.hpp"

namespace moe::topology {
namespace {

// Kubernetes label values: at most 63 of these characters, with a letter or digit at both ends.
std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, std::min<std::size_t>(text.size(), 63))) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    out += is_plain || c == '-' || c == '_' || c == '.' ? c : '_';
  }
  while (!out.empty() && std::isalnum(static_cast<unsigned char>(out.back())) == 0) out.pop_back();
  while (!out.empty() && std::isalnum(static_cast<unsigned char>(out.front())) == 0) {
    out.erase(out.begin());
  }
  return out;
}

// A text in double quotes, as YAML, HCL and JSON agree on.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    // HCL and Ansible would begin a template here.
    if ((c == '{' || c == '}' || c == '$' || c == '%') || static_cast<unsigned char>(c) < 0x20) {
      out += '_';
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::int32_t fabric_links(const Topology& topology) {
  std::int32_t most = 0;
  for (const std::int32_t gpu : topology.nodes_of(NodeKind::kGpu)) {
    most = std::max(most, num_fabric_links(topology, gpu));
  }
  return most;
}

struct Facts {
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::pair<std::string, std::string>> numbers;
};

Facts facts_of(const Topology& topology) {
  Facts facts;
  facts.texts.emplace_back("gpu_type", topology.gpu_type.empty() ? "unknown" : topology.gpu_type);
  facts.texts.emplace_back("topology_fingerprint", fingerprint(topology));
  facts.numbers.emplace_back("gpu_count", fmt::format("{}", topology.count(NodeKind::kGpu)));
  facts.numbers.emplace_back("nic_count", fmt::format("{}", topology.count(NodeKind::kNic)));
  facts.numbers.emplace_back("compute_nic_count", fmt::format("{}", nic_share(topology).num_nics));
  facts.numbers.emplace_back("cpu_count", fmt::format("{}", topology.count(NodeKind::kCpu)));
  facts.numbers.emplace_back("fabric_links_per_gpu", fmt::format("{}", fabric_links(topology)));
  const MachineCeiling ceiling = machine_ceiling(topology);
  if (ceiling.busbw_bytes_per_s) {
    facts.numbers.emplace_back("a2a_busbw_ceiling_bytes_per_s",
                               fmt::format("{:.0f}", *ceiling.busbw_bytes_per_s));
  }
  return facts;
}

}  // namespace

std::string to_kubernetes(const Topology& topology, const DocumentOptions& options) {
  std::string out;
  const Facts facts = facts_of(topology);
  for (const std::string& name : node_names(options)) {
    if (!out.empty()) out += "---\n";
    out += fmt::format("apiVersion: v1\nkind: Node\nmetadata:\n  name: {}\n  labels:\n",
                       in_quotes(name));
    const auto add = [&](const std::string& key, const std::string& value) {
      std::string label = key;
      std::replace(label.begin(), label.end(), '_', '-');
      out += fmt::format("    topology.moekit.dev/{}: {}\n", label, in_quotes(label_value(value)));
    };
    for (const auto& [key, value] : facts.texts) add(key, value);
    for (const auto& [key, value] : facts.numbers) add(key, value);
    add("leaf_switch", options.leaf_switch);
  }
  return out;
}

std::string to_slurm_topology(const Topology& /*topology*/, const DocumentOptions& options) {
  return fmt::format("# topology.conf, for TopologyPlugin=topology/tree\nSwitchName={} Nodes={}\n",
                     label_value(options.leaf_switch), slurm_node_range(options));
}

std::string to_slurm_gres(const Topology& topology, const DocumentOptions& options) {
  std::string out = "# gres.conf; Links= counts NVLinks to each GPU of the node, -1 for itself\n";
  const std::vector<std::int32_t> gpus = topology.nodes_of(NodeKind::kGpu);
  const std::string type = topology.gpu_type.empty() ? "" : " Type=" + topology.gpu_type;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Node& gpu = topology.nodes[as_index(gpus[i])];
    std::string links;
    for (std::size_t j = 0; j < gpus.size(); ++j) {
      const Relation relation = topology.relation_of(gpus[i], gpus[j]);
      links += fmt::format("{}{}", j == 0 ? "" : ",", i == j ? -1 : relation.num_nvlinks);
    }
    out += fmt::format("NodeName={} Name=gpu{} File=/dev/nvidia{}", slurm_node_range(options), type,
                       gpu.index.value_or(static_cast<std::int32_t>(i)));
    if (!gpu.cpus.empty()) out += fmt::format(" Cores={}", gpu.cpus.to_string());
    out += fmt::format(" Links={}\n", links);
  }
  return out;
}

std::string to_ansible(const Topology& topology, const DocumentOptions& options) {
  std::string out = fmt::format("# host_vars of {}\nmoekit_topology:\n", slurm_node_range(options));
  const Facts facts = facts_of(topology);
  for (const auto& [key, value] : facts.texts)
    out += fmt::format("  {}: {}\n", key, in_quotes(value));
  for (const auto& [key, value] : facts.numbers) out += fmt::format("  {}: {}\n", key, value);
  out += fmt::format("  leaf_switch: {}\n", in_quotes(options.leaf_switch));
  const std::vector<NearestNics> nearest = nearest_nics(topology);
  out += nearest.empty() ? "  gpus: []\n" : "  gpus:\n";
  for (const NearestNics& entry : nearest) {
    const Node& gpu = topology.nodes[as_index(entry.gpu)];
    out += fmt::format("    - name: {}\n      bus_id: {}\n      numa: {}\n      cpus: {}\n",
                       in_quotes(gpu.name), in_quotes(gpu.bus_id),
                       in_quotes(gpu.numa_nodes.to_string()), in_quotes(gpu.cpus.to_string()));
    out += entry.nics.empty() ? "      nics: []\n" : "      nics:\n";
    for (const std::int32_t nic : entry.nics) {
      const Node& node = topology.nodes[as_index(nic)];
      out += fmt::format("        - {}\n",
                         in_quotes(node.device_name.empty() ? node.name : node.device_name));
    }
  }
  return out;
}

std::string to_terraform(const Topology& topology, const DocumentOptions& options) {
  std::string out = "moekit_topology = {\n";
  const Facts facts = facts_of(topology);
  out += "  nodes = [";
  const std::vector<std::string> names = node_names(options);
  for (std::size_t i = 0; i < names.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", in_quotes(names[i]));
  }
  out += "]\n";
  for (const auto& [key, value] : facts.texts)
    out += fmt::format("  {} = {}\n", key, in_quotes(value));
  for (const auto& [key, value] : facts.numbers) out += fmt::format("  {} = {}\n", key, value);
  return out + fmt::format("  leaf_switch = {}\n}}\n", in_quotes(options.leaf_switch));
}

}  // namespace moe::topology
