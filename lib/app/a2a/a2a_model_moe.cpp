#include "lib/app/a2a/a2a_model_moe.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/topology/volumes.hpp"

namespace moe::app {
namespace {

topology::MoeTraffic traffic_of(const MoeArgs& args, std::int64_t ranks, bool is_combine) {
  topology::MoeTraffic traffic;
  traffic.tokens_per_rank = args.tokens;
  traffic.hidden = args.hidden;
  traffic.top_k = args.top_k;
  traffic.num_experts = args.experts;
  traffic.num_ranks = ranks;
  // Combine sends 16 bits back whatever came in.
  traffic.element_bytes = is_combine ? 2.0 : topology::element_bytes(args.dtype).value_or(2.0);
  return traffic;
}

topology::MoePoint point_of(const MoeArgs& args, const topology::MoeSeries& series) {
  topology::MoePoint point;
  point.gpu = series.gpu;
  point.phase = series.phase;
  point.dtype = series.dtype;
  point.num_ranks = series.num_ranks;
  point.num_nodes = series.num_nodes;
  point.hidden = args.hidden;
  point.top_k = args.top_k;
  point.num_experts = args.experts;
  point.tokens_per_rank = args.tokens;
  point.num_sms = args.sms > 0 ? args.sms : series.default_sms;
  return point;
}

void add_row(const std::string& what, const std::string& phase, const std::string& dtype,
             std::int64_t ranks, double logical, double wire, double time_s,
             const std::string& basis, report::Table& table) {
  table.rows.push_back(
      {what, phase, dtype, count_cell(ranks), logical, wire, time_s, logical / time_s, basis});
}

// Bytes that one rank sends over the network: every selection, or one copy for each domain.
void add_model_rows(const MoeArgs& args, const topology::A2aModel& model, const ClusterFacts& facts,
                    std::int64_t ranks, report::Table& table) {
  topology::A2aInput input = facts.input;
  input.cluster.num_ranks = ranks;
  const std::int64_t domain = std::min(input.cluster.gpus_per_domain, ranks);
  const std::int64_t num_domains = (ranks + domain - 1) / domain;
  for (const bool is_combine : {false, true}) {
    const topology::MoeTraffic traffic = traffic_of(args, ranks, is_combine);
    const double logical = topology::logical_bytes(traffic);
    const std::string phase = is_combine ? "combine" : "dispatch";
    const std::string dtype = is_combine ? "bfloat16" : args.dtype;
    const topology::A2aTime flat = model.predict(input, logical);
    add_row("all-to-all, flat", phase, dtype, ranks, logical,
            topology::remote_selection_bytes(traffic), flat.time_s, flat.how, table);
    if (num_domains < 2 || args.experts < num_domains) continue;
    const double copies = topology::distinct_groups(args.experts, num_domains, args.top_k);
    const double deduplicated = logical * copies / static_cast<double>(args.top_k);
    topology::A2aInput two_level = input;
    two_level.schedule = topology::Schedule::kTwoLevel;
    const topology::A2aTime time = model.predict(two_level, deduplicated);
    const double wire = deduplicated * topology::remote_share(two_level.cluster);
    add_row("all-to-all, one copy a domain", phase, dtype, ranks, logical, wire, time.time_s,
            fmt::format("{:.2f} distinct of {} domains for each token; {}", copies, num_domains,
                        time.how),
            table);
  }
}

// Every token to every rank and sums back, as some engines do instead: more bytes, simpler kernels.
void add_gather_rows(const MoeArgs& args, const topology::A2aModel& model,
                     const ClusterFacts& facts, std::int64_t ranks, report::Table& table) {
  for (const bool is_combine : {false, true}) {
    const std::string op = is_combine ? "reduce_scatter" : "all_gather";
    const topology::CollectiveSeries* series =
        model.find(facts.input.gpu, facts.input.library, op, ranks);
    if (series == nullptr) continue;
    const topology::MoeTraffic traffic = traffic_of(args, ranks, is_combine);
    const double whole = topology::logical_bytes(traffic) / static_cast<double>(args.top_k) *
                         static_cast<double>(ranks);
    add_row(is_combine ? "reduce-scatter" : "all-gather", is_combine ? "combine" : "dispatch",
            is_combine ? "bfloat16" : args.dtype, ranks, topology::logical_bytes(traffic),
            whole * topology::remote_selection_share(ranks), series->time_s(whole),
            fmt::format("{} points of {} {}", series->num_points, series->library, series->version),
            table);
  }
}

}  // namespace

void add_moe_options(Options& options, MoeArgs& args) {
  options.group("Dispatch and combine");
  options.integer("--tokens", args.tokens, IntRange{0, std::int64_t{1} << 30},
                  "Tokens of one rank; 0 leaves dispatch and combine out");
  options.integer("--hidden", args.hidden, IntRange{1, 1000000}, "Hidden size");
  options.integer("--top-k", args.top_k, IntRange{1, 1024}, "Experts of a token");
  options.integer("--experts", args.experts, IntRange{1, 100000}, "Routed experts of a layer");
  options.choice("--dtype", {"fp8", "bfloat16", "nvfp4"}, args.dtype,
                 "What dispatch sends; combine sends 16 bits");
  options.integer("--sms", args.sms, IntRange{0, 1024},
                  "SM budget where a library has one; 0 takes the one measured most");
}

void add_moe_prediction(const MoeArgs& args, const topology::MeasuredLaws& laws,
                        const topology::A2aModel& model, const ClusterFacts& facts,
                        std::int64_t ranks, ReportSession& session) {
  if (args.top_k > args.experts) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--top-k {}: there are only {} experts", args.top_k, args.experts));
  }
  report::Table table = make_table(
      fmt::format("Dispatch and combine of {} tokens a rank over {} ranks", args.tokens, ranks),
      {{"with", ""},
       {"phase", ""},
       {"dtype", ""},
       {"ranks", "1"},
       {"bytes_logical", "bytes"},
       {"bytes_wire", "bytes"},
       {"time_s", "s"},
       {"logical_bytes_per_s", "bytes/s"},
       {"basis", ""}});
  topology::MoeQuery query;
  query.gpu = facts.input.gpu;
  query.num_ranks = ranks;
  bool has_series = false;
  for (const topology::MoeSeries* series : topology::find_moe(laws, query)) {
    has_series = true;
    const topology::MoePoint point = point_of(args, *series);
    topology::MoeTraffic traffic = traffic_of(args, ranks, series->phase.starts_with("combine"));
    if (!series->phase.starts_with("combine")) {
      traffic.element_bytes = topology::element_bytes(series->dtype).value_or(2.0);
    }
    add_row(series->library + " " + series->api, series->phase, series->dtype, ranks,
            topology::logical_bytes(traffic), topology::moe_term("rank_bytes", point),
            series->time_s(point),
            fmt::format("{} points, error {:.0f} % in the median", series->num_points,
                        series->error.p50 * 100.0),
            table);
  }
  add_model_rows(args, model, facts, ranks, table);
  add_gather_rows(args, model, facts, ranks, table);
  session.report().tables[fmt::format("moe_ranks_{}", ranks)] = std::move(table);
  session.report().metrics[fmt::format("remote_selection_share.ranks_{}", ranks)] =
      value_metric(report::MetricKind::kModelled, "1", topology::remote_selection_share(ranks),
                   "share of selections that leave their rank under uniform routing, (P-1)/P");
  if (!has_series) {
    session.add_finding("moe.no_series", report::Severity::kInfo,
                        fmt::format("nobody measured dispatch and combine on {} ranks of {}; the "
                                    "rows rest on the all-to-all alone",
                                    ranks, facts.input.gpu),
                        "");
  }
}

}  // namespace moe::app
