#include "lib/planner/size.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/int_math.hpp"

namespace moe::planner {
namespace {

// Largest number of deployments that a plan may hold; more is a wrong input.
constexpr double kMaxDeployments = 1e6;

// The times of a point, slower by a factor.
ServingPoint slowed(ServingPoint point, double factor) {
  for (double* time :
       {&point.ttft_s, &point.tpot_s, &point.request_s, &point.tpot_full_overlap_s,
        &point.tpot_no_overlap_s, &point.ttft_low_s, &point.ttft_high_s, &point.ttft_p50_s,
        &point.ttft_p99_s, &point.prefill_s, &point.wait_s, &point.decode_step_s}) {
    *time *= factor;
  }
  return point;
}

bool meets(const ServingPoint& point, const ServiceTarget& target, double wait_factor) {
  const double extra_wait_s = point.wait_s * (wait_factor - 1.0);
  const double ttft_s = (target.is_ttft_p99 ? point.ttft_p99_s : point.ttft_s) + extra_wait_s;
  return point.is_stable && ttft_s <= target.ttft_s && point.tpot_s <= target.tpot_s;
}

// A time that is longer by a factor everywhere is a service that is slower by it: at a rate higher
// by the factor, the faster one shows the same utilization and times that are shorter by it.
CapacityPoint capacity_of(const StepModel& model, const SizeCase& c, double max_requests) {
  ServiceTarget target = c.rules.target;
  target.ttft_s /= c.time_factor;
  target.tpot_s /= c.time_factor;
  CapacityPoint capacity = max_request_rate(model, c.demand.shape, target, max_requests);
  // Bursts lengthen the wait: come down until the level holds.
  const double factor = burst_wait_factor(c.demand.gap_cv, 1.0);
  for (int i = 0; i < 60 && capacity.requests_per_s > 0.0; ++i) {
    if (meets(capacity.point, target, factor)) break;
    capacity.requests_per_s *= 0.95;
    capacity.point = serve_open_loop(model, c.demand.shape, capacity.requests_per_s, max_requests);
    capacity.limited_by = "bursts";
  }
  capacity.requests_per_s /= c.time_factor;
  capacity.point.requests_per_s /= c.time_factor;
  capacity.point.output_tokens_per_s /= c.time_factor;
  capacity.point.output_tokens_per_s_per_gpu /= c.time_factor;
  capacity.point = slowed(capacity.point, c.time_factor);
  return capacity;
}

struct Counts {
  std::int64_t deployments_per_node = 1;
  std::int64_t nodes_per_deployment = 1;
};

Counts counts_of(const Layout& layout, const Accelerator& gpu) {
  Counts counts;
  const std::int64_t per_node = gpu.gpus_per_node;
  if (layout.gpus() <= per_node) {
    counts.deployments_per_node = per_node / layout.gpus();
  } else {
    counts.nodes_per_deployment = div_ceil(layout.gpus(), per_node);
  }
  return counts;
}

// The most deployments that one failure takes away.
std::int64_t deployments_per_domain(const Counts& counts, const SizeRules& rules,
                                    std::int64_t nodes_per_rack) {
  switch (rules.failure_domain) {
    case FailureDomain::kDeployment:
      return 1;
    case FailureDomain::kNode:
      return counts.deployments_per_node;
    case FailureDomain::kRack:
      return counts.nodes_per_deployment > 1
                 ? std::max<std::int64_t>(1, nodes_per_rack / counts.nodes_per_deployment)
                 : counts.deployments_per_node * nodes_per_rack;
  }
  return 1;
}

std::int64_t nodes_for(std::int64_t deployments, const Counts& counts) {
  return counts.nodes_per_deployment > 1 ? deployments * counts.nodes_per_deployment
                                         : div_ceil(deployments, counts.deployments_per_node);
}

// Deployments are spread evenly over domains; with `spares` of them gone at least `needed` are
// left. Returns the fewest deployments.
std::int64_t with_spares(std::int64_t needed, std::int64_t domains, std::int64_t spares) {
  std::int64_t total = needed;
  while (total - spares * div_ceil(total, domains) < needed) ++total;
  return total;
}

// How many deployments, nodes and racks, with spares.
void count(const SizeCase& c, SizePlan& plan) {
  const SizeRules& rules = c.rules;
  const Counts counts = counts_of(plan.layout, *c.gpu);
  const std::int64_t per_domain = deployments_per_domain(counts, rules, c.nodes_per_rack);
  plan.planned_requests_per_s = rules.load_ratio * plan.capacity.requests_per_s;
  plan.requests_per_s_needed = c.demand.peak_requests_per_s * (1.0 + rules.growth_ratio);
  plan.deployments_exact = plan.requests_per_s_needed / plan.planned_requests_per_s;
  if (!(plan.deployments_exact <= kMaxDeployments)) {
    plan.problem = "more than a million deployments";
    return;
  }
  plan.deployments_for_load = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(plan.deployments_exact - 1e-9)));
  std::int64_t domains = div_ceil(plan.deployments_for_load, per_domain) + rules.num_spare_domains;
  if (rules.fixed_gpus > 0) {
    plan.deployments = rules.fixed_gpus / plan.layout.gpus();
    if (plan.deployments == 0) {
      plan.problem =
          fmt::format("needs {} GPUs, there are {}", plan.layout.gpus(), rules.fixed_gpus);
      return;
    }
    plan.deployments_for_load = std::min(plan.deployments_for_load, plan.deployments);
    domains = div_ceil(plan.deployments, per_domain);
  } else {
    plan.deployments = with_spares(plan.deployments_for_load, domains, rules.num_spare_domains);
  }
  plan.gpus = plan.deployments * plan.layout.gpus();
  plan.nodes = nodes_for(plan.deployments, counts);
  // A spare on the same node as what it stands in for is none.
  const bool is_node = rules.failure_domain == FailureDomain::kNode;
  if (is_node && counts.nodes_per_deployment == 1) plan.nodes = std::max(plan.nodes, domains);
  plan.racks = div_ceil(plan.nodes, c.nodes_per_rack);
  if (rules.failure_domain == FailureDomain::kRack) plan.racks = std::max(plan.racks, domains);
  plan.gpus_bought = plan.nodes * c.gpu->gpus_per_node;
  plan.deployments_lost = div_ceil(plan.deployments, domains);
}

