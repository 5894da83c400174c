// moe-skew plan: from recorded routing to a placement that an engine can load.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/balance/affinity.hpp"
#include "lib/balance/balancedness.hpp"
#include "lib/balance/eplb.hpp"
#include "lib/balance/planner.hpp"
#include "lib/base/atomic_file.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using balance::LoadMatrix;
using balance::Placement;
using report::MetricKind;

struct PlanArgs {
  TraceArgs trace;
  ClusterArgs cluster;
  std::vector<std::string> judge;
  std::string policy = "joint";
  std::int64_t num_groups = 1;
  bool spreads_nodes = false;
  std::string from;
  std::optional<double> max_moved;
  std::int64_t expert_bytes = 0;
  std::int64_t effort = 10'000;
  std::int64_t seed = 1;
  std::string out;
  std::string plan_format = "auto";
  OutputOptions output;
  AcceptanceOptions acceptance;
};

balance::PlanFormat format_of(const PlanArgs& args) {
  if (args.plan_format != "auto") return *balance::plan_format_of(args.plan_format);
  const std::string extension = std::filesystem::path(args.out).extension().string();
  if (extension == ".yaml" || extension == ".yml") return balance::PlanFormat::kTensorRtYaml;
  return extension == ".csv" ? balance::PlanFormat::kCsv : balance::PlanFormat::kSglangJson;
}

// Several traces as one, for a rule that knows one: each layer of each trace weighs the same.
LoadMatrix mean_of(const std::vector<LoadMatrix>& loads) {
  LoadMatrix sum = balance::scaled_to_equal_totals(loads.front());
  for (std::size_t i = 1; i < loads.size(); ++i) {
    const LoadMatrix scaled = balance::scaled_to_equal_totals(loads[i]);
    for (std::size_t j = 0; j < sum.values.size(); ++j) sum.values[j] += scaled.values[j];
  }
  return sum;
}

Placement plan_by_affinity(const PlanArgs& args, const LoadedTrace& trace,
                           const balance::Cluster& cluster, ReportSession& session) {
  balance::Transitions transitions(trace.loads.num_layers, trace.loads.num_experts);
  routing::RoutingInput input = routing::open_input(trace.path, open_options(args.trace));
  if (input.tokens == nullptr) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} holds counts alone; affinity needs the experts of each token",
                            trace.path, routing::format_name(input.info.format)));
  }
  if (input.info.layers != trace.counts.info.layers) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: layers without a single token; affinity has no transition there",
                            trace.path));
  }
  routing::TokenBlock block;
  while (input.tokens->next(block)) {
    const std::size_t row = static_cast<std::size_t>(block.num_layers * block.top_k);
    for (std::int64_t token = 0; token < block.num_tokens; ++token) {
      transitions.add({block.ids_of(token, 0), row}, static_cast<std::int32_t>(block.top_k));
    }
  }
  const Placement placement = balance::plan_affinity(transitions, trace.loads, cluster);
  const Placement linear =
      balance::linear_placement(cluster, trace.loads.num_layers, trace.loads.num_experts);
  report::Table table = make_table("Transitions from layer to layer",
                                   {{"placement", ""}, {"cross_gpu", "1"}, {"cross_node", "1"}});
  const auto add = [&](const char* name, const balance::TransitionShares& shares) {
    table.rows.push_back({std::string(name), shares.cross_gpu, shares.cross_node});
  };
  add("linear", balance::transition_shares(linear, cluster, transitions));
  const auto reached = balance::transition_shares(placement, cluster, transitions);
  const auto bound = balance::transition_bound(cluster, transitions);
  add("affinity", reached);
  add("lower bound", bound);
  report::Report& report = session.report();
  report.tables["transitions"] = table;
  const char* how =
      "share of pairs (expert of a token in one layer, in the next) that lie on two GPUs";
  report.metrics["transition_cross_gpu_ratio"] =
      value_metric(MetricKind::kReplayed, "1", reached.cross_gpu, how);
  report.metrics["transition_cross_gpu_bound_ratio"] = value_metric(
      MetricKind::kModelled, "1", bound.cross_gpu,
      "no placement of one replica an expert has less: each expert keeps its largest flows");
  return placement;
}

