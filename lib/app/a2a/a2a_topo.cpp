// moe-a2a topo: shows, checks, compares and documents a machine's topology.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/a2a/a2a_topo_report.hpp"
#include "lib/app/a2a/a2a_variables.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/atomic_file.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/topology/diff.hpp"
#include "lib/topology/document.hpp"
#include "lib/topology/lint.hpp"
#include "lib/topology/topo_matrix.hpp"

namespace moe::app {
namespace {

struct TopoArgs {
  std::string action;
  std::vector<std::string> files;
  std::string gpu;
  std::string host;
  std::string p2p;
  std::string directory;
  std::string node_name = "gpu-node-1";
  std::int64_t num_nodes = 1;
  std::string leaf_switch = "leaf-1";
  bool is_strict = false;
  std::string variables;
  std::string nccl_version;
  std::string scenarios;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

using topology::Topology;

Topology load(const TopoArgs& args, const std::string& file, const topology::LinkCatalog& catalog) {
  Topology machine = load_topology(file, args.scenarios, args.gpu, catalog);
  if (!args.p2p.empty()) {
    const FileMap map(args.p2p);
    const std::string_view text(reinterpret_cast<const char*>(map.bytes().data()),
                                map.bytes().size());
    topology::add_p2p_remarks(machine, topology::read_p2p_matrix(text, args.p2p));
  }
  return machine;
}

void describe(const TopoArgs& args, const Topology& machine, report::Report& report) {
  report.subject = json::Json::object();
  report.subject["kind"] = "topology";
  report.subject["name"] = args.files.front();
  report.subject["content_hash"] = topology_hash(args.files.front(), args.scenarios);
  report.subject["format"] = std::string(topology::format_name(machine.format));
  report.subject["summary"] = topology::summary_line(machine);
  report.subject["gpu_type"] =
      machine.gpu_type.empty() ? json::Json(nullptr) : json::Json(machine.gpu_type);
  report.subject["gpu_type_source"] = machine.gpu_type_source;
  report.subject["fingerprint"] = topology::fingerprint(machine);
  report.settings["command"] = "topo " + args.action;
  report.settings["files"] = args.files;
}

void need_files(const TopoArgs& args, std::size_t min, std::size_t max) {
  if (args.files.size() >= min && args.files.size() <= max) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("topo {}: expected {} file{}, found {}", args.action, min,
                          min == 1 ? (max > 1 ? " or more" : "") : "s", args.files.size()));
}

int run_show(const TopoArgs& args, ReportSession& session, const topology::LinkCatalog& catalog) {
  need_files(args, 1, 1);
  const Topology machine = load(args, args.files[0], catalog);
  describe(args, machine, session.report());
  add_topology_metrics(machine, session);
  add_topology_tables(machine, session.report());
  add_remarks(machine.remarks, "", session);
  return kExitOk;
}

void add_lint_metrics(const std::vector<topology::Remark>& remarks, report::Report& report) {
  const auto add = [&](const char* name, topology::Weight weight, const char* how) {
    report.metrics[name] = value_metric(report::MetricKind::kMeasured, "1",
                                        static_cast<double>(count_remarks(remarks, weight)), how);
  };
  add("topology_lint_errors_count", topology::Weight::kError,
      "findings of the lint of weight error");
  add("topology_lint_warnings_count", topology::Weight::kWarning,
      "findings of the lint of weight warning");
}

// Nodes of one job must be alike: each is compared with the first.
void compare_nodes(const TopoArgs& args, const std::vector<Topology>& machines,
                   std::vector<topology::Remark>& remarks) {
  for (std::size_t i = 1; i < machines.size(); ++i) {
    const topology::TopologyDiff diff = topology::diff_topologies(machines[0], machines[i]);
    if (diff.is_same()) continue;
    const topology::Difference& first = diff.differences.front();
    remarks.push_back(
        {"topology.nodes_differ",
         topology::Weight::kError,
         fmt::format("{} differs from {} in {} places, the first is {} of {}: \"{}\" "
                     "here, \"{}\" there",
                     args.files[0], args.files[i], diff.differences.size(), first.what,
                     first.subject, first.in_a, first.in_b),
         fmt::format("moe-a2a topo diff {} {} shows all", args.files[0], args.files[i]),
         {},
         0});
  }
}

int run_lint(const TopoArgs& args, ReportSession& session, const topology::LinkCatalog& catalog) {
  need_files(args, 1, 1000);
  std::optional<Topology> host;
  if (!args.host.empty()) host = load_topology(args.host, args.scenarios, "", catalog);
  std::vector<Topology> machines;
  std::vector<topology::Remark> all;
  for (const std::string& file : args.files) {
    machines.push_back(load(args, file, catalog));
    std::vector<topology::Remark> remarks =
        topology::lint(machines.back(), catalog, host ? &*host : nullptr);
    for (topology::Remark& remark : remarks) {
      if (args.files.size() > 1) remark.message = file + ": " + remark.message;
      all.push_back(std::move(remark));
    }
  }
  compare_nodes(args, machines, all);
  describe(args, machines.front(), session.report());
  add_topology_metrics(machines.front(), session);
  add_lint_metrics(all, session.report());
  add_remarks(all, "", session);
  session.report().highlights = {"topology_lint_errors_count", "topology_lint_warnings_count"};
  const std::int64_t num_errors = count_remarks(all, topology::Weight::kError);
  const std::int64_t num_warnings =
      count_remarks(all, topology::Weight::kWarning) +
      add_variable_findings(args.scenarios, args.variables, args.nccl_version, session);
  const bool is_bad = num_errors > 0 || (args.is_strict && num_warnings > 0);
  return is_bad ? kExitCheckFailed : kExitOk;
}

int run_diff(const TopoArgs& args, ReportSession& session, const topology::LinkCatalog& catalog) {
  need_files(args, 2, 2);
  const Topology a = load(args, args.files[0], catalog);
  const Topology b = load(args, args.files[1], catalog);
  const topology::TopologyDiff diff = topology::diff_topologies(a, b);
  report::Report& report = session.report();
  describe(args, a, report);
  report.metrics["topology_differences_count"] =
      value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(diff.differences.size()),
                   "differences that are more than another number or bus id");
  report.metrics["topology_renamed_count"] =
      value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(diff.renamed.size()),
                   "devices that only have another number");
  report.highlights = {"topology_differences_count", "topology_renamed_count"};
  report::Table table = make_table(
      "Differences", {{"subject", ""}, {"what", ""}, {"in_first", ""}, {"in_second", ""}});
  for (const topology::Difference& difference : diff.differences) {
    table.rows.push_back({difference.subject, difference.what, difference.in_a, difference.in_b});
  }
  if (!table.rows.empty()) report.tables["differences"] = std::move(table);
  report::Table renamed = make_table("Renumbered", {{"in_first", ""}, {"in_second", ""}});
  for (const auto& [from, to] : diff.renamed) renamed.rows.push_back({from, to});
  if (!renamed.rows.empty()) report.tables["renamed"] = std::move(renamed);
  if (diff.is_same()) {
    session.add_finding("topology.same", report::Severity::kInfo,
                        "both describe the same machine, apart from numbers", "");
  }
  return diff.is_same() ? kExitOk : kExitCheckFailed;
}

