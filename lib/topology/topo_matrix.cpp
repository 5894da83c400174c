#include "lib/topology/topo_matrix.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/topo_text.hpp"

namespace moe::topology {
namespace {

void add_remark(Topology& topology, const std::string& code, Weight weight,
                const std::string& message, const std::string& advice,
                std::vector<std::string> subjects = {}, std::int32_t line = 0) {
  topology.remarks.push_back({code, weight, message, advice, std::move(subjects), line});
}

NumberSet read_numbers(Topology& topology, const TopoRow& row, const std::string& text,
                       const char* what) {
  if (text.empty() || text == "N/A") return {};
  if (const auto set = parse_number_list(text)) return *set;
  add_remark(topology, "affinity.unreadable", Weight::kWarning,
             fmt::format("line {}: {} of {} is \"{}\", which is no list of numbers", row.line, what,
                         printable(row.name), printable(text)),
             "", {row.name}, row.line);
  return {};
}

void add_devices(Topology& topology, const TopoText& text) {
  std::map<std::string, std::string> legend;
  for (const NicLegend& entry : text.legend) legend[entry.name] = printable(entry.device);
  std::int32_t num_gpus = 0;
  std::int32_t num_nics = 0;
  std::int64_t num_unnamed = 0;
  for (const std::string& name : text.columns) {
    Node node;
    node.name = printable(name);
    node.line = text.header_line;
    if (is_gpu_name(name)) {
      node.kind = NodeKind::kGpu;
      node.index = num_gpus++;
    } else {
      node.kind = NodeKind::kNic;
      node.index = num_nics++;
      const bool is_generic = name.starts_with("NIC");
      node.device_name = is_generic ? legend[name] : node.name;
      if (node.device_name.empty()) ++num_unnamed;
    }
    topology.nodes.push_back(std::move(node));
  }
  if (!text.legend.empty() && num_unnamed > 0) {
    add_remark(topology, "nic.legend_incomplete", Weight::kInfo,
               fmt::format("the NIC legend does not name {} of {} NICs", num_unnamed, num_nics),
               "Copy the whole output of nvidia-smi topo -m");
  }
}

// The rows by column, and what is wrong with their number and names.
std::vector<const TopoRow*> arrange_rows(Topology& topology, const TopoText& text) {
  std::vector<const TopoRow*> rows(text.columns.size(), nullptr);
  for (const TopoRow& row : text.rows) {
    const auto at = std::find(text.columns.begin(), text.columns.end(), row.name);
    const TopoRow*& place = rows[static_cast<std::size_t>(at - text.columns.begin())];
    if (place != nullptr) {
      add_remark(
          topology, "matrix.row_twice", Weight::kWarning,
          fmt::format("line {}: a second row {}; the first is used", row.line, printable(row.name)),
          "", {row.name}, row.line);
      continue;
    }
    place = &row;
  }
  std::string missing;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == nullptr) missing += (missing.empty() ? "" : ", ") + topology.nodes[i].name;
  }
  if (!missing.empty()) {
    add_remark(topology, "matrix.rows_missing", Weight::kWarning,
               fmt::format("{} columns but {} rows: {} completed from the other rows, what stands "
                           "between two missing rows stays unknown",
                           text.columns.size(), text.rows.size(), missing),
               "Copy the whole output of nvidia-smi topo -m");
  }
  return rows;
}

TopoCell cell_of(const std::vector<const TopoRow*>& rows, std::size_t i, std::size_t j) {
  if (rows[i] == nullptr || j >= rows[i]->cells.size()) return {};
  return rows[i]->cells[j];
}

