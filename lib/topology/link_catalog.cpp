#include "lib/topology/link_catalog.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"

namespace moe::topology {
namespace {

using json::Json;

constexpr const char* kSchema = "moekit-link-catalog";

// One object of the catalog, with its place for messages.
class Entry {
 public:
  Entry(const Json& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) fail("expected an object");
  }

  [[nodiscard]] double positive(const char* key) const {
    const Json& value = member(key);
    if (!value.is_number() || !(value.get<double>() > 0.0)) {
      fail(fmt::format("\"{}\": expected a positive number", key));
    }
    return value.get<double>();
  }
  [[nodiscard]] std::int32_t integer(const char* key, std::int32_t fallback) const {
    if (!value_.contains(key)) return fallback;
    const Json& value = value_.at(key);
    const bool is_ok = value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
                       value.get<std::int64_t>() <= 1000000;
    if (!is_ok) fail(fmt::format("\"{}\": expected an integer of 0 or more", key));
    return value.get<std::int32_t>();
  }
  [[nodiscard]] std::string text(const char* key) const {
    if (!value_.contains(key)) return "";
    if (!value_.at(key).is_string()) fail(fmt::format("\"{}\": expected a text", key));
    return value_.at(key).get<std::string>();
  }
  [[nodiscard]] bool flag(const char* key) const {
    return value_.contains(key) && value_.at(key).is_boolean() && value_.at(key).get<bool>();
  }
  [[nodiscard]] Entry object(const char* key) const {
    return Entry(member(key), fmt::format("{}/{}", where_, key));
  }
  [[nodiscard]] std::vector<Entry> list(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array()) fail(fmt::format("\"{}\": expected a list", key));
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < value.size(); ++i) {
      entries.emplace_back(value.at(i), fmt::format("{}/{}/{}", where_, key, i));
    }
    return entries;
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    if (!value_.contains(key)) return out;
    for (const Json& item : value_.at(key)) {
      if (!item.is_string()) fail(fmt::format("\"{}\": expected texts", key));
      out.push_back(item.get<std::string>());
    }
    return out;
  }

 private:
  [[nodiscard]] const Json& member(const char* key) const {
    if (!value_.contains(key)) fail(fmt::format("missing \"{}\"", key));
    return value_.at(key);
  }
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", where_, message));
  }

  const Json& value_;
  std::string where_;
};

GpuType read_gpu(const Entry& entry) {
  GpuType gpu;
  gpu.id = entry.text("id");
  gpu.name = entry.text("name");
  gpu.sm = entry.integer("sm", 0);
  gpu.gcn = entry.text("gcn");
  gpu.num_nvlinks = entry.integer("nvlinks", 0);
  gpu.num_xgmi_peers = entry.integer("xgmi_peers", 0);
  gpu.line_bytes_per_s = entry.positive("line_bytes_per_s");
  gpu.pcie_speed = entry.text("pcie_speed");
  gpu.pcie_lanes = entry.integer("pcie_lanes", 16);
  gpu.domain_gpus = entry.integer("domain", 1);
  gpu.gpus_per_node = entry.integer("gpus_per_node", 8);
  gpu.is_grace = entry.flag("grace");
  gpu.goes_through_host_memory = entry.flag("through_host_memory");
  gpu.aliases = entry.texts("aliases");
  return gpu;
}