int run_doc(const TopoArgs& args, ReportSession& session, const topology::LinkCatalog& catalog) {
  need_files(args, 1, 1);
  if (args.directory.empty()) {
    throw Error(ErrorCode::kUsage, "topo doc: name a folder for the files with --directory DIR");
  }
  std::error_code failure;
  std::filesystem::create_directories(args.directory, failure);
  if (failure) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--directory {}: {}", args.directory, failure.message()));
  }
  const Topology machine = load(args, args.files[0], catalog);
  const std::vector<topology::Remark> remarks = topology::lint(machine, catalog);
  topology::DocumentOptions options;
  options.node_name = args.node_name;
  options.num_nodes = args.num_nodes;
  options.leaf_switch = args.leaf_switch;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"topology.md", topology::to_markdown(machine, remarks, options)},
      {"topology.svg", topology::to_svg(machine)},
      {"kubernetes-nodes.yaml", topology::to_kubernetes(machine, options)},
      {"topology.conf", topology::to_slurm_topology(machine, options)},
      {"gres.conf", topology::to_slurm_gres(machine, options)},
      {"ansible-vars.yml", topology::to_ansible(machine, options)},
      {"topology.auto.tfvars", topology::to_terraform(machine, options)}};
  report::Report& report = session.report();
  report::Table table = make_table("Files", {{"file", ""}, {"bytes", "bytes"}});
  for (const auto& [name, text] : files) {
    write_file_atomically(std::filesystem::path(args.directory) / name, text);
    table.rows.push_back({(std::filesystem::path(args.directory) / name).string(),
                          count_cell(static_cast<std::int64_t>(text.size()))});
  }
  describe(args, machine, report);
  add_topology_metrics(machine, session);
  add_lint_metrics(remarks, report);
  report.metrics["topology_snippet_written"] =
      value_metric(report::MetricKind::kMeasured, "1", 1.0,
                   "1: documentation and infrastructure code were written");
  report.tables["files"] = std::move(table);
  add_remarks(remarks, "", session);
  return kExitOk;
}

