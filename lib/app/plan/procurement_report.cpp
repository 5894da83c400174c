#include "lib/app/plan/procurement_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/app/plan/figure_table.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/planner/layout.hpp"

namespace moe::app {

using report::Cell;
using report::MetricKind;

namespace procurement {

std::string title_of(const char* part, const GpuResult& gpu) {
  return fmt::format("{}: {}", part, gpu.gpu.name);
}

std::string table_name(const char* part, const GpuResult& gpu) {
  return fmt::format("{}_{}", part, name_part(gpu.gpu.id));
}

void add_answer(const SizeInputs& inputs, const SizeResult& result, report::Report& report) {
  report::Table table = make_table("Answer", {{"gpu", ""},
                                              {"verdict", ""},
                                              {"layout", ""},
                                              {"deployments", "1"},
                                              {"gpus", "1"},
                                              {"nodes", "1"},
                                              {"racks", "1"},
                                              {"rated_kw", "kW"},
                                              {"ttft_p99_s", "s"},
                                              {"tpot_s", "s"},
                                              {"usd_per_year", ""},
                                              {"usd_per_million_output", ""},
                                              {"holds_after_failure", ""}});
  const bool is_fixed = inputs.scenario.num_gpus > 0;
  for (std::size_t i = 0; i < result.gpus.size(); ++i) {
    const GpuResult& gpu = result.gpus[i];
    if (!gpu.works) {
      const std::string why =
          gpu.plans.empty() ? "no layout is possible" : gpu.plans.front().problem;
      table.rows.push_back({gpu.gpu.name, "no: " + why, Cell(), Cell(), Cell(), Cell(), Cell(),
                            Cell(), Cell(), Cell(), Cell(), Cell(), Cell()});
      continue;
    }
    const planner::SizePlan& plan = gpu.best();
    const bool carries = plan.headroom_ratio >= 0.0;
    const auto usd = gpu.usd_per_year();
    const bool owns = gpu.own_tokens && (!gpu.rent_tokens || usd == gpu.cost.own_usd_per_year);
    const auto& tokens = owns ? gpu.own_tokens : gpu.rent_tokens;
    std::string verdict = result.recommended == i ? "recommended" : "works";
    if (is_fixed) verdict = carries ? "carries the peak" : "too few GPUs for the peak";
    table.rows.push_back(
        {gpu.gpu.name, verdict, planner::describe(plan.layout), count_cell(plan.deployments),
         count_cell(is_fixed ? plan.gpus : plan.gpus_bought), count_cell(plan.nodes),
         count_cell(plan.racks), gpu.power ? Cell(gpu.power->it_kw) : Cell(),
         carries ? Cell(plan.at_peak.ttft_p99_s) : Cell(),
         carries ? Cell(plan.at_peak.tpot_s) : Cell(),
         usd ? Cell(format_usd(*usd)) : Cell(std::string("no price given")),
         tokens ? Cell(format_usd(tokens->usd_per_million_output_if_all)) : Cell(),
         std::string(plan.slo_met_after_failure ? "yes" : "no")});
  }
  report.tables["part00_answer"] = table;
}

namespace {

// The recommended plan in a few figures under names that do not depend on the GPU type.
void add_summary(const SizeInputs& inputs, const GpuResult& gpu, report::Report& report) {
  const planner::SizePlan& plan = gpu.best();
  const auto put = [&](const char* name, const char* unit, double value, const char* how) {
    report.metrics[name] = value_metric(MetricKind::kModelled, unit, value, how);
    report.highlights.emplace_back(name);
  };
  put("plan_gpus_count", "1",
      static_cast<double>(inputs.scenario.num_gpus > 0 ? plan.gpus : plan.gpus_bought),
      "GPUs of the recommended plan, in whole nodes unless their number was given");
  put("plan_nodes_count", "1", static_cast<double>(plan.nodes), "nodes of the recommended plan");
  put("plan_ttft_p99_s", "s", plan.at_peak.ttft_p99_s, "p99 TTFT at today's peak");
  put("plan_tpot_s", "s", plan.at_peak.tpot_s, "mean TPOT at today's peak");
  put("plan_headroom_ratio", "1", plan.headroom_ratio,
      "growth over today's peak until the service level is just met, everything running");
  if (const auto usd = gpu.usd_per_year()) {
    put("plan_usd_per_year", "USD", *usd, "the cheaper of renting and owning");
  }
}

}  // namespace

void add_evidence(const SizeInputs& inputs, const SizeResult& result, report::Report& report) {
  const auto put = [&](const char* name, const char* unit, double value, const char* how) {
    report.metrics[name] = value_metric(MetricKind::kModelled, unit, value, how);
  };
  std::int64_t not_fitting = 0;
  for (const GpuResult& gpu : result.gpus) not_fitting += gpu.works ? 0 : 1;
  if (!result.recommended) {
    put("out_of_memory_count", "1", static_cast<double>(not_fitting),
        "GPU types of the scenario on which no layout works");
    return;
  }
  const GpuResult& gpu = result.gpus[*result.recommended];
  const planner::SizePlan& plan = gpu.best();
  add_summary(inputs, gpu, report);
  const planner::RankFit& rank = plan.fit.binding();
  put("num_ranks", "1", plan.layout.gpus(), "GPUs of one deployment of the recommended layout");
  put("out_of_memory_count", "1", 0.0,
      "ranks of the recommended layout whose planned bytes exceed the memory");
  put("memory_use_ratio", "1",
      static_cast<double>(rank.used_bytes + rank.kv_pool_bytes) /
          static_cast<double>(gpu.size_case.fit.memory_bytes),
      "weights, buffers and cache pool of the fullest rank over the memory a GPU shows");
  put("slo_met_after_failure", "1", plan.slo_met_after_failure ? 1.0 : 0.0,
      "1: what is left without one failure domain carries the planned peak, growth included, "
      "within the service level");
  const planner::StepTime& step = plan.at_peak.decode_step;
  const double communication = step.part(planner::StepPart::kAllReduce) +
                               step.part(planner::StepPart::kAllToAll) +
                               step.part(planner::StepPart::kPipeline);
  if (step.value_s > 0.0) {
    put("comm_share_ratio", "1", communication / step.value_s,
        "all-reduce, all-to-all and pipeline hops over the whole decode step, at the peak");
  }
  // Per GPU paid for, which is what the layouts were compared by.
  const auto value_of = [&](const planner::SizePlan& one) {
    return inputs.scenario.num_gpus > 0
               ? static_cast<double>(one.deployments) * one.capacity.requests_per_s
               : one.requests_per_s_needed / static_cast<double>(one.gpus_bought);
  };
  double best_other = 0.0;
  std::int64_t alternatives = 0;
  for (std::size_t i = 1; i < gpu.plans.size(); ++i) {
    if (!gpu.plans[i].works()) continue;
    ++alternatives;
    best_other = std::max(best_other, value_of(gpu.plans[i]));
  }
  put("layout_alternatives_count", "1", static_cast<double>(alternatives),
      "other layouts of the same GPU type that work");
  if (best_other > 0.0) {
    put("layout_throughput_ratio", "1", value_of(plan) / best_other,
        "demand carried per GPU paid for, over that of the best other layout");
  }
}

}  // namespace procurement

void fill_procurement_report(const SizeInputs& inputs, const SizeResult& result,
                             const std::string& command, ReportSession& session) {
  report::Report& report = session.report();
  procurement::add_answer(inputs, result, report);
  procurement::add_header(inputs, report);
  procurement::add_workload(inputs, report);
  procurement::add_service_level(inputs, report);
  procurement::add_fit(inputs, result, report);
  procurement::add_performance(inputs, result, report);
  procurement::add_count(inputs, result, report);
  procurement::add_power(result, report);
  procurement::add_money(inputs, result, report);
  procurement::add_sensitivity(result, report);
  procurement::add_evidence(inputs, result, report);
  procurement::add_risks(inputs, result, session);
  procurement::add_reproduction(inputs, command, report);
}

}  // namespace moe::app
