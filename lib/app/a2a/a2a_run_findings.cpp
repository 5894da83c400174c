// moe-a2a run: what is to be said of a run, and how it ends.

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_run.hpp"
#include "lib/app/a2a/a2a_second_pass.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/base/units.hpp"

namespace moe::app {
namespace {

using report::Severity;

constexpr std::size_t kMaxShown = 4;

void say_wrong(const std::string& what, const std::vector<comm::WrongData>& wrong,
               const RunOutcome& outcome, ReportSession& session) {
  if (wrong.empty()) return;
  const comm::WrongData& first = wrong.front();
  session.add_finding(
      "data.corrupt", Severity::kError,
      fmt::format("{}: {} wrong bytes from {} to {}, the first at offset {}{}", what,
                  first.num_wrong_bytes, rank_name(outcome, first.sender),
                  rank_name(outcome, first.receiver), first.first_offset,
                  wrong.size() > 1 ? fmt::format("; {} such transfers", wrong.size()) : ""),
      "Take the node out of service: times of wrong data mean nothing",
      json::Json{{"sender", first.sender},
                 {"receiver", first.receiver},
                 {"wrong_bytes", first.num_wrong_bytes},
                 {"first_offset", first.first_offset}});
}

int judge_data(const RunOutcome& outcome, ReportSession& session) {
  bool is_bad = false;
  for (const SizeOutcome& size : outcome.sizes) {
    is_bad = is_bad || !size.result.wrong.empty();
    say_wrong(fmt::format("all-to-all of {}",
                          format_bytes_binary(static_cast<double>(size.result.bytes))),
              size.result.wrong, outcome, session);
  }
  for (const MoeOutcome& phase : outcome.moe) {
    is_bad = is_bad || !phase.wrong.empty();
    say_wrong(phase.phase, phase.wrong, outcome, session);
  }
  if (outcome.gather_scatter && outcome.gather_scatter->num_wrong > 0) {
    is_bad = true;
    session.add_finding("data.corrupt", Severity::kError,
                        fmt::format("all-gather and reduce-scatter: {} wrong values",
                                    outcome.gather_scatter->num_wrong),
                        "Take the node out of service: times of wrong data mean nothing");
  }
  if (is_bad) session.invalidate("the run delivered wrong data");
  return is_bad ? kExitCorruptData : kExitOk;
}

int judge_stuck(const RunOutcome& outcome, ReportSession& session) {
  report::Validity& validity = session.report().validity;
  if (outcome.is_partial || outcome.stuck) validity.partial = true;
  if (!outcome.stuck) {
    if (outcome.is_partial) validity.reasons.emplace_back("stopped before the end");
    return outcome.is_partial ? kExitRuntime : kExitOk;
  }
  const comm::StuckError& stuck = *outcome.stuck;
  json::Json evidence{{"silent_ranks", stuck.silent_ranks()}, {"pairs", json::Json::array()}};
  for (const comm::StuckPair& pair : stuck.pairs()) {
    evidence["pairs"].push_back({pair.sender, pair.receiver});
  }
  if (stuck.is_interruption()) {
    validity.reasons.emplace_back("stopped before the end, in the middle of a transfer");
    return kExitRuntime;
  }
  std::vector<std::string> names;
  for (const int rank : stuck.silent_ranks()) names.push_back(rank_name(outcome, rank));
  if (names.empty()) {
    for (std::size_t i = 0; i < std::min(kMaxShown, stuck.pairs().size()); ++i) {
      const comm::StuckPair& pair = stuck.pairs()[i];
      names.push_back(fmt::format("{} -> {}", rank_name(outcome, pair.sender),
                                  rank_name(outcome, pair.receiver)));
    }
  }
  const bool is_lost = !stuck.silent_ranks().empty();
  session.add_finding(
      is_lost ? "run.rank_lost" : "run.stuck", Severity::kError,
      names.empty() ? std::string(stuck.what())
                    : fmt::format("{}: {}. {}", is_lost ? "lost" : "hangs", fmt::join(names, "; "),
                                  stuck.what()),
      is_lost ? "Look at the host: was the process killed, did the node or its network go away?"
              : "Look at the link of these ranks; a larger --time-limit helps only where transfers "
                "are slow but alive",
      std::move(evidence));
  validity.reasons.emplace_back("not all ranks came to the end; what was complete before is kept");
  return kExitRuntime;
}

void say_oversubscription(const RunArgs& args, const RunOutcome& outcome, ReportSession& session) {
  if (args.backend == "nccl" || !outcome.moves_data) return;
  // Ranks of a host that may run on the same CPUs.
  std::map<std::pair<std::string, std::string>, std::int64_t> counts;
  std::map<std::pair<std::string, std::string>, std::int64_t> cpus;
  for (const comm::RankPlace& place : outcome.places) {
    ++counts[{place.host, place.device}];
    cpus[{place.host, place.device}] = place.num_cpus;
  }
  for (const auto& [where, count] : counts) {
    const std::int64_t available = cpus[where];
    if (available <= 0 || count <= available) continue;
    session.add_finding(
        "run.oversubscribed", Severity::kWarning,
        fmt::format("host {}: {} ranks share {} ({} of them): times hold the waits for a core",
                    where.first, count, where.second, available),
        "Judge medians and relations, not absolute bandwidth; or start fewer ranks",
        json::Json{{"host", where.first}, {"ranks", count}, {"cpus", available}});
  }
}

void say_nodes(const RunOutcome& outcome, const comm::PairVerdict& verdict, bool is_one_host,
               ReportSession& session) {
  for (const comm::SlowNode& node : verdict.nodes) {
    const auto found = std::find(outcome.nodes.begin(), outcome.nodes.end(), node.node);
    const int rank = is_one_host ? node.node : static_cast<int>(found - outcome.nodes.begin());
    const comm::RankPlace& place = outcome.places[static_cast<std::size_t>(rank)];
    const std::string link = place.nic.empty() ? "its link" : fmt::format("link {}", place.nic);
    session.add_finding(
        is_one_host ? "pairs.slow_rank" : "pairs.slow_host", Severity::kError,
        fmt::format("{}, {}: {} at {} to any other, {} between the others ({:.0f} %)",
                    is_one_host ? rank_name(outcome, rank) : fmt::format("host {}", place.host),
                    link, node.is_sending ? "sends" : "receives",
                    format_rate(node.bytes_per_s, "B/s"),
                    format_rate(node.others_bytes_per_s, "B/s"),
                    100.0 * node.bytes_per_s / node.others_bytes_per_s),
        "Look at this host's port, cable and switch port: rate, errors, PCIe width",
        json::Json{{"host", place.host},
                   {"nic", place.nic},
                   {"direction", node.is_sending ? "send" : "receive"},
                   {"bytes_per_s", node.bytes_per_s},
                   {"others_bytes_per_s", node.others_bytes_per_s}});
  }
}

int judge_pair_figures(const RunArgs& args, const RunOutcome& outcome, ReportSession& session) {
  if (outcome.pairs.empty()) return kExitOk;
  const double share = args.min_pair_share > 0.0 ? args.min_pair_share : kPairShare;
  const comm::PairVerdict verdict = comm::judge_pairs(outcome.pairs, outcome.nodes, share);
  const bool is_one_host =
      std::all_of(outcome.nodes.begin(), outcome.nodes.end(), [](int node) { return node == 0; });
  // On one host what differs is the scheduler, unless a gate asks.
  if (is_one_host && !(args.min_pair_share > 0.0)) return kExitOk;
  say_nodes(outcome, verdict, is_one_host, session);
  if (outcome.second_pass) report_second_pass(*outcome.second_pass, outcome, session);
  if (verdict.slow.empty()) return kExitOk;
  const comm::PairFigure& worst = verdict.slow.front();
  session.add_finding(
      "pairs.slow", Severity::kError,
      fmt::format("{} of {} pairs are below {:.0f} % of what the others reach, {}; the slowest is "
                  "{} -> {} at "
                  "{}",
                  verdict.slow.size(), outcome.pairs.size(), 100.0 * share,
                  format_rate(verdict.reachable_bytes_per_s, "B/s"),
                  rank_name(outcome, worst.sender), rank_name(outcome, worst.receiver),
                  format_rate(worst.bytes_per_s, "B/s")),
      "Pair the suspects with hosts known to be good",
      json::Json{{"sender", worst.sender},
                 {"receiver", worst.receiver},
                 {"bytes_per_s", worst.bytes_per_s}});
  return args.min_pair_share > 0.0 ? kExitCheckFailed : kExitOk;
}

void say_sizes(const RunOutcome& outcome, ReportSession& session) {
  const auto list = [](const std::vector<std::int64_t>& sizes) {
    std::vector<std::string> names;
    for (const std::int64_t size : sizes) {
      names.push_back(format_bytes_binary(static_cast<double>(size)));
    }
    return fmt::format("{}", fmt::join(names, ", "));
  };
  if (!outcome.sizes_too_small.empty()) {
    session.add_finding("size.too_small", Severity::kInfo,
                        fmt::format("left out: {}; the part of each pair is rounded down to 16 "
                                    "bytes, which leaves nothing or repeats another size",
                                    list(outcome.sizes_too_small)),
                        "");
  }
  if (!outcome.sizes_too_large.empty()) {
    session.add_finding("size.too_large", Severity::kWarning,
                        fmt::format("left out: {}; the buffers of all ranks of a host would take "
                                    "more than half of its free memory",
                                    list(outcome.sizes_too_large)),
                        "Run fewer ranks on a host, or smaller sizes");
  }
  for (const topology::Dip& dip : topology::find_dips(results_of(outcome), topology::kNotableDip)) {
    session.add_finding(
        "result.dip", Severity::kWarning,
        fmt::format("{}: {} after {} at the size before", format_bytes_binary(dip.bytes),
                    format_rate(dip.busbw_bytes_per_s, "B/s"),
                    format_rate(dip.before_bytes_per_s, "B/s")),
        "A dip in a sweep is a finding, not noise: caches, protocol changes and adaptive routing "
        "make them");
  }
}

}  // namespace

std::string rank_name(const RunOutcome& outcome, int rank) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= outcome.places.size()) {
    return fmt::format("rank {}", rank);
  }
  const comm::RankPlace& place = outcome.places[static_cast<std::size_t>(rank)];
  std::string name = fmt::format("rank {} (host {}", rank, place.host);
  if (!place.device.empty()) name += ", " + place.device;
  if (!place.nic.empty()) name += ", NIC " + place.nic;
  return name + ")";
}

int judge_run(const RunArgs& args, const RunOutcome& outcome, ReportSession& session) {
  say_oversubscription(args, outcome, session);
  if (outcome.moves_data) say_sizes(outcome, session);
  if (outcome.trace_tokens) {
    session.add_finding("trace.short", Severity::kWarning,
                        fmt::format("the trace has {} tokens, fewer than the ranks need: it begins "
                                    "again at its first",
                                    *outcome.trace_tokens),
                        "Use fewer --tokens or a longer trace");
  }
  const int pairs = judge_pair_figures(args, outcome, session);
  const int stuck = judge_stuck(outcome, session);
  const int data = judge_data(outcome, session);
  if (outcome.places.size() == 1 && outcome.moves_data) {
    session.add_finding("run.one_rank", Severity::kWarning,
                        "one rank: no byte leaves it, its bus bandwidth is 0 by definition",
                        "Start two ranks or more");
  }
  if (outcome.sizes.empty()) session.invalidate("no size was measured to its end");
  for (const int code : {data, stuck, pairs}) {
    if (code != kExitOk) return code;
  }
  return kExitOk;
}

}  // namespace moe::app
