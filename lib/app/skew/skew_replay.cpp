// moe-skew replay: every plan on every trace. The figure that a plan was made by says nothing about
// other traffic; this table does.

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/replay_steps.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/balance/balancedness.hpp"
#include "lib/balance/eplb.hpp"
#include "lib/balance/kernel_model.hpp"
#include "lib/balance/planner.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using balance::Placement;
using report::Cell;
using report::MetricKind;

struct ReplayArgs {
  TraceArgs trace;
  ClusterArgs cluster;
  std::vector<std::string> plans;
  bool fits = false;
  std::string policy = "joint";
  std::string from;
  std::int64_t effort = 10'000;
  std::int64_t seed = 1;
  // Steps and time.
  std::string window;
  std::int64_t tokens_per_step = 0;
  std::int64_t num_steps = 500;
  std::string gpu;
  std::string engine = "trtllm";
  std::string quant = "bfloat16";
  std::int64_t hidden_size = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t bytes_per_element = 2;
  // Migration and age.
  std::int64_t expert_bytes = 0;
  double link_bytes_per_s = 0.0;
  std::int64_t age_steps = -1;
  std::string scenarios;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

struct NamedPlan {
  std::string name;
  Placement placement;
  std::set<std::size_t> fitted_to;  // traces, when the plan was made here
};

std::string plan_name(const std::string& argument, std::string& path) {
  const auto equals = argument.find('=');
  path = equals == std::string::npos ? argument : argument.substr(equals + 1);
  return equals == std::string::npos ? std::filesystem::path(path).stem().string()
                                     : argument.substr(0, equals);
}

Placement fit(const ReplayArgs& args, const std::vector<balance::LoadMatrix>& loads,
              const balance::Cluster& cluster) {
  if (args.policy == "eplb") {
    return balance::plan_eplb(loads.front(),
                              {.num_slots = cluster.num_slots(), .num_gpus = cluster.num_gpus()})
        .placement;
  }
  balance::PlanOptions options;
  options.max_evaluations = args.effort * (loads.size() > 1 ? 10 : 1);
  options.seed = static_cast<std::uint64_t>(args.seed);
  return balance::plan_joint(loads, cluster, options).placement;
}

// A plan for each trace, one for all, and for each trace one for all the others.
void add_fitted_plans(const ReplayArgs& args, const std::vector<LoadedTrace>& traces,
                      const balance::Cluster& cluster, std::vector<NamedPlan>& plans) {
  for (std::size_t i = 0; i < traces.size(); ++i) {
    plans.push_back({"fit " + traces[i].name(), fit(args, {traces[i].loads}, cluster), {i}});
  }
  if (traces.size() < 2 || args.policy == "eplb") return;
  NamedPlan all{"robust, all", {}, {}};
  std::vector<balance::LoadMatrix> loads;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    loads.push_back(traces[i].loads);
    all.fitted_to.insert(i);
  }
  all.placement = fit(args, loads, cluster);
  plans.push_back(std::move(all));
  if (traces.size() < 3) return;
  for (std::size_t left_out = 0; left_out < traces.size(); ++left_out) {
    NamedPlan plan{"robust, without " + traces[left_out].name(), {}, {}};
    loads.clear();
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (i == left_out) continue;
      loads.push_back(traces[i].loads);
      plan.fitted_to.insert(i);
    }
    plan.placement = fit(args, loads, cluster);
    plans.push_back(std::move(plan));
  }
}

