#include "lib/app/plan/size_result.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/plan/size_sensitivity.hpp"
#include "lib/app/plan/tool_reports.hpp"

namespace moe::app {
namespace {

constexpr double kHoursPerYear = 8760.0;
constexpr std::array<double, 9> kFrontTpot_s = {0.010, 0.015, 0.020, 0.030, 0.040,
                                                0.050, 0.075, 0.100, 0.200};

planner::FailureDomain failure_domain_of(const std::string& name) {
  for (const auto domain : {planner::FailureDomain::kDeployment, planner::FailureDomain::kNode,
                            planner::FailureDomain::kRack}) {
    if (name == planner::name_of(domain)) return domain;
  }
  return planner::FailureDomain::kNode;
}

std::optional<planner::PowerInputs> power_inputs(const Scenario& s,
                                                 const planner::Accelerator& gpu) {
  if (!gpu.tdp_w) return std::nullopt;
  planner::PowerInputs in;
  in.gpu_tdp_w = *gpu.tdp_w;
  in.gpus_per_node = gpu.gpus_per_node;
  in.node_overhead_ratio = s.node_overhead_ratio;
  in.average_load_ratio = s.average_load_ratio;
  in.pue = s.pue;
  in.rack_limit_kw = s.rack_limit_kw;
  in.max_nodes_per_rack = s.max_nodes_per_rack;
  return in;
}

planner::SizeCase size_case_of(const SizeInputs& inputs, GpuResult& result) {
  const Scenario& s = inputs.scenario;
  planner::SizeCase c;
  c.architecture = &inputs.model.architecture;
  c.measured = &inputs.measured;
  c.fit.memory_bytes = result.gpu.usable_memory_bytes();
  c.fit.utilization = s.utilization;
  c.fit.kv.manager = planner::parse_kv_manager(s.kv_manager);
  c.fit.kv.dtype = planner::parse_kv_dtype(s.kv_dtype);
  c.fit.kv.block_tokens = static_cast<std::int32_t>(s.block_tokens);
  c.fit.kv.max_batched_tokens = s.max_batched_tokens;
  c.fit.overhead.engine = planner::parse_engine(s.engine);
  c.fit.overhead.max_batched_tokens = s.max_batched_tokens;
  c.fit.overhead.max_sequences = s.max_sequences;
  c.fit.overhead.has_deepep = s.has_deepep;
  c.setup.engine = c.fit.overhead.engine;
  c.setup.kv = c.fit.kv;
  c.setup.skew = inputs.skew;
  c.setup.draft_tokens = s.draft_tokens;
  c.setup.accepted_per_step = s.accepted_per_step;
  if (inputs.links_report) {
    apply(read_a2a_report(*inputs.links_report), result.gpu, c.setup.network);
  }
  c.demand = inputs.demand;
  c.rules.target.ttft_s = s.ttft_s;
  c.rules.target.tpot_s = s.tpot_s;
  c.rules.target.is_ttft_p99 = s.is_ttft_p99;
  c.rules.load_ratio = s.load_ratio;
  c.rules.growth_ratio = s.growth_ratio;
  c.rules.failure_domain = failure_domain_of(s.failure_domain);
  c.rules.num_spare_domains = s.num_spare_domains;
  c.rules.fixed_gpus = s.num_gpus;
  c.rules.max_gpus = s.max_gpus;
  if (const auto power = power_inputs(s, result.gpu)) {
    c.nodes_per_rack = planner::plan_power(*power, 1).nodes_per_rack;
  }
  return c;
}

// Share of the GPU time that prompts take, at the planned point.
double prefill_ratio(const planner::SizePlan& plan, const planner::Demand& demand) {
  const planner::ServingPoint& at = plan.at_peak;
  const double sequences = std::max(1.0, at.batch_per_rank * plan.layout.dp);
  const double decode_s = demand.shape.output_tokens * at.decode_step_s / sequences;
  const double prefill_s = at.prefill_s / plan.layout.dp;
  return prefill_s + decode_s > 0.0 ? prefill_s / (prefill_s + decode_s) : 0.0;
}

void add_money(const SizeInputs& inputs, GpuResult& result) {
  const planner::SizePlan& plan = result.best();
  const Scenario& s = inputs.scenario;
  if (const auto power = power_inputs(s, result.gpu)) {
    result.power = planner::plan_power(*power, plan.nodes);
  }
  const auto own = s.by_gpu.find(result.gpu.id);
  result.prices = own != s.by_gpu.end() ? own->second : s.prices;
  // What is bought and rented are whole nodes, unless the number was given.
  const std::int64_t paid = s.num_gpus > 0 ? s.num_gpus : plan.gpus_bought;
  result.fleet.num_gpus = static_cast<double>(paid);
  result.fleet.num_nodes = static_cast<double>(plan.nodes);
  result.fleet.num_racks = static_cast<double>(plan.racks);
  if (result.power) {
    result.fleet.it_kw = result.power->it_kw;
    result.fleet.kwh_per_year = result.power->kwh_per_year;
  }
  result.cost = planner::plan_cost(result.prices, result.fleet);
  if (!result.power && result.cost.own_usd_per_year) {
    result.cost.own_usd_per_year.reset();
    result.cost.own_usd_per_gpu_hour.reset();
    result.cost.missing.emplace_back("power of the GPU: no energy, so no cost of owning");
  }
  result.tokens.input = inputs.demand.mean_requests_per_s * inputs.demand.shape.input_tokens;
  result.tokens.output = inputs.demand.mean_requests_per_s * inputs.demand.shape.output_tokens;
  result.tokens.prefill_time_ratio = prefill_ratio(plan, inputs.demand);
  if (result.cost.rent_usd_per_year) {
    result.rent_tokens = planner::token_cost(*result.cost.rent_usd_per_year, result.tokens);
  }
  if (result.cost.own_usd_per_year) {
    result.own_tokens = planner::token_cost(*result.cost.own_usd_per_year, result.tokens);
  }
  result.break_even = planner::break_even(result.prices, result.cost);
}

void add_front(const SizeInputs& inputs, GpuResult& result) {
  for (const double tpot_s : kFrontTpot_s) result.front.push_back({tpot_s, 0.0, ""});
  for (const planner::SizePlan& plan : result.plans) {
    if (!plan.fit.fits) continue;
    const std::vector<double> rates = planner::rates_within(result.size_case, plan, kFrontTpot_s);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const double tokens_per_s_per_gpu =
          rates[i] * inputs.demand.shape.output_tokens / plan.layout.gpus();
      if (tokens_per_s_per_gpu <= result.front[i].tokens_per_s_per_gpu) continue;
      result.front[i].tokens_per_s_per_gpu = tokens_per_s_per_gpu;
      result.front[i].layout = planner::describe(plan.layout);
    }
  }
}

// What else could be tried on the same GPU type: narrower weights, more GPUs. Each is computed,
// none is promised.
void add_remedies(const SizeInputs& inputs, GpuResult& result) {
  const auto first = [&](const planner::SizeCase& c, const std::string& change) {
    const std::vector<planner::SizePlan> plans = planner::size_all(c);
    if (plans.empty() || !plans.front().works()) return;
    result.remedies.push_back(
        fmt::format("{}: {} holds {} requests, {:.3g} requests/s within the service level", change,
                    planner::describe(plans.front().layout), plans.front().fit.max_requests,
                    plans.front().capacity.requests_per_s));
  };
  for (const char* format : {"fp8-block128", "int4-g128"}) {
    const model::Architecture narrower = load_architecture(inputs.model.path, format);
    if (narrower.weight_bytes() >= inputs.model.architecture.weight_bytes()) continue;
    planner::SizeCase c = result.size_case;
    c.architecture = &narrower;
    first(c, fmt::format("weights as {}", format));
  }
  if (inputs.scenario.num_gpus > 0) {
    for (const std::int64_t times : {2, 4, 8}) {
      planner::SizeCase c = result.size_case;
      c.rules.fixed_gpus = times * inputs.scenario.num_gpus;
      const std::size_t before = result.remedies.size();
      first(c, fmt::format("{} GPUs", c.rules.fixed_gpus));
      if (result.remedies.size() > before) break;
    }
  }
}

GpuResult work_out_gpu(const SizeInputs& inputs, const std::string& name) {
  GpuResult result;
  result.gpu = planner::find_accelerator(inputs.hardware.file, name);
  if (inputs.scenario.num_gpus > 0) {
    // GPUs that are there already may fill a node in part: no more draw power or fail with it.
    result.gpu.gpus_per_node = static_cast<std::int32_t>(
        std::min<std::int64_t>(result.gpu.gpus_per_node, inputs.scenario.num_gpus));
  }
  result.size_case = size_case_of(inputs, result);
  result.size_case.gpu = &result.gpu;
  const Scenario& s = inputs.scenario;
  result.plans = s.layout ? std::vector<planner::SizePlan>{planner::size_layout(
                                result.size_case, parse_layout(*s.layout))}
                          : planner::size_all(result.size_case);
  result.works = !result.plans.empty() && result.best().works();
  if (!result.works) {
    add_remedies(inputs, result);
    return result;
  }
  add_money(inputs, result);
  add_front(inputs, result);
  add_sensitivity(inputs, result);
  return result;
}

}  // namespace