struct Planned {
  Placement placement;
  std::string policy;
  double plan_s = 0.0;
  std::int64_t num_moved = -1;
};

Planned make_plan(const PlanArgs& args, const std::vector<LoadedTrace>& traces,
                  const balance::Cluster& cluster, const Placement* current,
                  ReportSession& session) {
  std::vector<LoadMatrix> loads;
  for (const LoadedTrace& trace : traces) loads.push_back(trace.loads);
  const SteadyClock clock;
  const double begin_s = clock.now_s();
  Planned planned;
  if (args.policy == "eplb") {
    const balance::EplbResult result =
        balance::plan_eplb(loads.size() == 1 ? loads.front() : mean_of(loads),
                           {.num_slots = cluster.num_slots(),
                            .num_groups = static_cast<std::int32_t>(args.num_groups),
                            .num_nodes = cluster.num_nodes(),
                            .num_gpus = cluster.num_gpus()});
    planned.placement = result.placement;
    planned.policy =
        result.is_hierarchical ? "eplb, hierarchical: groups stay on one node" : "eplb, global";
  } else if (args.policy == "affinity") {
    planned.placement = plan_by_affinity(args, traces.front(), cluster, session);
    planned.policy = "affinity";
  } else if (args.policy == "linear") {
    planned.placement =
        balance::linear_placement(cluster, loads.front().num_layers, loads.front().num_experts);
    planned.policy = "linear";
  } else {
    balance::PlanOptions options;
    options.current = current;
    options.max_moved_ratio = args.max_moved.value_or(1.0);
    options.num_groups = static_cast<std::int32_t>(args.num_groups);
    options.spreads_nodes = args.spreads_nodes;
    // Several traces, moved slots: the default of one trace is a start only.
    options.max_evaluations = args.effort * (loads.size() > 1 ? 10 : 1);
    options.seed = static_cast<std::uint64_t>(args.seed);
    planned.placement = balance::plan_joint(loads, cluster, options).placement;
    planned.policy = loads.size() > 1 ? "joint, over all traces" : "joint";
  }
  planned.plan_s = clock.now_s() - begin_s;
  if (current != nullptr) planned.num_moved = balance::moved_slots(*current, planned.placement);
  return planned;
}

std::vector<report::Cell> summary_row(const std::string& trace, const std::string& placement,
                                      const balance::BalanceSummary& summary) {
  const auto cell = [](const std::optional<double>& value) {
    return value ? report::Cell(*value) : report::Cell();
  };
  return {trace,
          placement,
          cell(summary.mean),
          cell(summary.p10),
          cell(summary.worst),
          cell(summary.of_sums)};
}

void add_balance_tables(const std::vector<LoadedTrace>& traces, std::size_t num_fitted,
                        const Planned& planned, const balance::Cluster& cluster,
                        const std::vector<std::int32_t>& layer_numbers, ReportSession& session) {
  report::Report& report = session.report();
  report::Table table =
      make_table("Balancedness (mean / slowest GPU, over layers)", {{"trace", ""},
                                                                    {"placement", ""},
                                                                    {"mean", "1"},
                                                                    {"p10", "1"},
                                                                    {"worst", "1"},
                                                                    {"of_sums", "1"}});
  report::Table layers = make_table(
      "Layers", {{"trace", ""}, {"layer", "1"}, {"linear", "1"}, {"plan", "1"}, {"bound", "1"}});
  layers.is_detail = true;
  const Placement linear = balance::linear_placement(cluster, planned.placement.num_layers,
                                                     planned.placement.num_experts);
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const LoadedTrace& trace = traces[i];
    const auto before = balance::balance_of(linear, trace.loads, cluster.speed);
    const auto after = balance::balance_of(planned.placement, trace.loads, cluster.speed);
    const std::string name = trace.name() + (i < num_fitted ? " (fitted)" : " (judged)");
    table.rows.push_back(summary_row(name, "linear", before));
    table.rows.push_back(summary_row(name, "plan", after));
    for (std::int32_t layer = 0; layer < trace.loads.num_layers; ++layer) {
      const auto cell = [&](const std::optional<double>& value) {
        return value ? report::Cell(*value) : report::Cell();
      };
      const std::size_t row = static_cast<std::size_t>(layer);
      layers.rows.push_back({trace.name(), count_cell(layer_numbers[row]), cell(before.layers[row]),
                             cell(after.layers[row]),
                             cell(balance::balancedness_bound(trace.loads.layer(layer), cluster))});
    }
  }
  report.tables["balancedness"] = table;
  report.tables["layers"] = layers;
  report.charts.push_back({"Balancedness by layer",
                           report::ChartKind::kLine,
                           "layers",
                           "layer",
                           {"linear", "plan"},
                           "trace"});
}