void fill_relations(Topology& topology, const std::vector<const TopoRow*>& rows) {
  const std::size_t n = rows.size();
  topology.relations.assign(n * n, {});
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const TopoCell here = cell_of(rows, i, j);
      const TopoCell there = cell_of(rows, j, i);
      Relation& relation = topology.relations[i * n + j];
      if (i == j) {
        relation.path = PathKind::kSelf;
        if (rows[i] != nullptr && here.path != PathKind::kSelf && !rows[i]->cells.empty()) {
          add_remark(
              topology, "matrix.diagonal", Weight::kWarning,
              fmt::format("line {}: {} to itself is not X", rows[i]->line, topology.nodes[i].name),
              "", {topology.nodes[i].name}, rows[i]->line);
        }
        continue;
      }
      const bool is_known = here.path != PathKind::kUnknown && there.path != PathKind::kUnknown;
      const bool differs = here.path != there.path || here.num_nvlinks != there.num_nvlinks;
      if (is_known && differs && i < j) {
        add_remark(topology, "matrix.asymmetric", Weight::kWarning,
                   fmt::format("{} to {} and back are not the same; the worse is used",
                               topology.nodes[i].name, topology.nodes[j].name),
                   "", {topology.nodes[i].name, topology.nodes[j].name}, rows[i]->line);
      }
      // Codes are ordered from best to worst, and fewer NVLinks are worse.
      const bool takes_here = there.path == PathKind::kUnknown ||
                              (here.path != PathKind::kUnknown &&
                               (here.path > there.path || (here.path == there.path &&
                                                           here.num_nvlinks <= there.num_nvlinks)));
      relation.path = takes_here ? here.path : there.path;
      relation.num_nvlinks = takes_here ? here.num_nvlinks : there.num_nvlinks;
    }
  }
}

class Groups {
 public:
  explicit Groups(std::size_t size) : parents_(size) {
    std::iota(parents_.begin(), parents_.end(), std::size_t{0});
  }
  std::size_t root(std::size_t i) {
    while (parents_[i] != i) i = parents_[i] = parents_[parents_[i]];
    return i;
  }
  void join(std::size_t i, std::size_t j) {
    const std::size_t a = root(i);
    const std::size_t b = root(j);
    parents_[std::max(a, b)] = std::min(a, b);
  }
  // Members of every group, by its first.
  std::vector<std::vector<std::size_t>> members() {
    std::map<std::size_t, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < parents_.size(); ++i) groups[root(i)].push_back(i);
    std::vector<std::vector<std::size_t>> out;
    for (auto& [first, group] : groups) out.push_back(std::move(group));
    return out;
  }

 private:
  std::vector<std::size_t> parents_;
};

Groups join_up_to(const Topology& topology, PathKind worst) {
  const std::size_t n = topology.devices.size();
  Groups groups(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      const PathKind path = topology.relation(i, j).path;
      if (path >= PathKind::kPix && path <= worst) groups.join(i, j);
    }
  }
  return groups;
}

std::int32_t add_node(Topology& topology, NodeKind kind, const std::string& name) {
  Node node;
  node.kind = kind;
  node.name = name;
  topology.nodes.push_back(std::move(node));
  return static_cast<std::int32_t>(topology.nodes.size()) - 1;
}

void add_pcie_link(Topology& topology, std::int32_t child, std::int32_t parent) {
  Link link;
  link.a = child;
  link.b = parent;
  link.source = "nvidia-smi topo -m does not say the PCIe generation";
  topology.links.push_back(std::move(link));
}

// Devices hang off the smallest switch that the codes imply; a group at PXB holds groups at PIX.
void add_switches(Topology& topology, const std::vector<std::size_t>& host, std::int32_t cpu,
                  std::vector<std::vector<std::size_t>>& pxb_groups,
                  std::vector<std::vector<std::size_t>>& pix_groups) {
  const auto is_in = [](const std::vector<std::size_t>& group, std::size_t device) {
    return std::binary_search(group.begin(), group.end(), device);
  };
  std::int32_t num_switches = static_cast<std::int32_t>(topology.count(NodeKind::kPciSwitch));
  for (const std::vector<std::size_t>& outer : pxb_groups) {
    if (!is_in(host, outer.front())) continue;
    std::int32_t outer_parent = cpu;
    if (outer.size() > 1) {
      outer_parent =
          add_node(topology, NodeKind::kPciSwitch, fmt::format("switch {}", num_switches++));
      add_pcie_link(topology, outer_parent, cpu);
    }
    for (const std::vector<std::size_t>& inner : pix_groups) {
      if (!is_in(outer, inner.front())) continue;
      std::int32_t parent = outer_parent;
      if (inner.size() > 1 && inner.size() < outer.size()) {
        parent = add_node(topology, NodeKind::kPciSwitch, fmt::format("switch {}", num_switches++));
        add_pcie_link(topology, parent, outer_parent);
      }
      for (const std::size_t device : inner) {
        add_pcie_link(topology, static_cast<std::int32_t>(device), parent);
      }
    }
  }
}

