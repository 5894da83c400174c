// moe-a2a run: metrics and tables.

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "lib/app/a2a/a2a_run.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using report::Cell;
using report::MetricKind;

// Longer tables of pairs stand in the files only.
constexpr std::size_t kMaxShownPairs = 64;

Cell percentile_cell(std::vector<double> samples, double p) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const stats::Percentile figure = stats::percentile(samples, p);
  return figure.value ? Cell(*figure.value) : Cell();
}

std::int64_t num_wrong(const std::vector<comm::WrongData>& wrong) {
  std::int64_t sum = 0;
  for (const comm::WrongData& fault : wrong) sum += fault.num_wrong_bytes;
  return sum;
}

void add_sizes(const RunOutcome& outcome, const GateContext& machine, report::Report& report) {
  report::Table table = make_table("All-to-All by size", {{"size_bytes", "bytes"},
                                                          {"iterations", "1"},
                                                          {"time_s", "s"},
                                                          {"min_s", "s"},
                                                          {"p95_s", "s"},
                                                          {"p99_s", "s"},
                                                          {"algbw_bytes_per_s", "bytes/s"},
                                                          {"busbw_bytes_per_s", "bytes/s"},
                                                          {"share_of_ceiling", "1"},
                                                          {"wire_intra_bytes", "bytes"},
                                                          {"wire_inter_bytes", "bytes"},
                                                          {"wrong_elements", "1"},
                                                          {"slowest_rank", "1"}});
  for (const SizeOutcome& row : outcome.sizes) {
    const comm::ExchangeResult& result = row.result;
    const auto bytes = static_cast<double>(result.bytes);
    table.rows.push_back(
        {bytes, count_cell(static_cast<std::int64_t>(result.iteration_s.size())), row.time_s,
         *std::min_element(result.iteration_s.begin(), result.iteration_s.end()),
         percentile_cell(result.iteration_s, 0.95), percentile_cell(result.iteration_s, 0.99),
         bytes / row.time_s, row.busbw_bytes_per_s,
         machine.ceiling_bytes_per_s ? Cell(row.busbw_bytes_per_s / *machine.ceiling_bytes_per_s)
                                     : Cell(),
         count_cell(row.sums.intra_bytes), count_cell(row.sums.inter_bytes),
         result.is_verified ? count_cell(num_wrong(result.wrong)) : Cell(),
         count_cell(worst_rank(result))});
  }
  if (table.rows.empty()) return;
  report.tables["results"] = std::move(table);
  report.charts.push_back({"Bus bandwidth by size",
                           report::ChartKind::kLine,
                           "results",
                           "size_bytes",
                           {"busbw_bytes_per_s"},
                           ""});
}

void add_ranks(const RunOutcome& outcome, report::Report& report) {
  // The ranks of the backend null are one.
  if (!outcome.moves_data) return;
  report::Table table = make_table("Ranks, at the largest size", {{"rank", "1"},
                                                                  {"host", ""},
                                                                  {"device", ""},
                                                                  {"nic", ""},
                                                                  {"p50_s", "s"},
                                                                  {"p95_s", "s"},
                                                                  {"p99_s", "s"},
                                                                  {"is_slowest", ""}});
  const comm::ExchangeResult* largest =
      outcome.sizes.empty() ? nullptr : &outcome.sizes.back().result;
  const int worst = largest == nullptr ? -1 : worst_rank(*largest);
  for (std::size_t r = 0; r < outcome.places.size(); ++r) {
    const comm::RankPlace& place = outcome.places[r];
    const std::vector<double> times =
        largest == nullptr ? std::vector<double>{} : largest->rank_s[r];
    table.rows.push_back({count_cell(static_cast<std::int64_t>(r)), place.host, place.device,
                          place.nic, percentile_cell(times, 0.5), percentile_cell(times, 0.95),
                          percentile_cell(times, 0.99), static_cast<int>(r) == worst});
  }
  table.is_detail = table.rows.size() > kMaxShownPairs;
  if (!table.rows.empty()) report.tables["ranks"] = std::move(table);
  report::Table times = make_table(
      "Ranks by size",
      {{"size_bytes", "bytes"}, {"rank", "1"}, {"p50_s", "s"}, {"p95_s", "s"}, {"p99_s", "s"}});
  times.is_detail = true;
  for (const SizeOutcome& row : outcome.sizes) {
    for (std::size_t r = 0; r < row.result.rank_s.size(); ++r) {
      const std::vector<double>& samples = row.result.rank_s[r];
      times.rows.push_back({static_cast<double>(row.result.bytes),
                            count_cell(static_cast<std::int64_t>(r)), percentile_cell(samples, 0.5),
                            percentile_cell(samples, 0.95), percentile_cell(samples, 0.99)});
    }
  }
  if (!times.rows.empty()) report.tables["rank_times"] = std::move(times);
}