std::vector<NamedPlan> collect_plans(const ReplayArgs& args,
                                     const std::vector<LoadedTrace>& traces) {
  const routing::InputInfo& info = traces.front().counts.info;
  std::vector<NamedPlan> plans;
  for (const std::string& argument : args.plans) {
    std::string path;
    NamedPlan plan;
    plan.name = plan_name(argument, path);
    plan.placement = load_plan(path, args.cluster.num_gpus, info);
    plans.push_back(std::move(plan));
  }
  std::optional<balance::Cluster> cluster;
  if (args.fits) {
    cluster = make_cluster(args.cluster, info.num_experts);
    add_fitted_plans(args, traces, *cluster, plans);
  }
  if (plans.empty()) throw Error(ErrorCode::kUsage, "expected --plan FILE or --fit");
  for (const NamedPlan& plan : plans) {
    if (plan.placement.num_gpus() == plans.front().placement.num_gpus()) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("plan {} is for {} GPUs, plan {} for {}: they cannot be compared",
                            plan.name, plan.placement.num_gpus(), plans.front().name,
                            plans.front().placement.num_gpus()));
  }
  const balance::Cluster shape = cluster_of(plans.front().placement, args.cluster);
  NamedPlan linear{"linear", {}, {}};
  linear.placement =
      balance::linear_placement(shape, plans.front().placement.num_layers, info.num_experts);
  plans.insert(plans.begin(), std::move(linear));
  return plans;
}

