#include "lib/topology/diff.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "lib/base/fnv1a.hpp"
#include "lib/base/int_math.hpp"

namespace moe::topology {
namespace {

using Colour = std::uint64_t;

// Beyond this many nodes, names decide: refinement would take too long.
constexpr std::size_t kMaxRefined = 600;

Colour mix(Colour hash, Colour value) {
  hash ^= value + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdULL;
  return hash ^ (hash >> 33);
}

std::string rate_text(const std::optional<double>& rate) {
  return rate ? fmt::format("{:.2f} GB/s", *rate / 1e9) : "unknown";
}

// What a node is, apart from its number and its place.
std::vector<std::pair<std::string, std::string>> fields_of(const Node& node) {
  std::vector<std::pair<std::string, std::string>> fields;
  fields.emplace_back("kind", node_kind_name(node.kind));
  if (node.kind == NodeKind::kCpu) {
    fields.emplace_back("numa node", node.numa_nodes.to_string());
    fields.emplace_back("cpus", node.cpus.to_string());
    fields.emplace_back(
        "cpu", fmt::format("{} {} {} {}", node.arch, node.vendor, node.family, node.model));
  }
  if (node.kind == NodeKind::kGpu) {
    fields.emplace_back("generation", node.sm ? fmt::format("sm {}", *node.sm) : node.gcn);
    fields.emplace_back("GPUDirect RDMA",
                        node.has_gdr ? (*node.has_gdr ? "yes" : "no") : "unknown");
  }
  if (node.kind == NodeKind::kNic) {
    std::string ports;
    for (const Port& port : node.ports) {
      ports += fmt::format("{}{}{}", ports.empty() ? "" : ", ", rate_text(port.bytes_per_s),
                           port.has_gdr && !*port.has_gdr ? " without GPUDirect RDMA" : "");
    }
    fields.emplace_back("ports", ports);
  }
  return fields;
}

std::string link_text(const Link& link) {
  return fmt::format("{} x{} {}", link_kind_name(link.kind), link.count,
                     rate_text(link.bytes_per_s));
}

// Colours of the nodes, refined by those of their neighbours.
class Colouring {
 public:
  explicit Colouring(const Topology& topology) : topology_(topology) {
    for (const Node& node : topology.nodes) {
      Colour colour = 0;
      for (const auto& [key, value] : fields_of(node)) {
        colour = mix(colour, fnv1a64(key + "=" + value));
      }
      colours_.push_back(colour);
    }
    neighbours_.resize(topology.nodes.size());
    for (const Link& link : topology.links) {
      // The parent of a PCIe link is not like its child.
      const bool is_directed = link.kind == LinkKind::kPcie;
      const Colour label = fnv1a64(link_text(link));
      neighbours_[as_index(link.a)].emplace_back(link.b, label);
      if (link.a != link.b) {
        neighbours_[as_index(link.b)].emplace_back(link.a, is_directed ? mix(label, 1) : label);
      }
    }
    refine();
  }

  // Makes a node unlike all others.
  void single_out(std::size_t node, Colour mark) {
    colours_[node] = mix(colours_[node], mark);
    refine();
  }

  void refine() {
    std::size_t num_before = 0;
    for (std::size_t round = 0; round <= colours_.size(); ++round) {
      std::vector<Colour> next(colours_.size());
      for (std::size_t i = 0; i < colours_.size(); ++i) {
        std::vector<Colour> around;
        for (const auto& [other, label] : neighbours_[i]) {
          around.push_back(mix(colours_[as_index(other)], label));
        }
        std::sort(around.begin(), around.end());
        next[i] = mix(colours_[i], 7);
        for (const Colour colour : around) next[i] = mix(next[i], colour);
      }
      colours_ = std::move(next);
      const std::size_t num_now = std::set<Colour>(colours_.begin(), colours_.end()).size();
      // At least two rounds, so that two machines are refined alike.
      if (round >= 2 && num_now == num_before) break;
      num_before = num_now;
      ++num_rounds_;
    }
  }