void add_pairs(const RunOutcome& outcome, report::Report& report) {
  if (outcome.pairs.empty()) return;
  report::Table table =
      make_table("Pairs of ranks, one way", {{"sender", "1"},
                                             {"receiver", "1"},
                                             {"sender_host", ""},
                                             {"receiver_host", ""},
                                             {"latency_s", "s"},
                                             {"bandwidth_bytes_per_s", "bytes/s"}});
  for (const comm::PairFigure& pair : outcome.pairs) {
    table.rows.push_back({count_cell(pair.sender), count_cell(pair.receiver),
                          outcome.places[static_cast<std::size_t>(pair.sender)].host,
                          outcome.places[static_cast<std::size_t>(pair.receiver)].host,
                          pair.latency_s, pair.bytes_per_s});
  }
  table.is_detail = table.rows.size() > kMaxShownPairs;
  report.tables["pair_matrix"] = std::move(table);
  report.charts.push_back({"Bandwidth by pair",
                           report::ChartKind::kHeatmap,
                           "pair_matrix",
                           "receiver",
                           {"sender", "bandwidth_bytes_per_s"},
                           ""});
}

void add_moe(const RunOutcome& outcome, report::Report& report) {
  if (outcome.moe.empty()) return;
  report::Table table = make_table("MoE dispatch and combine", {{"phase", ""},
                                                                {"schedule", ""},
                                                                {"time_s", "s"},
                                                                {"bytes_logical", "bytes"},
                                                                {"bytes_local", "bytes"},
                                                                {"bytes_wire_intra", "bytes"},
                                                                {"bytes_wire_inter", "bytes"},
                                                                {"logical_bytes_per_s", "bytes/s"},
                                                                {"wrong_elements", "1"}});
  const auto ranks = static_cast<double>(outcome.places.size());
  for (const MoeOutcome& phase : outcome.moe) {
    const double time_s = stats::median(phase.iteration_s);
    const double logical = static_cast<double>(phase.logical_bytes) / ranks / time_s;
    table.rows.push_back({phase.phase, phase.schedule, time_s, count_cell(phase.logical_bytes),
                          count_cell(phase.sums.local_bytes), count_cell(phase.sums.intra_bytes),
                          count_cell(phase.sums.inter_bytes), logical,
                          count_cell(num_wrong(phase.wrong))});
    const std::string name = fmt::format("moe_{}_{}", phase.phase, phase.schedule);
    report.metrics[name + "_s"] =
        sampled_metric("s", phase.iteration_s, "no iteration ended",
                       fmt::format("slowest rank's time of a {}, {}; all exchanges of it",
                                   phase.phase, phase.schedule));
    report.metrics[name + "_logical_bytes_per_s"] = value_metric(
        MetricKind::kMeasured, "bytes/s", logical,
        "bytes of every selection of one rank, local ones too, over the median time; not a rate of "
        "any wire");
  }
  report.tables["moe"] = std::move(table);
  if (!outcome.gather_scatter) return;
  std::vector<double> both_s = outcome.gather_scatter->gather_s;
  for (std::size_t i = 0; i < both_s.size(); ++i) both_s[i] += outcome.gather_scatter->scatter_s[i];
  report.metrics["gather_scatter_s"] = sampled_metric(
      "s", both_s, "no iteration ended",
      "slowest rank's time of an all-gather of all tokens and a reduce-scatter of all results, in "
      "the place of dispatch and combine; the sums are of floats in as many bytes as combine "
      "sends");
}

void add_overlap(const RunArgs& args, const RunOutcome& outcome, report::Report& report) {
  if (outcome.overlap.empty()) return;
  report::Table table = make_table("Chunks, experts computing meanwhile", {{"chunks", "1"},
                                                                           {"total_s", "s"},
                                                                           {"compute_s", "s"},
                                                                           {"comm_s", "s"},
                                                                           {"idle_ratio", "1"}});
  const comm::PipelineResult* best = &outcome.overlap.front();
  for (const comm::PipelineResult& row : outcome.overlap) {
    table.rows.push_back(
        {count_cell(row.num_chunks), row.total_s, row.compute_s, row.comm_s, row.idle_ratio});
    if (row.total_s < best->total_s) best = &row;
  }
  report.tables["overlap"] = std::move(table);
  const std::string stand_in = fmt::format(
      "the experts are a stand-in of {:.6g} s of floating-point work on the host", args.compute_s);
  report.metrics["overlap_idle_ratio"] =
      value_metric(MetricKind::kMeasured, "1", best->idle_ratio,
                   fmt::format("share of dispatch, experts and combine in which the experts do not "
                               "compute, in {} chunks (the fastest tried); {}",
                               best->num_chunks, stand_in));
  report.metrics["overlap_chunks"] =
      value_metric(MetricKind::kMeasured, "1", static_cast<double>(best->num_chunks),
                   "number of chunks with the shortest total");
  const comm::PipelineResult& whole = outcome.overlap.front();
  report.metrics["comm_share_ratio"] = value_metric(
      MetricKind::kMeasured, "1", whole.comm_s / (whole.comm_s + whole.compute_s),
      fmt::format("dispatch and combine over these and the experts, each by itself; {}", stand_in));
}