// A name as a column or metric may have it.
std::string key_of(const std::string& name) {
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

struct Timing {
  const balance::KernelFit* fit = nullptr;  // null: time is counted in copies
  balance::ExpertShape shape;
  bool has_steps = false;
  bool is_recorded = false;
};

// Samples of step time of a plan.
std::vector<double> step_times(const NamedPlan& plan, const std::vector<Step>& steps,
                               const balance::Cluster& cluster, const Timing& timing) {
  std::vector<double> times;
  for (const Step& step : steps) {
    times.push_back(balance::step_time(plan.placement, cluster.speed, step.counts, step.num_tokens,
                                       timing.fit, timing.shape));
  }
  return times;
}

// Share of copies that leave GPU and node when tokens are spread evenly over the GPUs and a copy
// goes to a replica on its own GPU, then its own node, where there is one.
struct LocalShares {
  double cross_gpu = 0.0;
  double cross_node = 0.0;
};

LocalShares local_shares(const Placement& placement, const balance::LoadMatrix& loads,
                         const balance::Cluster& cluster) {
  double on_gpu = 0.0;
  double on_node = 0.0;
  double all = 0.0;
  const double num_gpus = static_cast<double>(cluster.num_gpus());
  std::vector<double> node_size(static_cast<std::size_t>(cluster.num_nodes()), 0.0);
  for (const std::int32_t node : cluster.node) node_size[static_cast<std::size_t>(node)] += 1.0;
  for (std::int32_t layer = 0; layer < placement.num_layers; ++layer) {
    const auto row = loads.layer(layer);
    std::vector<std::set<std::int32_t>> gpus(row.size());
    for (std::int32_t gpu = 0; gpu < placement.num_gpus(); ++gpu) {
      const std::size_t g = static_cast<std::size_t>(gpu);
      for (std::int32_t slot = placement.slot_begin[g]; slot < placement.slot_begin[g + 1];
           ++slot) {
        gpus[static_cast<std::size_t>(placement.layer(layer)[static_cast<std::size_t>(slot)])]
            .insert(gpu);
      }
    }
    for (std::size_t expert = 0; expert < row.size(); ++expert) {
      std::set<std::int32_t> nodes;
      for (const std::int32_t gpu : gpus[expert]) {
        nodes.insert(cluster.node[static_cast<std::size_t>(gpu)]);
      }
      double reached = 0.0;
      for (const std::int32_t node : nodes) reached += node_size[static_cast<std::size_t>(node)];
      all += row[expert];
      on_gpu += row[expert] * static_cast<double>(gpus[expert].size()) / num_gpus;
      on_node += row[expert] * reached / num_gpus;
    }
  }
  if (all <= 0.0) return {};
  return {.cross_gpu = 1.0 - on_gpu / all, .cross_node = 1.0 - on_node / all};
}

Timing make_timing(const ReplayArgs& args, const std::vector<balance::KernelFit>& fits) {
  Timing timing;
  timing.is_recorded = !args.window.empty();
  timing.has_steps = timing.is_recorded || args.tokens_per_step > 0;
  if (args.gpu.empty()) return timing;
  if (args.hidden_size == 0 || args.moe_intermediate_size == 0) {
    throw Error(ErrorCode::kUsage,
                "--gpu needs --hidden-size and --moe-intermediate-size, the shape of an expert");
  }
  if (!timing.has_steps) {
    throw Error(ErrorCode::kUsage, "--gpu needs steps: --tokens-per-step N, or --window W");
  }
  timing.fit = &balance::find_kernel_fit(fits, args.gpu, args.engine, args.quant);
  timing.shape = {args.hidden_size, args.moe_intermediate_size};
  return timing;
}

std::vector<balance::KernelFit> read_fits(const ReplayArgs& args) {
  if (args.gpu.empty()) return {};
  const auto path =
      find_scenario("expert_kernels", scenarios_dir(args.scenarios), "measured", ".json");
  const FileMap file(path);
  const auto bytes = file.bytes();
  return balance::read_kernel_fits({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                   path.string());
}

// Nearest rank where the samples support it, else nothing.
Cell percentile_cell(std::vector<double> samples, double p) {
  std::sort(samples.begin(), samples.end());
  const stats::Percentile value = stats::percentile(samples, p);
  return value.value ? Cell(*value.value) : Cell();
}

struct Replay {
  std::vector<std::vector<balance::BalanceSummary>> balance;  // [plans][traces]
  std::vector<std::vector<double>> mean_step;                 // [plans][traces], 0 without steps
};

Replay replay_all(const ReplayArgs& args, const std::vector<NamedPlan>& plans,
                  const std::vector<LoadedTrace>& traces, const balance::Cluster& cluster,
                  const Timing& timing, report::Report& report) {
  Replay replay;
  replay.balance.resize(plans.size());
  replay.mean_step.assign(plans.size(), std::vector<double>(traces.size(), 0.0));
  const std::string unit = timing.fit == nullptr ? "1" : "s";
  const std::string step_name = timing.fit == nullptr ? "step_copies" : "step_s";
  report::Table table = make_table("Plans on traces", {{"plan", ""},
                                                       {"trace", ""},
                                                       {"seen", ""},
                                                       {"mean", "1"},
                                                       {"worst", "1"},
                                                       {"worst_layer", "1"},
                                                       {"of_sums", "1"},
                                                       {step_name + "_p50", unit},
                                                       {step_name + "_p99", unit},
                                                       {"local_cross_gpu", "1"},
                                                       {"local_cross_node", "1"}});
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const LoadedTrace& trace = traces[t];
    const std::int64_t top_k = args.trace.top_k > 0 ? args.trace.top_k : trace.counts.info.top_k;
    std::vector<Step> steps;
    if (timing.is_recorded) {
      steps = recorded_steps(trace, top_k);
    } else if (timing.has_steps) {
      if (top_k == 0) throw Error(ErrorCode::kUsage, "--tokens-per-step needs --top-k N");
      steps = drawn_steps(trace, top_k, args.tokens_per_step, args.num_steps,
                          static_cast<std::uint64_t>(args.seed));
    }
    for (std::size_t p = 0; p < plans.size(); ++p) {
      const auto summary = balance::balance_of(plans[p].placement, trace.loads, cluster.speed);
      const std::vector<double> times = step_times(plans[p], steps, cluster, timing);
      const LocalShares shares = local_shares(plans[p].placement, trace.loads, cluster);
      if (!times.empty()) {
        replay.mean_step[p][t] = balance::total(times) / static_cast<double>(times.size());
      }
      const auto cell = [](const std::optional<double>& value) {
        return value ? Cell(*value) : Cell();
      };
      const bool is_made_here = !plans[p].fitted_to.empty();
      const char* seen = is_made_here ? (plans[p].fitted_to.count(t) != 0 ? "fitted" : "unseen")
                                      : (plans[p].name == "linear" ? "" : "not known");
      table.rows.push_back(
          {plans[p].name, trace.name(), std::string(seen), cell(summary.mean), cell(summary.worst),
           summary.worst_layer >= 0
               ? count_cell(trace.counts.info.layers[static_cast<std::size_t>(summary.worst_layer)])
               : Cell(),
           cell(summary.of_sums), percentile_cell(times, 0.5), percentile_cell(times, 0.99),
           shares.cross_gpu, shares.cross_node});
      replay.balance[p].push_back(summary);
    }
  }
  report.tables["replay"] = table;
  return replay;
}

// Smallest mean balancedness on traces that the plan was not fitted to.
std::optional<double> smallest_unseen(const NamedPlan& plan,
                                      const std::vector<balance::BalanceSummary>& balance) {
  std::optional<double> smallest;
  for (std::size_t t = 0; t < balance.size(); ++t) {
    const std::optional<double> mean = balance[t].mean;
    if (!mean || plan.fitted_to.count(t) != 0) continue;
    if (!smallest || *mean < *smallest) smallest = mean;
  }
  return smallest;
}

void add_matrix(const std::vector<NamedPlan>& plans, const std::vector<LoadedTrace>& traces,
                const Replay& replay, report::Report& report) {
  std::vector<report::Column> columns = {{"plan", ""}};
  for (const LoadedTrace& trace : traces) columns.push_back({key_of(trace.name()), "1"});
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
void add_metrics(const std::vector<NamedPlan>& plans, const Replay& replay,
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

void add_staleness_findings(const std::vector<NamedPlan>& plans,
                            const std::vector<LoadedTrace>& traces, const Replay& replay,
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

// From the plan in force to each other plan: what moves, how long that takes, when it pays.
void add_migration(const ReplayArgs& args, const std::vector<NamedPlan>& plans,
                   const std::vector<LoadedTrace>& traces, const Replay& replay,
                   const Timing& timing, ReportSession& session) {
  if (args.from.empty()) return;
  const auto current = std::find_if(plans.begin(), plans.end(),
                                    [&](const NamedPlan& plan) { return plan.name == args.from; });
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

void add_traffic(const ReplayArgs& args, const std::vector<NamedPlan>& plans,
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
  for (const NamedPlan& plan : plans) {
    for (const LoadedTrace& trace : traces) {
      const LocalShares shares = local_shares(plan.placement, trace.loads, cluster);
      table.rows.push_back({plan.name, trace.name(), copy_bytes * (1.0 - 1.0 / num_gpus),
                            copy_bytes * (1.0 - same_node / (num_gpus * num_gpus)),
                            copy_bytes * shares.cross_gpu, copy_bytes * shares.cross_node});
    }
  }
  report.tables["traffic"] = table;
}

void describe_run(const ReplayArgs& args, const Timing& timing, ReportSession& session) {
  report::Report& report = session.report();
  report.settings["policy"] = args.policy;
  report.settings["fit"] = args.fits;
  report.settings["plans"] = args.plans;
  report.settings["window"] = args.window;
  report.settings["tokens_per_step"] = args.tokens_per_step;
  report.settings["steps"] = args.num_steps;
  report.settings["seed"] = args.seed;
  if (args.age_steps >= 0) {
    report.metrics["plan_age_steps"] =
        value_metric(MetricKind::kAssumed, "1", static_cast<double>(args.age_steps),
                     "steps between the end of the plan's statistics and its use, as given");
  }
  if (timing.fit != nullptr) {
    report.settings["kernels"] =
        fmt::format("{} {} {}", timing.fit->gpu, timing.fit->engine, timing.fit->quant);
    session.add_finding(
        "replay.kernel_model", report::Severity::kInfo,
        fmt::format(
            "step times are the expert kernels of the slowest GPU, summed over layers, from "
            "a fit to measured kernels ({} {} {}); its median error on points not fitted "
            "is {:.0f} %",
            timing.fit->gpu, timing.fit->engine, timing.fit->quant,
            100.0 * timing.fit->held_out_error),
        "with few tokens a step skew makes this cheaper: fewer experts are read");
  } else {
    session.add_finding("replay.no_kernel_model", report::Severity::kInfo,
                        "no --gpu: time is counted in copies of the slowest GPU, which overstates "
                        "what skew costs in decode",
                        "give --gpu, --engine, --quant and the shape of an expert");
  }
  if (timing.has_steps && !timing.is_recorded) {
    session.add_finding("replay.drawn_steps", report::Severity::kInfo,
                        fmt::format("steps are drawn from the recorded shares, {} of {} tokens; "
                                    "recorded traffic is burstier",
                                    args.num_steps, args.tokens_per_step),
                        "--window takes the recorded ones where the trace has them");
  }
}

int run_replay(const ReplayArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const routing::WindowSpec window =
      args.window.empty() ? routing::WindowSpec{} : routing::parse_window(args.window);
  const std::vector<balance::KernelFit> fits = read_fits(args);
  const Timing timing = make_timing(args, fits);
  const std::vector<LoadedTrace> traces = load_traces(args.trace, args.trace.traces, window);
  const std::vector<NamedPlan> plans = collect_plans(args, traces);
  const balance::Cluster cluster = cluster_of(plans.front().placement, args.cluster);
  report::Report& report = session.report();
  describe_traces("replay", traces, args.trace, session);
  describe_cluster(cluster, report);
  describe_run(args, timing, session);
  const Replay replay = replay_all(args, plans, traces, cluster, timing, report);
  add_matrix(plans, traces, replay, report);
  add_traffic(args, plans, traces, cluster, report);
  add_metrics(plans, replay, session);
  add_staleness_findings(plans, traces, replay, session);
  add_migration(args, plans, traces, replay, timing, session);
  return session.finish(kExitOk, args.seed, std::nullopt);
}

}  // namespace

void add_replay_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ReplayArgs>();
  Options& options = line.add_command("replay", "Judges plans on traces they were not made for",
                                      [args, &context] { return run_replay(*args, context); });
  options.positionals("TRACE", args->trace.traces,
                      "Recorded routing, one column of the table each");
  add_trace_options(options, args->trace);
  add_cluster_options(options, args->cluster);
  options.group("Plans");
  options.texts("--plan", "NAME=FILE", args->plans,
                "A plan: SGLang JSON, TensorRT-LLM YAML or CSV");
  options.flag(
      "--fit", args->fits,
      "Make a plan for each trace, one for all, and for each trace one for all the others");
  options.choice("--policy", {"joint", "eplb"}, args->policy, "How --fit plans");
  options.integer("--effort", args->effort, {1, 1'000'000'000}, "As in moe-skew plan");
  options.integer("--seed", args->seed, {0, std::numeric_limits<std::int32_t>::max()},
                  "Seed of the search and of drawn steps");
  options.group("Step time");
  options.text("--window", "W", args->window,
               "Recorded steps: 1steps, 256tokens, 500ms; needs a trace that has them");
  options.integer("--tokens-per-step", args->tokens_per_step, {0, 1 << 24},
                  "Draw steps of so many tokens from the recorded shares", "no step times");
  options.integer("--steps", args->num_steps, {1, 1'000'000}, "How many to draw");
  options.text("--gpu", "NAME", args->gpu, "GPU of scenarios/measured/expert_kernels.json");
  options.text("--engine", "NAME", args->engine, "Engine whose kernels were measured");
  options.text("--quant", "NAME", args->quant, "Format of the expert weights");
  options.integer("--hidden-size", args->hidden_size, {0, 1 << 20}, "Of the model", "not known");
  options.integer("--moe-intermediate-size", args->moe_intermediate_size, {0, 1 << 20},
                  "Of the model", "not known");
  options.integer("--activation-bytes", args->bytes_per_element, {1, 8},
                  "Bytes of an element that is dispatched or combined");
  options.group("Migration");
  options.text("--from", "NAME", args->from, "The plan in force, one of the table");
  options.bytes("--expert-bytes", args->expert_bytes, "Weights of one expert of one layer",
                "not known");
  options.real("--link-bytes-per-s", args->link_bytes_per_s, {},
               "Rate at which a GPU loads experts");
  options.integer("--plan-age", args->age_steps, {-1, std::numeric_limits<std::int64_t>::max()},
                  "Steps between the plan's statistics and its use, for the report", "not known");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-skew replay a.json b.json c.json --fit --gpus 32 --slots 288",
                  "how far each plan carries beyond its own traffic");
}

}  // namespace moe::app
