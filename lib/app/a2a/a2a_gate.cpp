#include "lib/app/a2a/a2a_gate.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/units.hpp"

namespace moe::app {
namespace {

struct Limit {
  double bytes = 0.0;
  double busbw_bytes_per_s = 0.0;
  std::string source;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kUsage, message);
}

// "1GiB=300".
Limit parse_threshold(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) {
    refuse(
        fmt::format("--min-busbw {}: expected SIZE=GB/s, for instance 1GiB=300; an average over "
                    "sizes is no figure to gate on",
                    text));
  }
  Limit limit;
  limit.bytes = static_cast<double>(parse_bytes(text.substr(0, equals)));
  const std::string rate = text.substr(equals + 1);
  const auto value = parse_number<double>(rate);
  if (!value || *value <= 0.0) {
    refuse(fmt::format("--min-busbw {}: expected a rate in GB/s after the =", text));
  }
  limit.busbw_bytes_per_s = *value * 1e9;
  limit.source = "--min-busbw";
  return limit;
}

const topology::ResultRow* row_at(const topology::BenchmarkResults& results, double bytes) {
  for (const topology::ResultRow& row : results.rows) {
    // nccl-tests rounds sizes down to a multiple of 16 bytes a rank.
    const bool is_size =
        std::abs(row.bytes - bytes) <= 16.0 * static_cast<double>(results.num_ranks);
    if (!row.is_in_place && is_size) return &row;
  }
  return nullptr;
}

const topology::ResultRow* largest_row(const topology::BenchmarkResults& results) {
  const topology::ResultRow* largest = nullptr;
  for (const topology::ResultRow& row : results.rows) {
    if (!row.is_in_place && (largest == nullptr || row.bytes > largest->bytes)) largest = &row;
  }
  return largest;
}

