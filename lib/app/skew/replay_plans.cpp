// The plans of a replay: given, made here, and experts in order for comparison.

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "lib/app/skew/replay_parts.hpp"
#include "lib/balance/eplb.hpp"
#include "lib/balance/planner.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using balance::Placement;

std::string plan_name(const std::string& argument, std::string& path) {
  const auto equals = argument.find('=');
  path = equals == std::string::npos ? argument : argument.substr(equals + 1);
  return equals == std::string::npos ? std::filesystem::path(path).stem().string()
                                     : argument.substr(0, equals);
}

Placement fitted_placement(const ReplayArgs& args, const std::vector<balance::LoadMatrix>& loads,
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
                      const balance::Cluster& cluster, std::vector<ReplayPlan>& plans) {
  for (std::size_t i = 0; i < traces.size(); ++i) {
    plans.push_back(
        {"fit " + traces[i].name(), fitted_placement(args, {traces[i].loads}, cluster), {i}});
  }
  if (traces.size() < 2 || args.policy == "eplb") return;
  ReplayPlan all{"robust, all", {}, {}};
  std::vector<balance::LoadMatrix> loads;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    loads.push_back(traces[i].loads);
    all.fitted_to.insert(i);
  }
  all.placement = fitted_placement(args, loads, cluster);
  plans.push_back(std::move(all));
  if (traces.size() < 3) return;
  for (std::size_t left_out = 0; left_out < traces.size(); ++left_out) {
    ReplayPlan plan{"robust, without " + traces[left_out].name(), {}, {}};
    loads.clear();
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (i == left_out) continue;
      loads.push_back(traces[i].loads);
      plan.fitted_to.insert(i);
    }
    plan.placement = fitted_placement(args, loads, cluster);
    plans.push_back(std::move(plan));
  }
}

}  // namespace

std::vector<ReplayPlan> replay_plans(const ReplayArgs& args,
                                     const std::vector<LoadedTrace>& traces) {
  const routing::InputInfo& info = traces.front().counts.info;
  std::vector<ReplayPlan> plans;
  for (const std::string& argument : args.plans) {
    std::string path;
    ReplayPlan plan;
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
  for (const ReplayPlan& plan : plans) {
    if (plan.placement.num_gpus() == plans.front().placement.num_gpus()) continue;
    throw Error(ErrorCode::kUsage,
                fmt::format("plan {} is for {} GPUs, plan {} for {}: they cannot be compared",
                            plan.name, plan.placement.num_gpus(), plans.front().name,
                            plans.front().placement.num_gpus()));
  }
  const balance::Cluster shape = cluster_of(plans.front().placement, args.cluster);
  ReplayPlan linear{"linear", {}, {}};
  linear.placement =
      balance::linear_placement(shape, plans.front().placement.num_layers, info.num_experts);
  plans.insert(plans.begin(), std::move(linear));
  return plans;
}

}  // namespace moe::app
