#include "lib/app/a2a/a2a_second_pass.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/table_builder.hpp"
#include "lib/base/units.hpp"

namespace moe::app {
namespace {

using topology::NodeState;

std::string direction_of(const topology::NodeJudgement& judgement) {
  if (judgement.is_slow_sending && judgement.is_slow_receiving) return "sending and receiving";
  if (judgement.is_slow_sending) return "sending";
  return judgement.is_slow_receiving ? "receiving" : "";
}

void say_rank(const topology::NodeJudgement& judgement, int rank, const RunOutcome& outcome,
              ReportSession& session) {
  const std::string name = rank_name(outcome, rank);
  const json::Json evidence = {{"rank", rank}, {"direction", direction_of(judgement)}};
  switch (judgement.state) {
    case NodeState::kBad:
      session.add_finding("suspects.bad", report::Severity::kError,
                          fmt::format("{} is slow {} with a partner that is good with others: the "
                                      "fault is on its side",
                                      name, direction_of(judgement)),
                          "Take it out of service and look at its port, cable and PCIe link",
                          evidence);
      return;
    case NodeState::kCleared:
      session.add_finding("suspects.cleared", report::Severity::kInfo,
                          fmt::format("{} was slow in the first pass and is not with a good "
                                      "partner: its partners or the paths to them are slow",
                                      name),
                          "", evidence);
      return;
    case NodeState::kUntested:
    case NodeState::kSuspect:
      session.add_finding("suspects.untested", report::Severity::kWarning,
                          fmt::format("{} is a suspect and was not tested again", name),
                          "No rank was good enough to test it with, or the run was stopped",
                          evidence);
      return;
    case NodeState::kGood:
      return;
  }
}

}  // namespace

void report_second_pass(const comm::SecondPass& pass, const RunOutcome& outcome,
                        ReportSession& session) {
  report::Table table = make_table("Suspects, after a second pass with good partners",
                                   {{"rank", "1"},
                                    {"host", ""},
                                    {"state", ""},
                                    {"direction", ""},
                                    {"partner", ""},
                                    {"sends_bytes_per_s", "bytes/s"},
                                    {"receives_bytes_per_s", "bytes/s"},
                                    {"first_worst_bytes_per_s", "bytes/s"}});
  for (std::size_t rank = 0; rank < pass.verdict.nodes.size(); ++rank) {
    const topology::NodeJudgement& judgement = pass.verdict.nodes[rank];
    if (judgement.state == NodeState::kGood || !pass.verdict.reason.empty()) continue;
    std::optional<double> sends;
    std::optional<double> receives;
    std::string partner;
    const int self = static_cast<int>(rank);
    for (const comm::PairFigure& figure : pass.figures) {
      if (figure.sender == self) sends = figure.bytes_per_s;
      if (figure.receiver == self) receives = figure.bytes_per_s;
      if (figure.sender == self) partner = fmt::format("rank {}", figure.receiver);
    }
    table.rows.push_back({count_cell(self), outcome.places[rank].host,
                          std::string(topology::node_state_name(judgement.state)),
                          direction_of(judgement), partner, optional_cell(sends),
                          optional_cell(receives), optional_cell(judgement.worst_bytes_per_s)});
    say_rank(judgement, self, outcome, session);
  }
  if (!table.rows.empty()) session.report().tables["suspects"] = std::move(table);
}

}  // namespace moe::app
