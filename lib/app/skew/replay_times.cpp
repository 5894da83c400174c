// Every plan on every trace: balance, step times, local shares.

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "lib/app/scenarios_dir.hpp"
#include "lib/app/skew/replay_parts.hpp"
#include "lib/app/skew/replay_steps.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using balance::Placement;
using report::Cell;

// Samples of step time of a plan.
std::vector<double> step_times(const ReplayPlan& plan, const std::vector<Step>& steps,
                               const balance::Cluster& cluster, const ReplayTiming& timing) {
  std::vector<double> times;
  for (const Step& step : steps) {
    times.push_back(balance::step_time(plan.placement, cluster.speed, step.counts, step.num_tokens,
                                       timing.fit, timing.shape));
  }
  return times;
}

// Nearest rank where the samples support it, else nothing.
Cell percentile_cell(std::vector<double> samples, double p) {
  std::sort(samples.begin(), samples.end());
  const stats::Percentile value = stats::percentile(samples, p);
  return value.value ? Cell(*value.value) : Cell();
}

}  // namespace

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

std::vector<balance::KernelFit> replay_kernel_fits(const ReplayArgs& args) {
  if (args.gpu.empty()) return {};
  const auto path =
      find_scenario("expert_kernels", scenarios_dir(args.scenarios), "measured", ".json");
  const FileMap file(path);
  const auto bytes = file.bytes();
  return balance::read_kernel_fits({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                   path.string());
}

ReplayTiming replay_timing(const ReplayArgs& args, const std::vector<balance::KernelFit>& fits) {
  ReplayTiming timing;
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

ReplayFigures replay_all(const ReplayArgs& args, const std::vector<ReplayPlan>& plans,
                         const std::vector<LoadedTrace>& traces, const balance::Cluster& cluster,
                         const ReplayTiming& timing, report::Report& report) {
  ReplayFigures replay;
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

}  // namespace moe::app