// Smallest mean over traces [begin, end).
std::optional<double> smallest_mean(const std::vector<LoadedTrace>& traces, std::size_t begin,
                                    std::size_t end, const Placement& placement,
                                    const balance::Cluster& cluster) {
  std::optional<double> smallest;
  for (std::size_t i = begin; i < end; ++i) {
    const auto mean = balance::balance_of(placement, traces[i].loads, cluster.speed).mean;
    if (mean && (!smallest || *mean < *smallest)) smallest = mean;
  }
  return smallest;
}

void add_metrics(const PlanArgs& args, const std::vector<LoadedTrace>& traces,
                 std::size_t num_fitted, const Planned& planned, const balance::Cluster& cluster,
                 ReportSession& session) {
  auto& metrics = session.report().metrics;
  const auto ratio = [&](const char* name, const std::optional<double>& value, const char* reason,
                         const char* how) {
    metrics[name] = value ? value_metric(MetricKind::kReplayed, "1", *value, how)
                          : absent_metric(MetricKind::kReplayed, "1", reason, how);
  };
  ratio("fitted_gpu_balancedness_ratio",
        smallest_mean(traces, 0, num_fitted, planned.placement, cluster), "no load in any layer",
        "mean over layers of mean / slowest GPU, smallest of the traces that the plan was fitted "
        "to");
  ratio("placement_gpu_balancedness_ratio",
        smallest_mean(traces, num_fitted, traces.size(), planned.placement, cluster),
        "no trace to judge by; give --judge TRACE: a plan always suits the data it was fitted to",
        "mean over layers of mean / slowest GPU, smallest of the traces that the plan has not "
        "seen");
  metrics["placement_colocated_replicas_count"] =
      value_metric(MetricKind::kModelled, "1",
                   static_cast<double>(balance::colocated_replicas(planned.placement)),
                   "slots that hold an expert which its GPU holds already, over all layers");
  metrics["placement_redundant_slots_count"] =
      value_metric(MetricKind::kModelled, "1",
                   static_cast<double>(cluster.num_slots() - planned.placement.num_experts),
                   "slots of a layer beyond one for each expert");
  metrics["plan_s"] = value_metric(MetricKind::kMeasured, "s", planned.plan_s,
                                   "wall time of planning all layers, validation included");
  if (args.expert_bytes > 0) {
    metrics["placement_redundant_bytes"] =
        value_metric(MetricKind::kModelled, "bytes",
                     static_cast<double>(cluster.num_slots() - planned.placement.num_experts) *
                         static_cast<double>(planned.placement.num_layers) *
                         static_cast<double>(args.expert_bytes),
                     "redundant slots of all layers x --expert-bytes");
  }
  if (planned.num_moved < 0) return;
  const double all_slots = static_cast<double>(planned.placement.slot_expert.size());
  metrics["placement_moved_slots_count"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(planned.num_moved),
                   "slots whose expert was not on the same GPU in --from");
  metrics["placement_moved_slots_ratio"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(planned.num_moved) / all_slots,
                   "the same over all slots of all layers");
  if (args.expert_bytes > 0) {
    metrics["placement_moved_bytes"] = value_metric(
        MetricKind::kModelled, "bytes",
        static_cast<double>(planned.num_moved) * static_cast<double>(args.expert_bytes),
        "moved slots x --expert-bytes");
  }
}

