// moe-a2a import: results of other benchmarks, in one meaning, judged by one gate.

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/a2a/a2a_gate.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/a2a/a2a_machine.hpp"
#include "lib/app/a2a/a2a_topo_report.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/file_map.hpp"
#include "lib/topology/results.hpp"

namespace moe::app {
namespace {

struct ImportArgs {
  std::string file;
  std::int64_t ranks = 0;
  ClusterArgs cluster;
  GateArgs gate;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

void add_rows(const topology::BenchmarkResults& results, const GateContext& context,
              report::Report& report) {
  report::Table table = make_table("Results", {{"size_bytes", "bytes"},
                                               {"in_place", ""},
                                               {"time_s", "s"},
                                               {"busbw_bytes_per_s", "bytes/s"},
                                               {"share_of_ceiling", "1"},
                                               {"wrong_elements", "1"},
                                               {"bound_by", ""}});
  for (const topology::ResultRow& row : results.rows) {
    const bool is_small = context.half_bandwidth_bytes && row.bytes < *context.half_bandwidth_bytes;
    table.rows.push_back({row.bytes, row.is_in_place, row.time_s, row.busbw_bytes_per_s,
                          context.ceiling_bytes_per_s
                              ? report::Cell(row.busbw_bytes_per_s / *context.ceiling_bytes_per_s)
                              : report::Cell(),
                          row.num_wrong ? count_cell(*row.num_wrong) : report::Cell(),
                          std::string(is_small ? "latency" : "bandwidth")});
  }
  if (!table.rows.empty()) report.tables["results"] = std::move(table);
  report::Table pairs = make_table("Pairs", {{"test", ""},
                                             {"status", ""},
                                             {"min_bytes_per_s", "bytes/s"},
                                             {"max_bytes_per_s", "bytes/s"},
                                             {"slowest", ""}});
  for (const topology::PairTest& test : results.pair_tests) {
    pairs.rows.push_back(
        {test.name, test.status, test.min_bytes_per_s, test.max_bytes_per_s, test.slowest});
  }
  if (!pairs.rows.empty()) report.tables["pairs"] = std::move(pairs);
}

void add_dispatch_rows(const topology::BenchmarkResults& results, const GateContext& context,
                       ReportSession& session) {
  report::Table table = make_table("Dispatch and combine", {{"phase", ""},
                                                            {"ranks", "1"},
                                                            {"dtype", ""},
                                                            {"scope", ""},
                                                            {"time_s", "s"},
                                                            {"logical_bytes_per_s", "bytes/s"},
                                                            {"worst_bytes_per_s", "bytes/s"},
                                                            {"worst_rank", ""},
                                                            {"wire_bytes_per_s", "bytes/s"},
                                                            {"bound_bytes_per_s", "bytes/s"},
                                                            {"share_of_bound", "1"},
                                                            {"carrier", ""}});
  for (const topology::DispatchRow& row : results.dispatch_rows) {
    const std::optional<DispatchBound> bound =
        context.cluster ? dispatch_bound(row, *context.cluster) : std::nullopt;
    const auto cell = [&](double DispatchBound::*member) {
      return bound ? report::Cell((*bound).*member) : report::Cell();
    };
    table.rows.push_back(
        {row.phase, row.num_ranks > 0 ? count_cell(row.num_ranks) : report::Cell(), row.dtype,
         row.scope, row.time_s ? report::Cell(*row.time_s) : report::Cell(),
         row.logical_bytes_per_s, row.worst_bytes_per_s,
         row.worst_rank ? report::Cell(fmt::format("rank {}", *row.worst_rank)) : report::Cell(),
         cell(&DispatchBound::wire_bytes_per_s), cell(&DispatchBound::bound_bytes_per_s),
         bound ? report::Cell(bound->wire_bytes_per_s / bound->bound_bytes_per_s) : report::Cell(),
         bound ? report::Cell(bound->carrier) : report::Cell()});
    if (bound && bound->wire_bytes_per_s > bound->bound_bytes_per_s) {
      session.add_finding(
          "dispatch.above_bound", report::Severity::kWarning,
          fmt::format("{} of {} ranks: {:.1f} GB/s would be on the wire, the {} carry {:.1f} GB/s: "
                      "another machine, fewer copies than uniform routing sends, or another count "
                      "of bytes",
                      row.phase, row.num_ranks, bound->wire_bytes_per_s / 1e9, bound->carrier,
                      bound->bound_bytes_per_s / 1e9),
          "Check --gpu, --domain and --nic-gbits, and what the tool counts");
    }
  }
  if (table.rows.empty()) return;
  session.report().tables["dispatch"] = std::move(table);
  session.add_finding(
      "dispatch.logical", report::Severity::kInfo,
      "the bandwidths of the file are logical: they count token copies that stay on the rank or in "
      "its node. On the wire is at most (n-G)/n of them between domains of G GPUs, (n-1)/n inside "
      "one",
      "Compare them neither with a NIC's rate nor with the bus bandwidth of nccl-tests");
}

void add_metrics(const topology::BenchmarkResults& results, const GateContext& context,
                 report::Report& report) {
  const auto measured = [&](const char* name, const char* unit, double value, const char* how) {
    report.metrics[name] = value_metric(report::MetricKind::kMeasured, unit, value, how);
  };
  measured("num_ranks", "1", static_cast<double>(results.num_ranks), "ranks of the run");
  const topology::ResultRow* largest = nullptr;
  for (const topology::ResultRow& row : results.rows) {
    if (!row.is_in_place && (largest == nullptr || row.bytes > largest->bytes)) largest = &row;
  }
  constexpr const char* kHow = "bytes x (n-1)/n / time at the largest size, out of place";
  if (largest == nullptr) return;
  measured("a2a_busbw_bytes_per_s", "bytes/s", largest->busbw_bytes_per_s, kHow);
  measured("a2a_algbw_bytes_per_s", "bytes/s", largest->bytes / largest->time_s,
           "bytes / time at the largest size, out of place");
  if (context.ceiling_bytes_per_s) {
    report.metrics["a2a_busbw_ceiling_bytes_per_s"] =
        value_metric(report::MetricKind::kModelled, "bytes/s", *context.ceiling_bytes_per_s,
                     "ceiling of the bus bandwidth of this cluster, one way");
    measured("a2a_busbw_ceiling_ratio", "1",
             largest->busbw_bytes_per_s / *context.ceiling_bytes_per_s,
             "measured bus bandwidth at the largest size over the ceiling");
  }
  report.highlights = {"a2a_busbw_bytes_per_s", "num_ranks"};
}

// Wrong data outweighs everything else.
int judge_data(const topology::BenchmarkResults& results, ReportSession& session) {
  std::int64_t num_wrong_rows = 0;
  for (const topology::ResultRow& row : results.rows) {
    num_wrong_rows += row.num_wrong.value_or(0) > 0 ? 1 : 0;
  }
  const bool is_bad = num_wrong_rows > 0 || (results.is_data_ok && !*results.is_data_ok);
  if (!is_bad) return kExitOk;
  session.add_finding("data.corrupt", report::Severity::kError,
                      fmt::format("{} sizes delivered wrong data", num_wrong_rows),
                      "Take the node out of service: times of wrong data mean nothing");
  session.invalidate("the run delivered wrong data");
  return kExitCorruptData;
}

void add_findings(const topology::BenchmarkResults& results, ReportSession& session) {
  add_remarks(results.remarks, "", session);
  const bool is_a2a = results.operation.empty() || results.operation.starts_with("alltoall");
  if (!is_a2a && results.pair_tests.empty() && results.dispatch_rows.empty()) {
    session.add_finding("result.other_operation", report::Severity::kWarning,
                        fmt::format("the file holds {}, which no ceiling of an all-to-all judges",
                                    results.operation),
                        "Run alltoall_perf");
  }
  for (const topology::Dip& dip : topology::find_dips(results, topology::kNotableDip)) {
    session.add_finding(
        "result.dip", report::Severity::kWarning,
        fmt::format("{:.0f} bytes: {:.1f} GB/s after {:.1f} GB/s at the size before", dip.bytes,
                    dip.busbw_bytes_per_s / 1e9, dip.before_bytes_per_s / 1e9),
        "A dip in a sweep is a finding, not noise: adaptive routing and protocol changes make "
        "them");
  }
  if (results.num_ranks == 1 && !results.rows.empty()) {
    session.add_finding("result.one_rank", report::Severity::kError,
                        "one rank: bus bandwidth is 0 by definition; nccl-tests built without MPI "
                        "runs like this under mpirun",
                        "Build with make MPI=1, or use -g");
  }
}

int run_import(const ImportArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const FileMap file(args.file);
  topology::ResultOptions options;
  options.num_ranks = args.ranks;
  const topology::BenchmarkResults results = topology::read_results(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, args.file,
      options);
  report::Report& report = session.report();
  report.subject = json::Json{{"kind", "ranks"}, {"name", args.file}, {"content_hash", nullptr}};
  report.subject["tool"] = results.tool;
  report.subject["operation"] = results.operation;
  report.subject["size_semantics"] = results.size_semantics;
  report.settings["command"] = "import";
  const GateContext machine = machine_context(args.cluster, results.num_ranks, session);
  add_metrics(results, machine, report);
  add_rows(results, machine, report);
  add_dispatch_rows(results, machine, session);
  add_findings(results, session);
  int exit_code = judge_data(results, session);
  if (results.rows.empty() && results.pair_tests.empty() && results.dispatch_rows.empty()) {
    session.invalidate("the file has no row of results");
    if (exit_code == kExitOk) exit_code = kExitNothingMeasured;
  }
  const int gate = judge_gate(args.gate, results, machine, session);
  return session.finish(exit_code == kExitOk ? gate : exit_code, std::nullopt, std::nullopt);
}

}  // namespace

void add_import_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ImportArgs>();
  Options& options = line.add_command(
      "import", "Judges results of nccl-tests, OSU, nvbandwidth or DeepEP by one gate",
      [args, &context] { return run_import(*args, context); });
  options.positional("FILE", args->file,
                     "Output of nccl-tests (text of any generation, or JSON), of OSU, JSON of "
                     "nvbandwidth, tables or logs of DeepEP and its like, or a report of moe-a2a");
  options.group("Input");
  options.integer("--ranks", args->ranks, IntRange{0, 1000000},
                  "Ranks of the run, for files that do not say", "from the file");
  add_gate_options(options, args->gate);
  add_cluster_options(options, args->cluster);
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example(
      "moe-a2a import alltoall.log --gpu h100_sxm --min-of-bound 0.8",
      "exit 1 when the largest size is below 0.8 of the ceiling, 6 when data was wrong");
}

}  // namespace moe::app
