// What a replay comes to: tables, metrics, findings.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/skew/replay_parts.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using report::Cell;
using report::MetricKind;

// A name as a column or metric may have it.
std::string column_key(const std::string& name) {
  std::string key;
  for (const char letter : name) {
    const bool is_plain = (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9');
    if (letter >= 'A' && letter <= 'Z') {
      key += static_cast<char>(letter - 'A' + 'a');
    } else {
      key += is_plain ? letter : '_';
    }
  }
  return key.empty() || key.front() < 'a' || key.front() > 'z' ? "t_" + key : key;
}

// Smallest mean balancedness on traces that the plan was not fitted to.
std::optional<double> smallest_unseen(const ReplayPlan& plan,
                                      const std::vector<balance::BalanceSummary>& balance) {
  std::optional<double> smallest;
  for (std::size_t t = 0; t < balance.size(); ++t) {
    const std::optional<double> mean = balance[t].mean;
    if (!mean || plan.fitted_to.count(t) != 0) continue;
    if (!smallest || *mean < *smallest) smallest = mean;
  }
  return smallest;
}

}  // namespace

void add_replay_matrix(const std::vector<ReplayPlan>& plans, const std::vector<LoadedTrace>& traces,
                       const ReplayFigures& replay, report::Report& report) {
  std::vector<report::Column> columns = {{"plan", ""}};
  for (const LoadedTrace& trace : traces) columns.push_back({column_key(trace.name()), "1"});
  columns.push_back({"smallest", "1"});
  columns.push_back({"smallest_unseen", "1"});
  report::Table table =
      make_table("Mean balancedness, plan by trace (mean / slowest GPU, over layers)", columns);
  for (std::size_t p = 0; p < plans.size(); ++p) {
    std::vector<Cell> row = {plans[p].name};
    std::optional<double> smallest;
    const std::optional<double> unseen = smallest_unseen(plans[p], replay.balance[p]);
    for (std::size_t t = 0; t < traces.size(); ++t) {
      const std::optional<double> mean = replay.balance[p][t].mean;
      row.push_back(mean ? Cell(*mean) : Cell());
      if (!mean) continue;
      if (!smallest || *mean < *smallest) smallest = mean;
    }
    row.push_back(smallest ? Cell(*smallest) : Cell());
    row.push_back(unseen && plans[p].name != "linear" ? Cell(*unseen) : Cell());
    table.rows.push_back(std::move(row));
  }
  report.tables["matrix"] = table;
}