int run_topo(const TopoArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const topology::LinkCatalog catalog = load_catalog(args.scenarios);
  int exit_code = kExitUsage;
  if (args.action == "show") {
    exit_code = run_show(args, session, catalog);
  } else if (args.action == "lint") {
    exit_code = run_lint(args, session, catalog);
  } else if (args.action == "diff") {
    exit_code = run_diff(args, session, catalog);
  } else if (args.action == "doc") {
    exit_code = run_doc(args, session, catalog);
  } else {
    throw Error(ErrorCode::kUsage,
                fmt::format("topo: expected show, lint, diff or doc, found \"{}\"", args.action));
  }
  return session.finish(exit_code, std::nullopt, std::nullopt);
}

}  // namespace

void add_topo_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<TopoArgs>();
  Options& options = line.add_command("topo", "Shows, checks, compares and documents a topology",
                                      [args, &context] { return run_topo(*args, context); });
  options.positional("ACTION", args->action,
                     "show; lint (exit 1 on an error); diff A B (exit 1 when they differ); doc");
  options.positionals("FILE", args->files,
                      "nvidia-smi topo -m, NCCL or RCCL topology XML, hwloc XML, a name in "
                      "scenarios/topologies, or host for this machine; lint takes several nodes");
  options.group("Input");
  options.text("--gpu", "ID", args->gpu, "Type of the GPUs, for the bandwidth of their links");
  options.text("--host", "FILE", args->host,
               "lint: compare with this host (host, or its hwloc XML)");
  options.text("--p2p", "FILE", args->p2p, "Output of nvidia-smi topo -p2p rw of the same machine");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  options.group("Check");
  options.flag("--strict", args->is_strict, "lint: exit 1 on a warning too");
  options.text("--variables", "FILE", args->variables,
               "lint: NCCL variables of the job, as env prints them or in nccl.conf; without it "
               "those of this process");
  options.text("--nccl-version", "VERSION", args->nccl_version,
               "lint: NCCL of the job, for variables that came or went; without it that of this "
               "machine, if it has one");
  options.group("Documents");
  options.text("--directory", "DIR", args->directory,
               "doc: where topology.md, .svg, Kubernetes, Slurm, Ansible and Terraform files go");
  options.text("--node-name", "NAME", args->node_name, "doc: name of the first node");
  options.integer("--nodes", args->num_nodes, IntRange{1, 100000}, "doc: nodes that are alike");
  options.text("--leaf-switch", "NAME", args->leaf_switch, "doc: switch that the nodes hang on");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("nvidia-smi topo -m > node1.txt; moe-a2a topo lint node1.txt", "checks a node");
}

}  // namespace moe::app