void write_plan_file(const PlanArgs& args, const Planned& planned,
                     const std::vector<std::int32_t>& layers, ReportSession& session) {
  session.report().settings["out"] = args.out;
  if (args.out.empty()) return;
  const balance::PlanFormat format = format_of(args);
  session.report().settings["plan_format"] = balance::plan_format_name(format);
  write_file_atomically(args.out, balance::write_plan({planned.placement, layers}, format));
}

// The hottest experts and where their replicas went.
void add_replicas_table(const LoadedTrace& trace, const Planned& planned, report::Report& report) {
  report::Table table = make_table(
      "Replicated experts",
      {{"layer", "1"}, {"expert", "1"}, {"load_over_mean", "1"}, {"replicas", "1"}, {"gpus", ""}});
  table.is_detail = true;
  const Placement& placement = planned.placement;
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    std::vector<std::vector<std::int32_t>> gpus(static_cast<std::size_t>(placement.num_experts));
    for (std::int32_t gpu = 0; gpu < placement.num_gpus(); ++gpu) {
      const std::size_t begin =
          static_cast<std::size_t>(placement.slot_begin[static_cast<std::size_t>(gpu)]);
      const std::size_t end =
          static_cast<std::size_t>(placement.slot_begin[static_cast<std::size_t>(gpu) + 1]);
      for (std::size_t slot = begin; slot < end; ++slot) {
        gpus[static_cast<std::size_t>(placement.layer(layer)[slot])].push_back(gpu);
      }
    }
    const auto loads = trace.loads.layer(layer);
    const double mean = balance::total(loads) / static_cast<double>(loads.size());
    for (std::size_t expert = 0; expert < gpus.size(); ++expert) {
      if (gpus[expert].size() < 2) continue;
      table.rows.push_back({count_cell(trace.counts.info.layers[static_cast<std::size_t>(layer)]),
                            count_cell(static_cast<std::int64_t>(expert)),
                            mean > 0.0 ? report::Cell(loads[expert] / mean) : report::Cell(),
                            count_cell(static_cast<std::int64_t>(gpus[expert].size())),
                            fmt::format("{}", fmt::join(gpus[expert], " "))});
    }
  }
  report.tables["replicas"] = table;
}

void add_findings(const PlanArgs& args, const Planned& planned, ReportSession& session) {
  if (args.judge.empty()) {
    session.add_finding(
        "plan.in_sample", report::Severity::kWarning,
        "the balancedness is that on the traces the plan was fitted to; on other real traffic "
        "plans of 0.99 fall to 0.7",
        "judge it on traces it has not seen: --judge TRACE, or moe-skew replay");
  }
  const std::int64_t colocated = balance::colocated_replicas(planned.placement);
  if (colocated > 0) {
    session.add_finding(
        "plan.colocated_replicas", report::Severity::kWarning,
        fmt::format("{} slots hold an expert that is on their GPU already", colocated),
        "--policy joint wastes none", {{"count", colocated}});
  }
}

