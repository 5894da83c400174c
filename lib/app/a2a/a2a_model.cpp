// moe-a2a model: time and bandwidth of an all-to-all, or of MoE dispatch and combine, before
// anything is measured.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/a2a/a2a_model_moe.hpp"
#include "lib/app/a2a/a2a_verify.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

struct ModelArgs {
  ClusterArgs cluster;
  std::vector<std::int64_t> ranks = {8};
  std::string sizes = "1KiB,16KiB,128KiB,1MiB,8MiB,64MiB,512MiB,4GiB";
  double compute_s = 0.0;
  std::vector<std::int64_t> chunks = {1, 2, 4, 8, 16};
  MoeArgs moe;
  bool is_verify = false;
  std::string points;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

using topology::A2aInput;
using topology::A2aModel;
using topology::A2aTime;

struct Sweep {
  report::Table table = make_table("Predicted all-to-all", {{"ranks", "1"},
                                                            {"size_bytes", "bytes"},
                                                            {"time_s", "s"},
                                                            {"busbw_bytes_per_s", "bytes/s"},
                                                            {"ceiling_bytes_per_s", "bytes/s"},
                                                            {"share_of_ceiling", "1"},
                                                            {"intra_s", "s"},
                                                            {"inter_s", "s"},
                                                            {"bound_by", ""}});
  report::Table basis =
      make_table("What the predictions rest on", {{"ranks", "1"},
                                                  {"ceiling_bytes_per_s", "bytes/s"},
                                                  {"limit", ""},
                                                  {"floor_s", "s"},
                                                  {"half_bandwidth_bytes", "bytes"},
                                                  {"basis", ""},
                                                  {"how", ""}});
};

void add_rank_count(const A2aModel& model, A2aInput input, std::int64_t ranks,
                    const std::vector<double>& sizes, Sweep& sweep) {
  input.cluster.num_ranks = ranks;
  const topology::Ceiling ceiling = topology::a2a_ceiling(input.cluster);
  const double floor = model.floor_s(input);
  A2aTime last;
  for (const double bytes : sizes) {
    last = model.predict(input, bytes);
    const bool is_floor = last.time_s < 2.0 * floor;
    sweep.table.rows.push_back({count_cell(ranks), bytes, last.time_s, last.busbw_bytes_per_s,
                                ceiling.busbw_bytes_per_s,
                                last.busbw_bytes_per_s / ceiling.busbw_bytes_per_s, last.intra_s,
                                last.inter_s, std::string(is_floor ? "latency" : "bandwidth")});
  }
  const double half = model.half_bandwidth_bytes(input);
  sweep.basis.rows.push_back({count_cell(ranks), ceiling.busbw_bytes_per_s, ceiling.limit, floor,
                              half > 0.0 ? report::Cell(std::round(half)) : report::Cell(),
                              std::string(topology::basis_name(last.intra_basis)), last.how});
}

void add_overlap(const A2aModel& model, const A2aInput& input, const ModelArgs& args, double bytes,
                 report::Report& report) {
  report::Table table =
      make_table(fmt::format("Chunks of {:.0f} bytes overlapped with {:.0f} us of compute", bytes,
                             args.compute_s * 1e6),
                 {{"chunks", "1"}, {"total_s", "s"}, {"bubble_share", "1"}});
  topology::Overlap best;
  for (const std::int64_t chunks : args.chunks) {
    const topology::Overlap overlap =
        topology::overlap_chunks(model, input, bytes, args.compute_s, chunks);
    table.rows.push_back({count_cell(chunks), overlap.total_s, overlap.bubble_share});
    if (best.total_s == 0.0 || overlap.total_s < best.total_s) best = overlap;
  }
  report.tables["overlap"] = std::move(table);
  report.metrics["best_chunks_count"] =
      value_metric(report::MetricKind::kModelled, "1", static_cast<double>(best.num_chunks),
                   "number of chunks with the smallest time of dispatch and compute together");
  report.metrics["comm_share_ratio"] = value_metric(
      report::MetricKind::kModelled, "1",
      model.predict(input, bytes).time_s / (model.predict(input, bytes).time_s + args.compute_s),
      "time of the all-to-all over it and the compute, without overlap");
}

void add_findings(const ClusterFacts& facts, double ceiling, ReportSession& session) {
  for (report::Finding& finding : gpu_findings(facts.input.gpu, ceiling)) {
    session.report().findings.push_back(std::move(finding));
  }
  if (facts.goes_through_host_memory) {
    session.add_finding(
        "a2a.through_host_memory", report::Severity::kWarning,
        fmt::format(
            "{} has no direct access between GPUs: measured all-to-alls fall to 5 GB/s on 4 "
            "GPUs and to 1 to 2 GB/s on 8, far below the PCIe rate",
            facts.input.gpu),
        "Replicate experts instead of spreading them, or use a machine with NVLink");
  }
}

int run_sweep(const ModelArgs& args, ReportSession& session) {
  const topology::LinkCatalog catalog = load_catalog(args.cluster.scenarios);
  const topology::MeasuredLaws laws = load_laws(args.cluster.scenarios);
  const A2aModel model(catalog, laws);
  const ClusterFacts facts = resolve_cluster(args.cluster, catalog);
  const std::vector<double> sizes = parse_sizes(args.sizes, "--sizes");
  report::Report& report = session.report();
  report.subject =
      json::Json{{"kind", "topology"},
                 {"name", args.cluster.topology.empty() ? facts.input.gpu : args.cluster.topology},
                 {"content_hash", nullptr}};
  report.settings.update(cluster_settings(facts));
  Sweep sweep;
  A2aInput largest = facts.input;
  for (const std::int64_t ranks : args.ranks) {
    add_rank_count(model, facts.input, ranks, sizes, sweep);
    largest.cluster.num_ranks = std::max(largest.cluster.num_ranks, ranks);
  }
  const double biggest = *std::max_element(sizes.begin(), sizes.end());
  const topology::Ceiling ceiling = topology::a2a_ceiling(largest.cluster);
  const A2aTime at_biggest = model.predict(largest, biggest);
  const auto modelled = [&](const char* name, const char* unit, double value, const char* how) {
    report.metrics[name] = value_metric(report::MetricKind::kModelled, unit, value, how);
  };
  modelled("num_ranks", "1", static_cast<double>(largest.cluster.num_ranks),
           "largest number of ranks asked for");
  modelled("a2a_busbw_ceiling_bytes_per_s", "bytes/s", ceiling.busbw_bytes_per_s,
           "ceiling of the bus bandwidth at the largest number of ranks, one way");
  modelled("a2a_busbw_bytes_per_s", "bytes/s", at_biggest.busbw_bytes_per_s,
           "predicted at the largest size and number of ranks: bytes x (n-1)/n / time");
  modelled("a2a_floor_s", "s", model.floor_s(largest),
           "predicted time of the smallest all-to-all at the largest number of ranks");
  report.highlights = {"a2a_busbw_ceiling_bytes_per_s", "a2a_busbw_bytes_per_s", "a2a_floor_s"};
  report.tables["prediction"] = std::move(sweep.table);
  report.tables["basis"] = std::move(sweep.basis);
  report::Chart chart;
  chart.title = "Predicted bus bandwidth";
  chart.kind = report::ChartKind::kLine;
  chart.table = "prediction";
  chart.x = "size_bytes";
  chart.y = {"busbw_bytes_per_s"};
  chart.group_by = "ranks";
  report.charts.push_back(std::move(chart));
  if (args.compute_s > 0.0) add_overlap(model, largest, args, biggest, report);
  if (args.moe.tokens > 0) {
    for (const std::int64_t ranks : args.ranks) {
      add_moe_prediction(args.moe, laws, model, facts, ranks, session);
    }
  }
  add_findings(facts, ceiling.busbw_bytes_per_s, session);
  return kExitOk;
}

int run_model(const ModelArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  session.report().settings["command"] = "model";
  if (!args.points.empty() && !args.is_verify) {
    throw Error(ErrorCode::kUsage, "--points goes with --verify");
  }
  int exit_code = kExitOk;
  if (args.is_verify) {
    session.report().subject =
        json::Json{{"kind", "topology"},
                   {"name", args.points.empty() ? "scenarios/measured" : args.points},
                   {"content_hash", nullptr}};
    session.report().settings["points"] = args.points;
    exit_code = verify_laws(args.cluster.scenarios, args.points, session);
  } else {
    exit_code = run_sweep(args, session);
  }
  return session.finish(exit_code, std::nullopt, std::nullopt);
}

}  // namespace

void add_model_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ModelArgs>();
  Options& options = line.add_command("model", "Predicts time and bandwidth of an all-to-all",
                                      [args, &context] { return run_model(*args, context); });
  add_cluster_options(options, args->cluster);
  options.group("What to predict");
  options.integers("--ranks", args->ranks, IntRange{2, 1000000}, "Numbers of ranks");
  options.text("--sizes", "SIZE,SIZE,...", args->sizes,
               "Bytes that one rank sends in all, its own part included, as nccl-tests counts");
  options.duration("--compute", args->compute_s,
                   "Compute to overlap with the largest size; 0 leaves the chunks out", "0");
  options.integers("--chunks", args->chunks, IntRange{1, 4096}, "Numbers of chunks to try");
  add_moe_options(options, args->moe);
  options.group("Check");
  options.flag("--verify", args->is_verify,
               "Print the errors of the model on measured points it was not fitted on; exit 1 when "
               "a median is above 5 % (all-to-all) or 8 % (dispatch and combine)");
  options.text("--points", "FILE", args->points,
               "With --verify: judge the constants on the points of this CSV");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-a2a model --gpu h100_sxm --ranks 8,16,64,512", "one node to 64 nodes");
}

}  // namespace moe::app