void add_bandwidth(const RunArgs& args, const RunOutcome& outcome, const GateContext& machine,
                   report::Report& report) {
  if (outcome.sizes.empty()) return;
  const SizeOutcome& largest = outcome.sizes.back();
  if (!outcome.moves_data) {
    report.metrics["iteration_overhead_s"] =
        sampled_metric("s", largest.result.iteration_s, "no iteration ended",
                       "time of an iteration that moves nothing: the tool's own part");
    report.highlights = {"iteration_overhead_s"};
    return;
  }
  const bool is_uniform = args.pattern == "uniform";
  report.metrics["a2a_busbw_bytes_per_s"] = value_metric(
      MetricKind::kMeasured, "bytes/s", largest.busbw_bytes_per_s,
      is_uniform
          ? "bytes of one rank x (n-1)/n / time at the largest size; time is the median over "
            "iterations of the slowest rank's"
          : "bytes that the busiest rank sends or receives, its own part left out, / time at "
            "the largest size; time is the median over iterations of the slowest rank's");
  report.metrics["a2a_algbw_bytes_per_s"] = value_metric(
      MetricKind::kMeasured, "bytes/s", static_cast<double>(largest.result.bytes) / largest.time_s,
      "bytes of the rank that sends most / time at the largest size");
  report.metrics["a2a_iteration_s"] =
      sampled_metric("s", largest.result.iteration_s, "no iteration ended",
                     "slowest rank's time of each iteration at the largest size");
  if (largest.sums.inter_bytes > 0) {
    report.metrics["a2a_node_inter_bytes_per_s"] = value_metric(
        MetricKind::kMeasured, "bytes/s",
        static_cast<double>(largest.sums.max_node_inter_bytes) / largest.time_s,
        "bytes that the busiest node sends to or receives from other nodes / time at the largest "
        "size: to be held against the NICs of a node");
  }
  double floor_s = largest.time_s;
  for (const SizeOutcome& row : outcome.sizes) floor_s = std::min(floor_s, row.time_s);
  report.metrics["a2a_floor_s"] =
      value_metric(MetricKind::kMeasured, "s", floor_s, "shortest median time of all sizes");
  if (machine.ceiling_bytes_per_s) {
    report.metrics["a2a_busbw_ceiling_bytes_per_s"] =
        value_metric(MetricKind::kModelled, "bytes/s", *machine.ceiling_bytes_per_s,
                     "ceiling of the bus bandwidth of this cluster, one way");
    report.metrics["a2a_busbw_ceiling_ratio"] = value_metric(
        MetricKind::kMeasured, "1", largest.busbw_bytes_per_s / *machine.ceiling_bytes_per_s,
        "measured bus bandwidth at the largest size over the ceiling");
  }
  report.highlights = {"a2a_busbw_bytes_per_s", "a2a_floor_s", "num_ranks", "num_nodes"};
}

}  // namespace

int worst_rank(const comm::ExchangeResult& result) {
  int worst = -1;
  double worst_s = -1.0;
  for (std::size_t r = 0; r < result.rank_s.size(); ++r) {
    if (result.rank_s[r].empty()) continue;
    const double median_s = stats::median(result.rank_s[r]);
    if (median_s <= worst_s) continue;
    worst_s = median_s;
    worst = static_cast<int>(r);
  }
  return worst;
}

topology::BenchmarkResults results_of(const RunOutcome& outcome) {
  topology::BenchmarkResults results;
  results.tool = "moe-a2a";
  results.operation = "alltoall";
  results.size_semantics = "bytes that one rank sends in all";
  results.num_ranks = static_cast<std::int64_t>(outcome.places.size());
  results.num_hosts =
      static_cast<std::int64_t>(std::set<int>(outcome.nodes.begin(), outcome.nodes.end()).size());
  for (const SizeOutcome& size : outcome.sizes) {
    topology::ResultRow row;
    row.bytes = static_cast<double>(size.result.bytes);
    row.time_s = size.time_s;
    row.busbw_bytes_per_s = size.busbw_bytes_per_s;
    if (size.result.is_verified) row.num_wrong = num_wrong(size.result.wrong);
    results.rows.push_back(row);
  }
  return results;
}

void report_run(const RunArgs& args, const RunOutcome& outcome, const GateContext& machine,
                report::Report& report) {
  const std::set<int> nodes(outcome.nodes.begin(), outcome.nodes.end());
  report.metrics["num_ranks"] = value_metric(
      MetricKind::kMeasured, "1", static_cast<double>(outcome.places.size()), "ranks of the run");
  report.metrics["num_nodes"] =
      value_metric(MetricKind::kMeasured, "1", static_cast<double>(nodes.size()),
                   "different host names of ranks");
  add_bandwidth(args, outcome, machine, report);
  add_sizes(outcome, machine, report);
  add_ranks(outcome, report);
  add_pairs(outcome, report);
  add_moe(outcome, report);
  add_overlap(args, outcome, report);
}

}  // namespace moe::app
