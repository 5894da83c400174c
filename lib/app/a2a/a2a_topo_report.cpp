#include "lib/app/a2a/a2a_topo_report.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/topology/diff.hpp"
#include "lib/topology/flows.hpp"
#include "lib/topology/routes.hpp"

namespace moe::app {
namespace {

using topology::NodeKind;

const topology::Node& node_at(const topology::Topology& machine, std::int32_t node) {
  return machine.nodes[static_cast<std::size_t>(node)];
}

report::Severity severity_of(topology::Weight weight) {
  switch (weight) {
    case topology::Weight::kInfo:
      return report::Severity::kInfo;
    case topology::Weight::kWarning:
      return report::Severity::kWarning;
    case topology::Weight::kError:
      return report::Severity::kError;
  }
  return report::Severity::kInfo;
}

std::string cell_text(const topology::Relation& relation) {
  return relation.path == topology::PathKind::kNvlink
             ? fmt::format("NV{}", relation.num_nvlinks)
             : std::string(topology::path_kind_name(relation.path));
}

void add_devices(const topology::Topology& machine, report::Report& report) {
  report::Table table = make_table("Devices", {{"device", ""},
                                               {"kind", ""},
                                               {"system_name", ""},
                                               {"bus_id", ""},
                                               {"numa", ""},
                                               {"cpus", ""},
                                               {"fabric_links", "1"},
                                               {"network_bytes_per_s", "bytes/s"}});
  for (std::size_t i = 0; i < machine.nodes.size(); ++i) {
    const topology::Node& node = machine.nodes[i];
    const std::int32_t index = static_cast<std::int32_t>(i);
    std::optional<double> rate;
    for (const topology::Port& port : node.ports) {
      if (port.bytes_per_s) rate = rate.value_or(0.0) + *port.bytes_per_s;
    }
    const bool is_gpu = node.kind == NodeKind::kGpu;
    table.rows.push_back(
        {node.name, std::string(topology::node_kind_name(node.kind)), node.device_name, node.bus_id,
         node.numa_nodes.to_string(), node.cpus.to_string(),
         is_gpu ? count_cell(topology::num_fabric_links(machine, index)) : report::Cell(),
         optional_cell(rate)});
  }
  report.tables["devices"] = std::move(table);
}

void add_links(const topology::Topology& machine, report::Report& report) {
  report::Table table = make_table("Links, bandwidth one way", {{"from", ""},
                                                                {"to", ""},
                                                                {"kind", ""},
                                                                {"count", "1"},
                                                                {"bytes_per_s", "bytes/s"},
                                                                {"source", ""}});
  for (const topology::Link& link : machine.links) {
    table.rows.push_back({node_at(machine, link.a).name, node_at(machine, link.b).name,
                          std::string(topology::link_kind_name(link.kind)), count_cell(link.count),
                          optional_cell(link.bytes_per_s), link.source});
  }
  table.is_detail = table.rows.size() > 60;
  report.tables["links"] = std::move(table);
}

// "GPU0" -> "gpu0": columns have names of one form.
std::string column_name(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    out += is_plain ? lower : '_';
  }
  const bool begins_well = !out.empty() && out.front() >= 'a' && out.front() <= 'z';
  return begins_well ? out : "device_" + out;
}

void add_paths(const topology::Topology& machine, report::Report& report) {
  constexpr std::size_t kMaxColumns = 40;
  if (machine.devices.empty() || machine.devices.size() > kMaxColumns) return;
  std::vector<report::Column> columns = {{"device", ""}};
  for (const std::int32_t device : machine.devices) {
    columns.push_back({column_name(node_at(machine, device).name), ""});
  }
  report::Table table = make_table("Paths, in nvidia-smi's words", std::move(columns));
  for (std::size_t i = 0; i < machine.devices.size(); ++i) {
    std::vector<report::Cell> row = {node_at(machine, machine.devices[i]).name};
    for (std::size_t j = 0; j < machine.devices.size(); ++j) {
      row.emplace_back(cell_text(machine.relation(i, j)));
    }
    table.rows.push_back(std::move(row));
  }
  report.tables["paths"] = std::move(table);
}

void add_nearest(const topology::Topology& machine, report::Report& report) {
  if (machine.count(NodeKind::kNic) == 0 || machine.count(NodeKind::kGpu) == 0) return;
  report::Table table = make_table("Nearest NICs", {{"gpu", ""}, {"path", ""}, {"nics", ""}});
  for (const topology::NearestNics& nearest : topology::nearest_nics(machine)) {
    table.rows.push_back(
        {node_at(machine, nearest.gpu).name,
         std::string(nearest.nics.empty() ? "none nearer than SYS"
                                          : topology::path_kind_name(nearest.path)),
         topology::join_names(machine, nearest.nics)});
  }
  report.tables["nearest_nics"] = std::move(table);
}

}  // namespace

void add_topology_tables(const topology::Topology& machine, report::Report& report) {
  add_devices(machine, report);
  add_links(machine, report);
  add_paths(machine, report);
  add_nearest(machine, report);
}

void add_topology_metrics(const topology::Topology& machine, ReportSession& session) {
  report::Report& report = session.report();
  const auto counted = [&](const char* name, std::int64_t value, const char* how) {
    report.metrics[name] =
        value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(value), how);
  };
  counted("topology_recorded", 1, "1: the input was read and stands in this report");
  counted("gpu_count", machine.count(NodeKind::kGpu), "GPUs in the input");
  counted("nic_count", machine.count(NodeKind::kNic), "NICs in the input");
  counted("compute_nic_count", topology::nic_share(machine).num_nics,
          "NICs that are nearest to some GPU, or all when none is");
  const topology::MachineCeiling ceiling = topology::machine_ceiling(machine);
  constexpr const char* kHow =
      "bus bandwidth of a uniform all-to-all over the GPUs of the input, one way, by max-min fair "
      "flows on its links";
  const char* name = "a2a_busbw_ceiling_bytes_per_s";
  if (ceiling.busbw_bytes_per_s) {
    report.metrics[name] =
        value_metric(report::MetricKind::kModelled, "bytes/s", *ceiling.busbw_bytes_per_s,
                     fmt::format("{}; {} decides", kHow, ceiling.bottleneck));
    for (report::Finding& finding : gpu_findings(machine.gpu_type, *ceiling.busbw_bytes_per_s)) {
      report.findings.push_back(std::move(finding));
    }
  } else {
    report.metrics[name] =
        absent_metric(report::MetricKind::kModelled, "bytes/s", ceiling.reason, kHow);
  }
  report.highlights = {"gpu_count", "nic_count", name};
}

void add_remarks(const std::vector<topology::Remark>& remarks, const std::string& prefix,
                 ReportSession& session) {
  for (const topology::Remark& remark : remarks) {
    json::Json evidence = nullptr;
    if (!remark.subjects.empty() || remark.line > 0) {
      evidence = json::Json::object();
      if (!remark.subjects.empty()) evidence["subjects"] = remark.subjects;
      if (remark.line > 0) evidence["line"] = remark.line;
    }
    session.add_finding(remark.code, severity_of(remark.weight), prefix + remark.message,
                        remark.advice, std::move(evidence));
  }
}

std::int64_t count_remarks(const std::vector<topology::Remark>& remarks, topology::Weight weight) {
  return std::count_if(remarks.begin(), remarks.end(), [weight](const topology::Remark& remark) {
    return remark.weight == weight;
  });
}

}  // namespace moe::app