topology::BenchmarkResults read_baseline(const GateArgs& args,
                                         const topology::BenchmarkResults& results) {
  const FileMap file(args.baseline);
  topology::ResultOptions options;
  options.num_ranks = results.num_ranks;
  return topology::read_results(
      {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, args.baseline,
      options);
}

void add_baseline(const GateArgs& args, const topology::BenchmarkResults& results,
                  std::vector<Limit>& limits) {
  const topology::BenchmarkResults baseline = read_baseline(args, results);
  if (baseline.num_ranks != results.num_ranks) {
    refuse(fmt::format("--baseline {}: {} ranks there, {} here", args.baseline, baseline.num_ranks,
                       results.num_ranks));
  }
  bool has_size = false;
  for (const topology::ResultRow& row : baseline.rows) {
    if (row.is_in_place || row_at(results, row.bytes) == nullptr) continue;
    has_size = true;
    limits.push_back({row.bytes, row.busbw_bytes_per_s * (1.0 - args.tolerance),
                      fmt::format("baseline less {:.0f} %", args.tolerance * 100.0)});
  }
  if (!has_size) refuse(fmt::format("--baseline {}: no size in common", args.baseline));
}

// A bandwidth says something from the size on at which half of what can be reached is: by the model
// of the machine where it is known, else by the sweep itself.
void refuse_small_size(const std::string& option, double bytes,
                       const topology::BenchmarkResults& results, const GateContext& context) {
  const bool is_modelled = context.half_bandwidth_bytes.has_value();
  const std::optional<double> half =
      is_modelled ? context.half_bandwidth_bytes : topology::half_bandwidth_of(results);
  if (!half || bytes >= *half) return;
  refuse(fmt::format("{}: below {} {}, so that time is all latency; gate on a larger size", option,
                     format_bytes_binary(*half),
                     is_modelled ? "half of the ceiling is out of reach"
                                 : "this sweep does not come to half of its best bandwidth"));
}

std::vector<Limit> limits_of(const GateArgs& args, const topology::BenchmarkResults& results,
                             const GateContext& context) {
  std::vector<Limit> limits;
  for (const std::string& text : args.thresholds) {
    const Limit limit = parse_threshold(text);
    if (row_at(results, limit.bytes) == nullptr) {
      refuse(fmt::format("--min-busbw {}: the results have no such size", text));
    }
    refuse_small_size("--min-busbw " + text, limit.bytes, results, context);
    limits.push_back(limit);
  }
  if (!args.baseline.empty()) add_baseline(args, results, limits);
  if (args.min_of_bound > 0.0) {
    if (!context.ceiling_bytes_per_s) {
      refuse("--min-of-bound: the ceiling is unknown; name the machine with --gpu or --topology");
    }
    const topology::ResultRow& largest = *largest_row(results);
    refuse_small_size("--min-of-bound", largest.bytes, results, context);
    limits.push_back({largest.bytes, args.min_of_bound * *context.ceiling_bytes_per_s,
                      fmt::format("{} of the ceiling", args.min_of_bound)});
  }
  return limits;
}

std::string dispatch_name(const topology::DispatchRow& row) {
  return fmt::format("{} of {} ranks{}{}", row.phase, row.num_ranks,
                     row.dtype.empty() ? "" : ", " + row.dtype,
                     row.scope.empty() ? "" : ", " + row.scope);
}

struct DispatchLimit {
  const topology::DispatchRow* row = nullptr;
  double bytes_per_s = 0.0;  // judged: logical, or on the wire
  double limit_bytes_per_s = 0.0;
  std::string source;
};

void add_dispatch_baseline(const GateArgs& args, const topology::BenchmarkResults& results,
                           std::vector<DispatchLimit>& limits) {
  const topology::BenchmarkResults baseline = read_baseline(args, results);
  const std::size_t before = limits.size();
  for (const topology::DispatchRow& row : results.dispatch_rows) {
    for (const topology::DispatchRow& other : baseline.dispatch_rows) {
      if (dispatch_name(row) != dispatch_name(other)) continue;
      limits.push_back({&row, row.logical_bytes_per_s,
                        other.logical_bytes_per_s * (1.0 - args.tolerance),
                        fmt::format("baseline less {:.0f} %", args.tolerance * 100.0)});
    }
  }
  if (limits.size() == before) {
    refuse(fmt::format("--baseline {}: no row in common", args.baseline));
  }
}

std::vector<DispatchLimit> dispatch_limits_of(const GateArgs& args,
                                              const topology::BenchmarkResults& results,
                                              const GateContext& context) {
  std::vector<DispatchLimit> limits;
  if (!args.thresholds.empty()) {
    refuse(
        "--min-busbw: rows of dispatch and combine have no size and print logical bandwidth; "
        "gate with --min-of-bound or --baseline");
  }
  if (!args.baseline.empty()) add_dispatch_baseline(args, results, limits);
  if (args.min_of_bound <= 0.0) return limits;
  if (!context.cluster) {
    refuse("--min-of-bound: the ceiling is unknown; name the machine with --gpu or --topology");
  }
  for (const topology::DispatchRow& row : results.dispatch_rows) {
    const std::optional<DispatchBound> bound = dispatch_bound(row, *context.cluster);
    // Of both phases together the time is a sum: neither is judged by it.
    if (!bound || row.phase == "dispatch + combine") continue;
    limits.push_back(
        {&row, bound->wire_bytes_per_s, args.min_of_bound * bound->bound_bytes_per_s,
         fmt::format("{} of the rate of the {}, on the wire", args.min_of_bound, bound->carrier)});
  }
  if (limits.empty()) refuse("--min-of-bound: the number of ranks is not known; give --ranks");
  return limits;
}

bool judge_dispatch(const GateArgs& args, const topology::BenchmarkResults& results,
                    const GateContext& context, ReportSession& session) {
  report::Table table = make_table("Gate", {{"row", ""},
                                            {"bytes_per_s", "bytes/s"},
                                            {"limit_bytes_per_s", "bytes/s"},
                                            {"source", ""},
                                            {"verdict", ""}});
  bool has_failed = false;
  for (const DispatchLimit& limit : dispatch_limits_of(args, results, context)) {
    const bool is_good = limit.bytes_per_s >= limit.limit_bytes_per_s;
    has_failed = has_failed || !is_good;
    table.rows.push_back({dispatch_name(*limit.row), limit.bytes_per_s, limit.limit_bytes_per_s,
                          limit.source, std::string(is_good ? "pass" : "below")});
    if (is_good) continue;
    session.add_finding(
        "gate.below", report::Severity::kError,
        fmt::format("{}: {:.1f} GB/s, the limit is {:.1f} GB/s ({})", dispatch_name(*limit.row),
                    limit.bytes_per_s / 1e9, limit.limit_bytes_per_s / 1e9, limit.source),
        "Look at the worst rank, its NIC and its host; run the topology lint there");
  }
  session.report().tables["gate"] = std::move(table);
  return has_failed;
}

}  // namespace

