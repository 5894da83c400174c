#include "lib/topology/document.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "lib/base/int_math.hpp"
#include "lib/topology/diff.hpp"
#include "lib/topology/flows.hpp"
#include "lib/topology/routes.hpp"

namespace moe::topology {
namespace {

std::string gigabytes_text(const std::optional<double>& rate) {
  return rate ? fmt::format("{:.1f}", *rate / 1e9) : "unknown";
}

// Text from a file must not end a table cell or begin a tag.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') {
      out += "\\|";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '`') {
      out += '\'';
    } else {
      out += c;
    }
  }
  return out.empty() ? "-" : out;
}

std::string relation_text(const Relation& relation) {
  if (relation.path == PathKind::kNvlink) return fmt::format("NV{}", relation.num_nvlinks);
  return std::string(path_kind_name(relation.path));
}

void add_devices(const Topology& topology, std::string& out) {
  out +=
      "## Devices\n\n| device | what | bus id | NUMA | CPUs | network "
      "|\n|---|---|---|---|---|---|\n";
  for (const Node& node : topology.nodes) {
    std::string ports;
    for (const Port& port : node.ports) {
      ports += fmt::format("{}{} {} GB/s", ports.empty() ? "" : ", ", cell(port.name),
                           gigabytes_text(port.bytes_per_s));
    }
    const std::string what = node.kind == NodeKind::kGpu && node.sm
                                 ? fmt::format("GPU, sm {}", *node.sm)
                                 : std::string(node_kind_name(node.kind));
    out +=
        fmt::format("| {} | {} | {} | {} | {} | {} |\n", cell(node.name), what, cell(node.bus_id),
                    cell(node.numa_nodes.to_string()), cell(node.cpus.to_string()), cell(ports));
  }
}

void add_links(const Topology& topology, std::string& out) {
  out +=
      "\n## Links\n\nBandwidth one way.\n\n| from | to | kind | count | GB/s | source |\n"
      "|---|---|---|---|---|---|\n";
  for (const Link& link : topology.links) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n",
                       cell(topology.nodes[as_index(link.a)].name),
                       cell(topology.nodes[as_index(link.b)].name), link_kind_name(link.kind),
                       link.count, gigabytes_text(link.bytes_per_s), cell(link.source));
  }
}

void add_paths(const Topology& topology, std::string& out) {
  if (topology.devices.empty() || topology.devices.size() > 64) return;
  out += "\n## Paths\n\nIn the words of nvidia-smi; NCCL calls NODE PHB.\n\n| |";
  std::string rule = "|---|";
  for (const std::int32_t device : topology.devices) {
    out += fmt::format(" {} |", cell(topology.nodes[as_index(device)].name));
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    out += fmt::format("| {} |", cell(topology.nodes[as_index(topology.devices[i])].name));
    for (std::size_t j = 0; j < topology.devices.size(); ++j) {
      out += fmt::format(" {} |", relation_text(topology.relation(i, j)));
    }
    out += "\n";
  }
}

void add_ceiling(const Topology& topology, std::string& out) {
  const MachineCeiling ceiling = machine_ceiling(topology);
  out += "\n## All-to-all ceiling\n\n";
  if (ceiling.busbw_bytes_per_s) {
    out +=
        fmt::format("{:.1f} GB/s bus bandwidth one way over {} GPUs; {} decides.\n",
                    *ceiling.busbw_bytes_per_s / 1e9, ceiling.num_ranks, cell(ceiling.bottleneck));
  } else {
    out += fmt::format("Unknown: {}.\n", cell(ceiling.reason));
  }
}

}  // namespace

std::string summary_line(const Topology& topology) {
  std::int32_t most_links = 0;
  for (const std::int32_t gpu : topology.nodes_of(NodeKind::kGpu)) {
    most_links = std::max(most_links, num_fabric_links(topology, gpu));
  }
  std::string text = fmt::format("{} GPUs, {} NICs, {} CPUs", topology.count(NodeKind::kGpu),
                                 topology.count(NodeKind::kNic), topology.count(NodeKind::kCpu));
  if (most_links > 0) text += fmt::format(", {} fabric links a GPU", most_links);
  if (topology.count(NodeKind::kNvSwitch) > 0) text += " through NVSwitch";
  return text;
}

std::string to_markdown(const Topology& topology, const std::vector<Remark>& remarks,
                        const DocumentOptions& options) {
  std::string out = fmt::format("# Topology of {}\n\n", cell(options.node_name));
  out += fmt::format("{}. Read from {} ({}). GPU type: {}. Fingerprint `{}`.\n\n",
                     summary_line(topology), cell(topology.source), format_name(topology.format),
                     topology.gpu_type.empty()
                         ? "not in the input"
                         : topology.gpu_type + " (" + cell(topology.gpu_type_source) + ")",
                     fingerprint(topology));
  add_devices(topology, out);
  add_links(topology, out);
  add_paths(topology, out);
  add_ceiling(topology, out);
  out += "\n## Nearest NICs\n\n| GPU | path | NICs |\n|---|---|---|\n";
  for (const NearestNics& nearest : nearest_nics(topology)) {
    out += fmt::format("| {} | {} | {} |\n", cell(topology.nodes[as_index(nearest.gpu)].name),
                       nearest.nics.empty() ? "none" : path_kind_name(nearest.path),
                       cell(join_names(topology, nearest.nics)));
  }
  out += "\n## Lint\n\n";
  if (remarks.empty()) out += "Nothing found.\n";
  for (const Remark& remark : remarks) {
    const char* weight = remark.weight == Weight::kError     ? "error"
                         : remark.weight == Weight::kWarning ? "warning"
                                                             : "note";
    out += fmt::format("- {} `{}`: {}\n", weight, remark.code, cell(remark.message));
  }
  return out;
}

std::vector<std::string> node_names(const DocumentOptions& options) {
  std::string stem = options.node_name;
  std::int64_t first = 1;
  std::size_t digits = stem.size();
  while (digits > 0 && stem.size() - digits < 9 &&
         std::isdigit(static_cast<unsigned char>(stem[digits - 1])) != 0) {
    --digits;
  }
  if (digits < stem.size()) {
    first = std::stoll(stem.substr(digits));
    stem.resize(digits);
  } else if (options.num_nodes > 1) {
    stem += '-';
  }
  if (options.num_nodes <= 1) return {options.node_name};
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < options.num_nodes; ++i) {
    names.push_back(fmt::format("{}{}", stem, first + i));
  }
  return names;
}

std::string slurm_node_range(const DocumentOptions& options) {
  const std::vector<std::string> names = node_names(options);
  if (names.size() == 1) return names.front();
  const std::string& first = names.front();
  const std::string& last = names.back();
  const std::size_t stem = first.find_last_not_of("0123456789") + 1;
  return fmt::format("{}[{}-{}]", first.substr(0, stem), first.substr(stem), last.substr(stem));
}

}  // namespace moe::topology