void judge_failure(const SizeCase& c, SizePlan& plan) {
  const auto left = static_cast<double>(plan.deployments - plan.deployments_lost);
  plan.capacity_after_failure_requests_per_s = left * plan.capacity.requests_per_s;
  plan.slo_met_after_failure =
      plan.capacity_after_failure_requests_per_s >= plan.requests_per_s_needed;
  plan.headroom_ratio = static_cast<double>(plan.deployments) * plan.capacity.requests_per_s /
                            c.demand.peak_requests_per_s -
                        1.0;
}

}  // namespace

const char* name_of(FailureDomain domain) {
  switch (domain) {
    case FailureDomain::kDeployment:
      return "deployment";
    case FailureDomain::kNode:
      return "node";
    case FailureDomain::kRack:
      return "rack";
  }
  return "";
}

double burst_wait_factor(double gap_cv, double num_deployments) {
  MOE_CHECK(gap_cv >= 0.0 && num_deployments >= 1.0);
  const double thinned = 1.0 + (gap_cv * gap_cv - 1.0) / num_deployments;
  return 0.5 * (thinned + 1.0);
}

std::vector<Layout> size_layouts(const model::Architecture& architecture, const Accelerator& gpu,
                                 std::int64_t max_gpus) {
  std::vector<Layout> layouts;
  const std::int32_t largest_tp = std::max(gpu.scale_up_gpus, gpu.gpus_per_node);
  for (std::int32_t pp = 1; pp <= 8; pp *= 2) {
    for (std::int32_t tp = 1; tp <= largest_tp; tp *= 2) {
      for (std::int32_t dp = 1; std::int64_t{tp} * dp * pp <= max_gpus; dp *= 2) {
        // Stages are for models that do not fit a node otherwise; DP beside them is what more
        // deployments do.
        if (pp > 1 && dp > 1) continue;
        for (const std::int32_t ep : {1, tp * dp}) {
          if (ep == 1 && dp > 1 && architecture.is_moe()) continue;  // nobody runs DP without EP
          if (ep > 1 && !architecture.is_moe()) continue;
          Layout layout;
          layout.tp = tp;
          layout.dp = dp;
          layout.pp = pp;
          layout.ep = ep;
          if (layout_problem(architecture, layout).empty()) layouts.push_back(layout);
          if (tp * dp == 1) break;  // ep is 1 both times
        }
      }
    }
  }
  std::stable_sort(layouts.begin(), layouts.end(),
                   [](const Layout& a, const Layout& b) { return a.gpus() < b.gpus(); });
  return layouts;
}