std::optional<DispatchBound> dispatch_bound(const topology::DispatchRow& row,
                                            const topology::Cluster& cluster) {
  if (row.num_ranks < 2) return std::nullopt;
  topology::Cluster job = cluster;
  job.num_ranks = row.num_ranks;
  const double n = static_cast<double>(row.num_ranks);
  const double remote = topology::remote_share(job);
  DispatchBound bound;
  if (remote > 0.0 && row.scope != "NVLink") {
    bound = {row.logical_bytes_per_s * remote, cluster.nic_bytes_per_s, "NICs"};
  } else {
    const double domain = static_cast<double>(std::min(cluster.gpus_per_domain, row.num_ranks));
    // Between domains NVLink carries what the NICs brought too, once more.
    const double share = remote > 0.0 ? (domain - 1.0) / domain : (n - 1.0) / n;
    bound = {row.logical_bytes_per_s * share, cluster.intra_bytes_per_s, "links inside the domain"};
  }
  if (bound.bound_bytes_per_s <= 0.0) return std::nullopt;
  return bound;
}

void add_gate_options(Options& options, GateArgs& args) {
  options.group("Gate");
  options.texts(
      "--min-busbw", "SIZE=GB/s", args.thresholds,
      "Bus bandwidth that a size must reach; may be given several times. SIZE in units of "
      "this toolkit: nccl-tests' 1G is 1GiB here");
  options.text("--baseline", "FILE", args.baseline,
               "Results of an earlier run, a report of moe-a2a too: every size in common must come "
               "close to it");
  options.real("--tolerance", args.tolerance, RealRange{0.0, 0.9},
               "Share by which a size may fall short of the baseline");
  options.real("--min-of-bound", args.min_of_bound, RealRange{0.0, 1.0},
               "Share of the ceiling that the largest size must reach; 0 is off, 0.8 is usual");
}

int judge_gate(const GateArgs& args, const topology::BenchmarkResults& results,
               const GateContext& context, ReportSession& session) {
  const bool has_gate =
      !args.thresholds.empty() || !args.baseline.empty() || args.min_of_bound > 0.0;
  if (!has_gate) return kExitOk;
  if (!results.dispatch_rows.empty()) {
    return judge_dispatch(args, results, context, session) ? kExitCheckFailed : kExitOk;
  }
  if (results.num_ranks < 2) refuse("a gate on one rank means nothing: no byte leaves it");
  if (largest_row(results) == nullptr) return kExitNothingMeasured;
  report::Table table = make_table("Gate", {{"size_bytes", "bytes"},
                                            {"busbw_bytes_per_s", "bytes/s"},
                                            {"limit_bytes_per_s", "bytes/s"},
                                            {"source", ""},
                                            {"verdict", ""}});
  bool has_failed = false;
  for (const Limit& limit : limits_of(args, results, context)) {
    const topology::ResultRow& row = *row_at(results, limit.bytes);
    const bool is_good = row.busbw_bytes_per_s >= limit.busbw_bytes_per_s;
    has_failed = has_failed || !is_good;
    table.rows.push_back({row.bytes, row.busbw_bytes_per_s, limit.busbw_bytes_per_s, limit.source,
                          std::string(is_good ? "pass" : "below")});
    if (is_good) continue;
    session.add_finding(
        "gate.below", report::Severity::kError,
        fmt::format("{}: {:.1f} GB/s, the limit is {:.1f} GB/s ({})",
                    format_bytes_binary(row.bytes), row.busbw_bytes_per_s / 1e9,
                    limit.busbw_bytes_per_s / 1e9, limit.source),
        "Run the topology lint on every node; then pair suspects with nodes known to be good");
  }
  session.report().tables["gate"] = std::move(table);
  return has_failed ? kExitCheckFailed : kExitOk;
}

}  // namespace moe::app