  [[nodiscard]] const std::vector<Colour>& colours() const { return colours_; }
  [[nodiscard]] Colour whole() const {
    std::vector<Colour> sorted = colours_;
    std::sort(sorted.begin(), sorted.end());
    Colour hash = num_rounds_;
    for (const Colour colour : sorted) hash = mix(hash, colour);
    return hash;
  }

 private:
  const Topology& topology_;
  std::vector<Colour> colours_;
  std::vector<std::vector<std::pair<std::int32_t, Colour>>> neighbours_;
  std::uint64_t num_rounds_ = 0;
};

// Mapping of nodes of A to nodes of B; -1 for none.
using Mapping = std::vector<std::int32_t>;

// One node after the other is singled out in both until every colour is unique. Machines that are
// the same keep the same colours all the way.
std::optional<Mapping> map_same(const Topology& a, const Topology& b) {
  if (a.nodes.size() != b.nodes.size() || a.nodes.size() > kMaxRefined) return std::nullopt;
  Colouring of_a(a);
  Colouring of_b(b);
  for (std::size_t step = 0; step <= a.nodes.size(); ++step) {
    if (of_a.whole() != of_b.whole()) return std::nullopt;
    std::map<Colour, std::vector<std::size_t>> classes;
    for (std::size_t i = 0; i < a.nodes.size(); ++i) classes[of_a.colours()[i]].push_back(i);
    std::optional<std::size_t> pick;
    for (std::size_t i = 0; i < a.nodes.size() && !pick; ++i) {
      if (classes[of_a.colours()[i]].size() > 1) pick = i;
    }
    if (!pick) break;
    // The partner with the same name when there is one.
    std::optional<std::size_t> partner;
    for (std::size_t j = 0; j < b.nodes.size(); ++j) {
      if (of_b.colours()[j] != of_a.colours()[*pick]) continue;
      const bool has_name = b.nodes[j].name == a.nodes[*pick].name;
      if (!partner || has_name) partner = j;
      if (has_name) break;
    }
    if (!partner) return std::nullopt;
    of_a.single_out(*pick, step + 1);
    of_b.single_out(*partner, step + 1);
  }
  std::map<Colour, std::int32_t> place;
  for (std::size_t j = 0; j < b.nodes.size(); ++j) {
    place[of_b.colours()[j]] = static_cast<std::int32_t>(j);
  }
  Mapping mapping;
  for (const Colour colour : of_a.colours()) {
    const auto found = place.find(colour);
    if (found == place.end()) return std::nullopt;
    mapping.push_back(found->second);
  }
  return mapping;
}

// Machines that differ: the same name and kind first, then the same colour, then the same kind.
Mapping map_different(const Topology& a, const Topology& b) {
  Mapping mapping(a.nodes.size(), -1);
  std::vector<bool> is_taken(b.nodes.size(), false);
  const auto match = [&](auto&& is_partner) {
    for (std::size_t i = 0; i < a.nodes.size(); ++i) {
      for (std::size_t j = 0; j < b.nodes.size() && mapping[i] < 0; ++j) {
        if (is_taken[j] || a.nodes[i].kind != b.nodes[j].kind || !is_partner(i, j)) continue;
        mapping[i] = static_cast<std::int32_t>(j);
        is_taken[j] = true;
      }
    }
  };
  match([&](std::size_t i, std::size_t j) {
    return a.nodes[i].name == b.nodes[j].name && a.nodes[i].bus_id == b.nodes[j].bus_id;
  });
  match([&](std::size_t i, std::size_t j) { return a.nodes[i].name == b.nodes[j].name; });
  if (a.nodes.size() <= kMaxRefined && b.nodes.size() <= kMaxRefined) {
    const Colouring of_a(a);
    const Colouring of_b(b);
    match([&](std::size_t i, std::size_t j) { return of_a.colours()[i] == of_b.colours()[j]; });
  }
  match([&](std::size_t i, std::size_t j) {
    return a.nodes[i].kind != NodeKind::kCpu && fields_of(a.nodes[i]) == fields_of(b.nodes[j]);
  });
  return mapping;
}

using LinkKey = std::pair<std::int32_t, std::int32_t>;

// Texts of the links between two nodes of B, sorted.
std::map<LinkKey, std::vector<std::string>> links_by_ends(const Topology& topology,
                                                          const Mapping* mapping) {
  std::map<LinkKey, std::vector<std::string>> links;
  for (const Link& link : topology.links) {
    std::int32_t a = link.a;
    std::int32_t b = link.b;
    if (mapping != nullptr) {
      a = (*mapping)[as_index(a)];
      b = (*mapping)[as_index(b)];
      if (a < 0 || b < 0) continue;
    }
    links[{std::min(a, b), std::max(a, b)}].push_back(link_text(link));
  }
  for (auto& [key, texts] : links) std::sort(texts.begin(), texts.end());
  return links;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + text;
  return out;
}

void compare_links(const Topology& a, const Topology& b, const Mapping& mapping,
                   TopologyDiff& diff) {
  const auto in_a = links_by_ends(a, &mapping);
  const auto in_b = links_by_ends(b, nullptr);
  std::set<std::int32_t> matched(mapping.begin(), mapping.end());
  std::set<LinkKey> keys;
  for (const auto& [key, texts] : in_a) keys.insert(key);
  for (const auto& [key, texts] : in_b) {
    if (matched.contains(key.first) && matched.contains(key.second)) keys.insert(key);
  }
  for (const LinkKey& key : keys) {
    const auto here = in_a.find(key);
    const auto there = in_b.find(key);
    const std::string text_a = here == in_a.end() ? "" : joined(here->second);
    const std::string text_b = there == in_b.end() ? "" : joined(there->second);
    if (text_a == text_b) continue;
    diff.differences.push_back({fmt::format("{} - {}", b.nodes[as_index(key.first)].name,
                                            b.nodes[as_index(key.second)].name),
                                "link", text_a, text_b});
  }
}

}  // namespace

TopologyDiff diff_topologies(const Topology& a, const Topology& b) {
  TopologyDiff diff;
  const std::optional<Mapping> same = map_same(a, b);
  const Mapping mapping = same ? *same : map_different(a, b);
  std::vector<bool> is_matched(b.nodes.size(), false);
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const Node& node = a.nodes[i];
    if (mapping[i] < 0) {
      diff.differences.push_back(
          {node.name, "presence", std::string(node_kind_name(node.kind)), ""});
      continue;
    }
    const Node& other = b.nodes[as_index(mapping[i])];
    is_matched[as_index(mapping[i])] = true;
    if (node.name != other.name) diff.renamed.emplace_back(node.name, other.name);
    const auto fields_a = fields_of(node);
    const auto fields_b = fields_of(other);
    for (std::size_t f = 0; f < fields_a.size(); ++f) {
      if (fields_a[f].second == fields_b[f].second) continue;
      diff.differences.push_back(
          {node.name, fields_a[f].first, fields_a[f].second, fields_b[f].second});
    }
  }
  for (std::size_t j = 0; j < b.nodes.size(); ++j) {
    if (is_matched[j]) continue;
    diff.differences.push_back(
        {b.nodes[j].name, "presence", "", std::string(node_kind_name(b.nodes[j].kind))});
  }
  compare_links(a, b, mapping, diff);
  return diff;
}

std::string fingerprint(const Topology& topology) {
  if (topology.nodes.size() <= kMaxRefined) {
    return fmt::format("{:016x}", Colouring(topology).whole());
  }
  std::vector<std::string> texts;
  for (const Node& node : topology.nodes) {
    std::string text;
    for (const auto& [key, value] : fields_of(node)) text += key + "=" + value + ";";
    texts.push_back(std::move(text));
  }
  for (const Link& link : topology.links) texts.push_back(link_text(link));
  std::sort(texts.begin(), texts.end());
  Colour hash = 0;
  for (const std::string& text : texts) hash = mix(hash, fnv1a64(text));
  return fmt::format("{:016x}", hash);
}

}  // namespace moe::topology