NetworkDefaults read_network(const Entry& entry) {
  NetworkDefaults network;
  network.source = entry.text("source");
  network.nic_rate_share = entry.positive("nic_rate_share");
  network.ceiling_share = entry.positive("ceiling_share");
  network.floor_s = entry.positive("floor_s");
  network.message_s = entry.positive("message_s");
  network.cross_rail_share = entry.positive("cross_rail_share");
  return network;
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace

LinkCatalog read_link_catalog(const std::filesystem::path& path) {
  const Json document = json::parse_file(path.string());
  const Entry root(document, path.string());
  if (root.text("schema") != kSchema) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a file of schema {}", path.string(), kSchema));
  }
  LinkCatalog catalog;
  const Entry pcie = root.object("pcie_lane");
  catalog.pcie_unit_bits_per_s = pcie.positive("unit_bits_per_s");
  catalog.pcie_fallback_units = pcie.positive("fallback_units");
  catalog.pcie_fallback_lanes = pcie.integer("fallback_lanes", 16);
  for (const Entry& speed : pcie.list("speeds")) {
    catalog.pcie.push_back({speed.text("text"), speed.positive("units")});
  }
  const Entry nvlink = root.object("nvlink");
  catalog.max_nvlinks_per_gpu = nvlink.integer("max_links_per_gpu", 18);
  for (const Entry& link : nvlink.list("links")) {
    catalog.nvlink.push_back({link.integer("sm", 0), "", link.positive("bytes_per_s")});
  }
  for (const Entry& link : root.object("xgmi").list("links")) {
    catalog.xgmi.push_back({0, link.text("gcn"), link.positive("bytes_per_s")});
  }
  const Entry cpu = root.object("cpu_links");
  catalog.cpu_unknown_bytes_per_s = cpu.positive("unknown_bytes_per_s");
  for (const Entry& link : cpu.list("links")) {
    catalog.cpu_links.push_back({link.text("vendor"), link.text("arch"),
                                 link.integer("min_model", 0), link.text("name"),
                                 link.positive("bytes_per_s")});
  }
  for (const Entry& gpu : root.list("gpus")) catalog.gpus.push_back(read_gpu(gpu));
  catalog.network = read_network(root.object("network"));
  return catalog;
}

const GpuType* LinkCatalog::find_gpu(std::string_view id) const {
  const std::string wanted = lower(id);
  for (const GpuType& gpu : gpus) {
    const bool is_alias =
        std::find(gpu.aliases.begin(), gpu.aliases.end(), wanted) != gpu.aliases.end();
    if (gpu.id == wanted || is_alias) return &gpu;
  }
  return nullptr;
}

std::string LinkCatalog::gpu_ids() const {
  std::string text;
  for (const GpuType& gpu : gpus) text += (text.empty() ? "" : ", ") + gpu.id;
  return text;
}

PcieRate pcie_rate(const LinkCatalog& catalog, std::string_view speed, std::int32_t lanes) {
  PcieRate rate;
  double units = catalog.pcie_fallback_units;
  for (const PcieSpeed& entry : catalog.pcie) {
    if (!speed.starts_with(entry.text)) continue;
    units = entry.units;
    rate.is_speed_known = true;
    break;
  }
  rate.is_width_known = lanes > 0;
  const double width = static_cast<double>(lanes > 0 ? lanes : catalog.pcie_fallback_lanes);
  rate.bytes_per_s = width * units * catalog.pcie_unit_bits_per_s / 8.0;
  return rate;
}

std::optional<double> nvlink_rate(const LinkCatalog& catalog, std::int32_t sm) {
  std::optional<double> rate;
  for (const FabricRate& entry : catalog.nvlink) {
    // 86 stands for itself: the cards after it have the full rate of their generation.
    const bool is_exact_only = entry.sm == 86;
    if (entry.sm <= sm && (!is_exact_only || sm == entry.sm)) rate = entry.bytes_per_s;
  }
  return rate;
}

std::optional<double> xgmi_rate(const LinkCatalog& catalog, std::string_view gcn) {
  for (const FabricRate& entry : catalog.xgmi) {
    if (!entry.gcn.empty() && gcn.starts_with(entry.gcn)) return entry.bytes_per_s;
  }
  return std::nullopt;
}

CpuLinkRate cpu_link_rate(const LinkCatalog& catalog, const Node& cpu) {
  std::int32_t model = 0;
  for (const char c : cpu.model) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 || model > 100000) break;
    model = model * 10 + (c - '0');
  }
  for (const CpuRate& entry : catalog.cpu_links) {
    const bool is_vendor = !entry.vendor.empty() && entry.vendor == cpu.vendor;
    const bool is_arch = !entry.arch.empty() && entry.arch == cpu.arch;
    if ((is_vendor || is_arch) && model >= entry.min_model) {
      return {entry.bytes_per_s, fmt::format("NCCL's rate between {} CPUs", entry.name)};
    }
  }
  return {catalog.cpu_unknown_bytes_per_s, "assumed: the input does not say which CPU this is"};
}

double fabric_bytes_per_s(const LinkCatalog& catalog, const GpuType& gpu) {
  if (gpu.num_nvlinks > 0) {
    return static_cast<double>(gpu.num_nvlinks) * nvlink_rate(catalog, gpu.sm).value_or(0.0);
  }
  return static_cast<double>(gpu.num_xgmi_peers) * xgmi_rate(catalog, gpu.gcn).value_or(0.0);
}

}  // namespace moe::topology