std::optional<double> GpuResult::usd_per_year() const {
  if (cost.own_usd_per_year && cost.rent_usd_per_year) {
    return std::min(*cost.own_usd_per_year, *cost.rent_usd_per_year);
  }
  return cost.own_usd_per_year ? cost.own_usd_per_year : cost.rent_usd_per_year;
}

SizeResult work_out(const SizeInputs& inputs) {
  SizeResult result;
  result.gpus.reserve(inputs.scenario.gpus.size());
  for (const std::string& name : inputs.scenario.gpus) {
    result.gpus.push_back(work_out_gpu(inputs, name));
    result.gpus.back().size_case.gpu = &result.gpus.back().gpu;
  }
  bool all_priced = true;
  for (const GpuResult& gpu : result.gpus) {
    all_priced = all_priced && (!gpu.works || gpu.usd_per_year().has_value());
  }
  result.rule = all_priced ? "lowest cost a year, the cheaper of renting and owning"
                           : "fewest GPUs, since not every GPU type has a price";
  double lowest = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < result.gpus.size(); ++i) {
    const GpuResult& gpu = result.gpus[i];
    if (!gpu.works) continue;
    const double cost =
        all_priced ? *gpu.usd_per_year() : static_cast<double>(gpu.best().gpus_bought);
    if (cost < lowest) {
      lowest = cost;
      result.recommended = i;
    }
  }
  return result;
}

}  // namespace moe::app