void add_pcie_tree(Topology& topology) {
  Groups hosts = join_up_to(topology, PathKind::kNode);
  // NVLink hides the PCIe relation of two GPUs; the same single NUMA node gives it back.
  for (std::size_t i = 0; i < topology.devices.size(); ++i) {
    for (std::size_t j = i + 1; j < topology.devices.size(); ++j) {
      const NumberSet& numa = topology.nodes[i].numa_nodes;
      if (numa.size() == 1 && numa == topology.nodes[j].numa_nodes) hosts.join(i, j);
    }
  }
  std::vector<std::vector<std::size_t>> pxb = join_up_to(topology, PathKind::kPxb).members();
  std::vector<std::vector<std::size_t>> pix = join_up_to(topology, PathKind::kPix).members();
  std::int32_t num_hosts = 0;
  for (const std::vector<std::size_t>& host : hosts.members()) {
    const std::int32_t cpu =
        add_node(topology, NodeKind::kCpu, fmt::format("CPU group {}", num_hosts++));
    for (const std::size_t device : host) {
      const Node& member = topology.nodes[device];
      Node& node = topology.nodes[static_cast<std::size_t>(cpu)];
      if (node.cpus.empty()) node.cpus = member.cpus;
      if (node.numa_nodes.empty()) node.numa_nodes = member.numa_nodes;
    }
    Node& node = topology.nodes[static_cast<std::size_t>(cpu)];
    if (node.numa_nodes.size() == 1) {
      node.name = fmt::format("NUMA {}", node.numa_nodes.first());
      node.index = node.numa_nodes.first();
    }
    add_switches(topology, host, cpu, pxb, pix);
  }
}

void add_nvlink(Topology& topology, std::int32_t a, std::int32_t b, std::int32_t count) {
  Link link;
  link.a = a;
  link.b = b;
  link.kind = LinkKind::kNvlink;
  link.count = count;
  link.source = "nvidia-smi topo -m does not say the NVLink generation";
  topology.links.push_back(std::move(link));
}

// More links than a GPU has can only be one set through a switch, seen from every peer.
void add_nvlinks(Topology& topology, std::int32_t max_links) {
  const std::size_t num_gpus = static_cast<std::size_t>(topology.count(NodeKind::kGpu));
  Groups islands(num_gpus);
  for (std::size_t i = 0; i < num_gpus; ++i) {
    for (std::size_t j = i + 1; j < num_gpus; ++j) {
      if (topology.relation(i, j).num_nvlinks > 0) islands.join(i, j);
    }
  }
  for (const std::vector<std::size_t>& island : islands.members()) {
    if (island.size() < 2) continue;
    const auto sum_and_most = [&](std::size_t gpu) {
      std::int32_t sum = 0;
      std::int32_t most = 0;
      for (const std::size_t peer : island) {
        const std::int32_t links = topology.relation(gpu, peer).num_nvlinks;
        sum += links;
        most = std::max(most, links);
      }
      return std::pair(sum, most);
    };
    const bool is_switched = std::any_of(island.begin(), island.end(), [&](std::size_t gpu) {
      return sum_and_most(gpu).first > max_links;
    });
    if (is_switched) {
      const std::int32_t fabric = add_node(topology, NodeKind::kNvSwitch, "NVSwitch");
      for (const std::size_t gpu : island) {
        add_nvlink(topology, static_cast<std::int32_t>(gpu), fabric, sum_and_most(gpu).second);
      }
      continue;
    }
    for (const std::size_t gpu : island) {
      for (const std::size_t peer : island) {
        const std::int32_t links = topology.relation(gpu, peer).num_nvlinks;
        if (gpu < peer && links > 0) {
          add_nvlink(topology, static_cast<std::int32_t>(gpu), static_cast<std::int32_t>(peer),
                     links);
        }
      }
    }
  }
}

}  // namespace