int run_plan(const PlanArgs& args, const ToolContext& context) {
  if (!args.out.empty()) check_writable(args.out, "--out");
  if (args.max_moved && args.from.empty()) {
    throw Error(ErrorCode::kUsage, "--max-moved needs --from PLAN, the current placement");
  }
  if (args.max_moved && args.policy != "joint") {
    throw Error(ErrorCode::kUsage, "--max-moved works with --policy joint");
  }
  ReportSession session(context, args.output, args.acceptance);
  std::vector<std::string> paths = args.trace.traces;
  paths.insert(paths.end(), args.judge.begin(), args.judge.end());
  const std::vector<LoadedTrace> all = load_traces(args.trace, paths);
  const std::vector<LoadedTrace> fitted(
      all.begin(), all.begin() + static_cast<std::ptrdiff_t>(args.trace.traces.size()));
  const routing::InputInfo& info = all.front().counts.info;
  ClusterArgs cluster_args = args.cluster;
  if (cluster_args.num_gpus == 0 && cluster_args.gpu_slots.empty()) {
    cluster_args.num_gpus = info.num_gpus;
  }
  const balance::Cluster cluster = make_cluster(cluster_args, info.num_experts);
  std::optional<Placement> current;
  if (!args.from.empty()) current = load_plan(args.from, cluster.num_gpus(), info);

  report::Report& report = session.report();
  describe_traces("plan", all, args.trace, session);
  describe_cluster(cluster, report);
  report.settings["judge"] = args.judge;
  report.settings["policy"] = args.policy;
  report.settings["groups"] = args.num_groups;
  report.settings["spread_nodes"] = args.spreads_nodes;
  report.settings["from"] = args.from;
  report.settings["seed"] = args.seed;
  report.settings["effort"] = args.effort;
  const Planned planned = make_plan(args, fitted, cluster, current ? &*current : nullptr, session);
  report.settings["policy_in_effect"] = planned.policy;
  add_balance_tables(all, fitted.size(), planned, cluster, info.layers, session);
  add_replicas_table(fitted.front(), planned, report);
  add_metrics(args, all, fitted.size(), planned, cluster, session);
  add_findings(args, planned, session);
  report.highlights = {"fitted_gpu_balancedness_ratio", "placement_gpu_balancedness_ratio",
                       "placement_colocated_replicas_count", "plan_s"};
  if (planned.num_moved >= 0) report.highlights.push_back("placement_moved_slots_ratio");
  write_plan_file(args, planned, info.layers, session);
  return session.finish(kExitOk, args.seed, std::nullopt);
}

}  // namespace

void add_plan_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<PlanArgs>();
  Options& options =
      line.add_command("plan", "Places and replicates experts for the load of recorded traces",
                       [args, &context] { return run_plan(*args, context); });
  options.positionals("TRACE", args->trace.traces,
                      "Recorded routing to fit the plan to; several make one plan for all");
  add_trace_options(options, args->trace);
  add_cluster_options(options, args->cluster);
  options.group("Plan");
  options.choice("--policy", {"joint", "eplb", "affinity", "linear"}, args->policy,
                 "joint searches replicas and places together; eplb decides as DeepSeek's EPLB "
                 "does; affinity keeps tokens on their GPU from layer to layer");
  options.integer("--groups", args->num_groups, {1, 1 << 16},
                  "Expert groups of the router, each kept on one node");
  options.flag("--spread-nodes", args->spreads_nodes,
               "Put replicas of an expert on different nodes, for local-first routing");
  options.text("--from", "PLAN", args->from, "The plan in force, to count moved slots from");
  options.ratio("--max-moved", args->max_moved, "Share of all slots that may move from --from",
                "all");
  options.texts("--judge", "TRACE", args->judge, "Trace that the plan is judged by, not fitted to");
  options.bytes("--expert-bytes", args->expert_bytes, "Weights of one expert of one layer",
                "not known");
  options.integer("--effort", args->effort, {1, 1'000'000'000},
                  "Moves looked at per layer in the search; ten times as many with several traces");
  options.integer("--seed", args->seed, {0, std::numeric_limits<std::int32_t>::max()},
                  "Seed of the search");
  options.text("--out", "FILE", args->out, "Where the plan goes");
  options.choice("--plan-format", {"auto", "sglang", "tensorrt", "csv"}, args->plan_format,
                 "auto: .yaml is TensorRT-LLM's, .csv is CSV, anything else SGLang's JSON");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-skew plan counts.json --gpus 32 --slots 288 --out plan.json",
                  "288 slots on 32 GPUs, for SGLang's --init-expert-location");
  options.example("moe-skew plan a.json b.json --judge c.json --gpus 32 --redundant 32",
                  "one plan for two traffics, judged on a third");
}

}  // namespace moe::app