// The way of planning that carries furthest. Plans for all traces but one are one way, judged by
// the worst of them: to pick the best would be to choose by the answer.
void add_replay_metrics(const std::vector<ReplayPlan>& plans, const ReplayFigures& replay,
                        ReportSession& session) {
  std::map<std::string, double> ways;
  for (std::size_t p = 1; p < plans.size(); ++p) {
    const std::optional<double> unseen = smallest_unseen(plans[p], replay.balance[p]);
    if (!unseen) continue;
    const std::string way = plans[p].fitted_to.size() > 1 ? "robust" : plans[p].name;
    const auto found = ways.emplace(way, *unseen).first;
    found->second = std::min(found->second, *unseen);
  }
  const auto best = std::max_element(
      ways.begin(), ways.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const char* how =
      "mean over layers of mean / slowest GPU, smallest over the traces that a plan was not fitted "
      "to, of the way of planning that carries furthest; robust plans are judged by the worst of "
      "the plans that leave one trace out";
  session.report().metrics["placement_gpu_balancedness_ratio"] =
      best != ways.end()
          ? value_metric(MetricKind::kReplayed, "1", best->second, how)
          : absent_metric(MetricKind::kReplayed, "1",
                          "every plan has seen every trace; add one that it was not fitted to",
                          how);
  session.report().highlights.push_back("placement_gpu_balancedness_ratio");
  if (best != ways.end()) session.report().settings["best_way"] = best->first;
}

void add_staleness_findings(const std::vector<ReplayPlan>& plans,
                            const std::vector<LoadedTrace>& traces, const ReplayFigures& replay,
                            ReportSession& session) {
  for (std::size_t p = 0; p < plans.size(); ++p) {
    std::optional<double> fitted;
    for (const std::size_t t : plans[p].fitted_to) {
      const std::optional<double> mean = replay.balance[p][t].mean;
      if (mean && (!fitted || *mean < *fitted)) fitted = mean;
    }
    if (!fitted) continue;
    std::optional<double> worst;
    std::string worst_trace;
    for (std::size_t t = 0; t < traces.size(); ++t) {
      const std::optional<double> mean = replay.balance[p][t].mean;
      if (!mean || plans[p].fitted_to.count(t) != 0 || (worst && *mean >= *worst)) continue;
      worst = mean;
      worst_trace = traces[t].name();
    }
    if (!worst || *worst >= *fitted - 0.1) continue;
    session.add_finding(
        "replay.stale", report::Severity::kWarning,
        fmt::format("plan \"{}\" falls from {:.3f} on what it was fitted to to {:.3f} on {}",
                    plans[p].name, *fitted, *worst, worst_trace),
        "fit one plan to several kinds of traffic, or plan again when traffic changes",
        {{"fitted", *fitted}, {"replayed", *worst}});
  }
}

void add_migration(const ReplayArgs& args, const std::vector<ReplayPlan>& plans,
                   const std::vector<LoadedTrace>& traces, const ReplayFigures& replay,
                   const ReplayTiming& timing, ReportSession& session) {
  if (args.from.empty()) return;
  const auto current = std::find_if(plans.begin(), plans.end(),
                                    [&](const ReplayPlan& plan) { return plan.name == args.from; });
  if (current == plans.end()) {
    throw Error(ErrorCode::kUsage, fmt::format("--from {}: no plan of that name", args.from));
  }
  const std::size_t from = static_cast<std::size_t>(current - plans.begin());
  report::Table table =
      make_table("Migration from \"" + args.from + "\"", {{"plan", ""},
                                                          {"trace", ""},
                                                          {"moved_slots", "1"},
                                                          {"moved_ratio", "1"},
                                                          {"moved_bytes", "bytes"},
                                                          {"migration_s", "s"},
                                                          {"saved_per_step_s", "s"},
                                                          {"payback_steps", "1"}});
  for (std::size_t p = 0; p < plans.size(); ++p) {
    if (p == from || plans[p].placement.slot_begin != current->placement.slot_begin) continue;
    const std::int64_t moved = balance::moved_slots(current->placement, plans[p].placement);
    const double bytes = static_cast<double>(moved) * static_cast<double>(args.expert_bytes);
    // All GPUs load at once; the one with most to load decides.
    std::int64_t most = 0;
    for (std::int32_t gpu = 0; gpu < plans[p].placement.num_gpus(); ++gpu) {
      std::int64_t of_gpu = 0;
      for (std::int32_t layer = 0; layer < plans[p].placement.num_layers; ++layer) {
        of_gpu += balance::moved_slots_of_gpu(current->placement, plans[p].placement, layer, gpu);
      }
      most = std::max(most, of_gpu);
    }
    const bool has_time = args.expert_bytes > 0 && args.link_bytes_per_s > 0.0;
    const double migration_s = has_time ? static_cast<double>(most) *
                                              static_cast<double>(args.expert_bytes) /
                                              args.link_bytes_per_s
                                        : 0.0;
    for (std::size_t t = 0; t < traces.size(); ++t) {
      const double saved = replay.mean_step[from][t] - replay.mean_step[p][t];
      const bool has_saving = timing.fit != nullptr;
      table.rows.push_back(
          {plans[p].name, traces[t].name(), count_cell(moved),
           static_cast<double>(moved) / static_cast<double>(plans[p].placement.slot_expert.size()),
           args.expert_bytes > 0 ? Cell(bytes) : Cell(), has_time ? Cell(migration_s) : Cell(),
           has_saving ? Cell(saved) : Cell(),
           has_time && has_saving && saved > 0.0 ? Cell(std::ceil(migration_s / saved)) : Cell()});
      if (has_saving && saved <= 0.0) {
        session.add_finding("replay.never_pays", report::Severity::kInfo,
                            fmt::format("moving from \"{}\" to \"{}\" saves nothing on {}",
                                        args.from, plans[p].name, traces[t].name()),
                            "");
      }
    }
  }
  session.report().tables["migration"] = table;
}

void add_replay_traffic(const ReplayArgs& args, const std::vector<ReplayPlan>& plans,
                        const std::vector<LoadedTrace>& traces, const balance::Cluster& cluster,
                        report::Report& report) {
  if (args.hidden_size == 0) return;
  report::Table table = make_table(
      "Traffic of dispatch and combine, per routed copy (bytes), tokens spread evenly over GPUs",
      {{"plan", ""},
       {"trace", ""},
       {"cross_gpu_even", "bytes"},
       {"cross_node_even", "bytes"},
       {"cross_gpu_local_first", "bytes"},
       {"cross_node_local_first", "bytes"}});
  const double copy_bytes =
      2.0 * static_cast<double>(args.hidden_size) * static_cast<double>(args.bytes_per_element);
  const double num_gpus = static_cast<double>(cluster.num_gpus());
  double same_node = 0.0;
  for (const std::int32_t a : cluster.node) {
    same_node += static_cast<double>(std::count(cluster.node.begin(), cluster.node.end(), a));
  }
  for (const ReplayPlan& plan : plans) {
    for (const LoadedTrace& trace : traces) {
      const LocalShares shares = local_shares(plan.placement, trace.loads, cluster);
      table.rows.push_back({plan.name, trace.name(), copy_bytes * (1.0 - 1.0 / num_gpus),
                            copy_bytes * (1.0 - same_node / (num_gpus * num_gpus)),
                            copy_bytes * shares.cross_gpu, copy_bytes * shares.cross_node});
    }
  }
  report.tables["traffic"] = table;
}

}  // namespace moe::app