bool looks_like_topo_matrix(std::string_view text) {
  return text.size() <= kMaxTopoBytes && find_topo_header(clean_lines(text)).has_value();
}

Topology read_topo_matrix(std::string_view input, const std::string& where,
                          const LinkCatalog& catalog) {
  const TopoText text = read_topo_text(input, where);
  Topology topology;
  topology.format = Format::kTopoMatrix;
  topology.source = where;
  topology.remarks = text.remarks;
  const std::set<std::string> names(text.columns.begin(), text.columns.end());
  if (names.size() != text.columns.size()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: line {} names a column twice", where, text.header_line));
  }
  add_devices(topology, text);
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    topology.devices.push_back(static_cast<std::int32_t>(i));
  }
  const std::vector<const TopoRow*> rows = arrange_rows(topology, text);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == nullptr || topology.nodes[i].kind != NodeKind::kGpu) continue;
    topology.nodes[i].cpus = read_numbers(topology, *rows[i], rows[i]->cpus, "CPU affinity");
    topology.nodes[i].numa_nodes = read_numbers(topology, *rows[i], rows[i]->numa, "NUMA affinity");
    const NumberSet own = read_numbers(topology, *rows[i], rows[i]->gpu_numa, "GPU NUMA ID");
    if (own.size() == 1) topology.nodes[i].gpu_numa = own.first();
  }
  fill_relations(topology, rows);
  add_pcie_tree(topology);
  add_nvlinks(topology, catalog.max_nvlinks_per_gpu);
  connect_cpus(topology, catalog.cpu_unknown_bytes_per_s,
               "assumed: nvidia-smi topo -m does not say which CPU this is");
  return topology;
}

P2pMatrix read_p2p_matrix(std::string_view input, const std::string& where) {
  static const std::set<std::string_view> known_states = {"X",   "OK", "CNS", "GNS",
                                                          "TNS", "NS", "DR",  "U"};
  P2pMatrix matrix;
  for (const std::string& line : clean_lines(input.substr(0, kMaxTopoBytes))) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.empty() || !is_gpu_name(words[0])) continue;
    if (matrix.gpus.empty()) {
      if (words.size() > kMaxTopoDevices) break;
      for (const std::string_view word : words) {
        if (is_gpu_name(word)) matrix.gpus.emplace_back(word);
      }
      continue;
    }
    std::vector<std::string> cells;
    for (std::size_t i = 1; i < words.size() && known_states.contains(words[i]); ++i) {
      cells.emplace_back(words[i]);
    }
    if (cells.size() != matrix.gpus.size() || matrix.cells.size() == matrix.gpus.size()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: row {} of a matrix of {} GPUs has {} states", where,
                              printable(words[0]), matrix.gpus.size(), cells.size()));
    }
    matrix.cells.push_back(std::move(cells));
  }
  if (matrix.gpus.empty() || matrix.cells.size() != matrix.gpus.size()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected the output of nvidia-smi topo -p2p, found {} columns and "
                            "{} rows",
                            where, matrix.gpus.size(), matrix.cells.size()));
  }
  return matrix;
}

void add_p2p_remarks(Topology& topology, const P2pMatrix& matrix) {
  std::map<std::string, std::int64_t> states;
  for (std::size_t i = 0; i < matrix.gpus.size(); ++i) {
    for (std::size_t j = i + 1; j < matrix.gpus.size(); ++j) {
      const std::string& state = matrix.cells[i][j];
      if (state != "OK" && state != "X") ++states[state];
    }
  }
  for (const auto& [state, count] : states) {
    add_remark(topology, "p2p.unavailable", Weight::kWarning,
               fmt::format("{} pairs of GPUs have no direct access to each other ({}): their "
                           "traffic goes through host memory",
                           count, state),
               "Expect a few GB/s; a board with NVLink, or a driver that allows peer-to-peer "
               "access over PCIe, mends it");
  }
}

}  // namespace moe::topology