SizePlan size_layout(const SizeCase& c, const Layout& layout) {
  MOE_CHECK(c.architecture && c.gpu && c.measured && c.time_factor > 0.0);
  MOE_CHECK(c.demand.peak_requests_per_s > 0.0);
  SizePlan plan;
  plan.layout = layout;
  plan.problem = layout_problem(*c.architecture, layout);
  if (!plan.works()) return plan;
  FitOptions options = c.fit;
  options.request_tokens = c.demand.request_tokens;
  plan.fit = fit(*c.architecture, layout, options);
  if (!plan.fit.fits) {
    const RankFit& binding = plan.fit.binding();
    plan.problem = plan.fit.weights_fit
                       ? "no room for the cache of one request"
                       : fmt::format("does not fit: {:.1f} GiB a GPU missing",
                                     static_cast<double>(binding.missing_bytes) / (1 << 30));
    return plan;
  }
  const StepModel model(*c.architecture, layout, *c.gpu, c.setup, *c.measured);
  plan.defaults = model.defaults();
  const auto max_requests = static_cast<double>(plan.fit.max_requests);
  plan.capacity = capacity_of(model, c, max_requests);
  if (!(plan.capacity.requests_per_s > 0.0)) {
    plan.problem = fmt::format("misses the service level with one request alone ({})",
                               plan.capacity.limited_by);
    return plan;
  }
  count(c, plan);
  if (!plan.works()) return plan;
  judge_failure(c, plan);
  const double share = c.demand.peak_requests_per_s / static_cast<double>(plan.deployments);
  plan.at_peak = slowed(serve_open_loop(model, c.demand.shape, share * c.time_factor, max_requests),
                        c.time_factor);
  return plan;
}

std::vector<double> rates_within(const SizeCase& c, const SizePlan& plan,
                                 std::span<const double> tpot_limits_s) {
  MOE_CHECK(plan.fit.fits);
  const StepModel model(*c.architecture, plan.layout, *c.gpu, c.setup, *c.measured);
  std::vector<double> rates;
  for (const double limit_s : tpot_limits_s) {
    SizeCase within = c;
    within.rules.target.tpot_s = limit_s;
    rates.push_back(
        capacity_of(model, within, static_cast<double>(plan.fit.max_requests)).requests_per_s);
  }
  return rates;
}

std::vector<SizePlan> size_all(const SizeCase& c) {
  std::vector<SizePlan> plans;
  const std::int64_t most = c.rules.fixed_gpus > 0 ? c.rules.fixed_gpus : c.rules.max_gpus;
  for (const Layout& layout : size_layouts(*c.architecture, *c.gpu, most)) {
    plans.push_back(size_layout(c, layout));
  }
  const bool is_fixed = c.rules.fixed_gpus > 0;
  std::stable_sort(plans.begin(), plans.end(), [&](const SizePlan& a, const SizePlan& b) {
    if (a.works() != b.works()) return a.works();
    if (!a.works()) return false;
    // With a given number of GPUs the best is what carries most.
    if (is_fixed) return a.headroom_ratio > b.headroom_ratio;
    if (a.gpus_bought != b.gpus_bought) return a.gpus_bought < b.gpus_bought;
    if (a.gpus != b.gpus) return a.gpus < b.gpus;
    return a.headroom_ratio > b.headroom_ratio;
  });
  return plans;
}

}  // namespace moe::planner
