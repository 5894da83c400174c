// The drawing: CPUs above, then PCIe switches, then GPUs and NICs, then NVSwitches.

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "lib/base/xml_text.hpp"
#include "lib/topology/document.hpp"

namespace moe::topology {
namespace {

constexpr int kBoxWidth = 104;
constexpr int kBoxHeight = 34;
constexpr int kGap = 16;
constexpr int kRowHeight = 96;
constexpr int kMargin = 24;

struct Box {
  int x = 0;
  int y = 0;
};

// CPUs, outer switches, switches below switches, devices, NVSwitches.
std::vector<int> rows_of(const Topology& topology) {
  std::vector<int> rows(topology.nodes.size(), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    switch (topology.nodes[i].kind) {
      case NodeKind::kCpu:
        rows[i] = 0;
        break;
      case NodeKind::kPciSwitch:
        rows[i] = 1;
        break;
      case NodeKind::kGpu:
      case NodeKind::kNic:
        rows[i] = 3;
        break;
      case NodeKind::kNvSwitch:
        rows[i] = 4;
        break;
    }
  }
  for (const Link& link : topology.links) {
    const std::size_t child = static_cast<std::size_t>(link.a);
    const std::size_t parent = static_cast<std::size_t>(link.b);
    const bool is_nested = link.kind == LinkKind::kPcie && rows[child] == 1 &&
                           topology.nodes[parent].kind == NodeKind::kPciSwitch;
    if (is_nested) rows[child] = 2;
  }
  return rows;
}

// What stands in the box; the bus id of a switch goes below.
std::string label_of(const Node& node) {
  if (node.bus_id.empty()) return node.name;
  if (node.kind == NodeKind::kPciSwitch) return "PCIe switch";
  return node.kind == NodeKind::kNvSwitch ? "NVSwitch" : node.name;
}

const char* fill_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kCpu:
      return "#d6e4f0";
    case NodeKind::kPciSwitch:
      return "#ececec";
    case NodeKind::kGpu:
      return "#d8efd3";
    case NodeKind::kNic:
      return "#fbe6c8";
    case NodeKind::kNvSwitch:
      return "#e5d9f2";
  }
  return "#ffffff";
}

const char* stroke_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::kPcie:
      return "#777777";
    case LinkKind::kNvlink:
    case LinkKind::kXgmi:
      return "#2e8b3d";
    case LinkKind::kC2c:
      return "#b0562a";
    case LinkKind::kCpu:
      return "#2b6cb0";
  }
  return "#000000";
}

}  // namespace

std::string to_svg(const Topology& topology) {
  std::map<int, int> used;  // boxes in each row
  std::vector<Box> boxes;
  const std::vector<int> rows = rows_of(topology);
  for (const int row : rows) {
    boxes.push_back({kMargin + used[row]++ * (kBoxWidth + kGap), kMargin + row * kRowHeight});
  }
  int widest = 1;
  for (const auto& [row, count] : used) widest = std::max(widest, count);
  const int width = 2 * kMargin + widest * (kBoxWidth + kGap) - kGap;
  const int height = 2 * kMargin + 4 * kRowHeight + kBoxHeight + 24;
  // Rows with fewer boxes are spread over the width.
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const int row = rows[i];
    const int free = width - 2 * kMargin - used[row] * (kBoxWidth + kGap) + kGap;
    boxes[i].x += free / 2;
  }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#ffffff\"/>\n",
      width, height, width, height);
  for (const Link& link : topology.links) {
    const Box& a = boxes[static_cast<std::size_t>(link.a)];
    const Box& b = boxes[static_cast<std::size_t>(link.b)];
    const int middle = kBoxHeight / 2;
    const std::string rate = link.bytes_per_s
                                 ? fmt::format("{:.1f} GB/s one way", *link.bytes_per_s / 1e9)
                                 : "unknown rate";
    // Links within one row would run through the boxes: they bend below.
    const int bend = a.y == b.y ? kBoxHeight + std::min(60, std::abs(a.x - b.x) / 12) : middle;
    out += fmt::format(
        "<path d=\"M{} {} Q{} {} {} {}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
        "stroke-opacity=\"0.6\"><title>{}: {} - {}, {}</title></path>\n",
        a.x + kBoxWidth / 2, a.y + middle, (a.x + b.x + kBoxWidth) / 2, (a.y + b.y) / 2 + bend,
        b.x + kBoxWidth / 2, b.y + middle, stroke_of(link.kind),
        std::min(4.0, 1.0 + link.count / 6.0), link_kind_name(link.kind),
        escape_xml(topology.nodes[static_cast<std::size_t>(link.a)].name),
        escape_xml(topology.nodes[static_cast<std::size_t>(link.b)].name), rate);
  }
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Node& node = topology.nodes[i];
    const std::string& below = node.device_name.empty() ? node.bus_id : node.device_name;
    const bool has_below = !below.empty() && below != node.name;
    // A long text would leave its box.
    const auto fitted = [](const std::string& text) {
      return escape_xml(text.size() > 17 ? text.substr(0, 16) + "~" : text);
    };
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" "
        "stroke=\"#444444\"/>\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
        boxes[i].x, boxes[i].y, kBoxWidth, kBoxHeight, fill_of(node.kind),
        boxes[i].x + kBoxWidth / 2, boxes[i].y + (has_below ? 14 : 21), fitted(label_of(node)));
    if (has_below) {
      out += fmt::format(
          "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\" "
          "font-size=\"9\">{}</text>\n",
          boxes[i].x + kBoxWidth / 2, boxes[i].y + 28, fitted(below));
    }
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"#333333\">{}</text>\n</svg>\n", kMargin,
                     height - 12, escape_xml(summary_line(topology)));
  return out;
}

}  // namespace moe::topology
