// Part 10: what the signature should know before the pen moves.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/app/plan/procurement_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/planner/layout.hpp"

namespace moe::app::procurement {
namespace {

using report::Severity;

struct Risk {
  std::string code;
  Severity severity = Severity::kWarning;
  std::string message;
  std::string advice;
};

void add_gpu_risks(const SizeInputs& inputs, const GpuResult& gpu, std::vector<Risk>& risks) {
  const std::string& name = gpu.gpu.name;
  for (const std::string& note : gpu.gpu.notes) {
    risks.push_back({"plan.hardware_note", Severity::kInfo, fmt::format("{}: {}", name, note),
                     "Check the data sheet of the machine that is offered."});
  }
  if (!gpu.gpu.has_visible_memory()) {
    risks.push_back({"plan.memory_from_label", Severity::kWarning,
                     fmt::format("{}: no one wrote down what a driver shows, so its memory is "
                                 "estimated from the label",
                                 name),
                     "Read it from nvidia-smi or torch on one machine."});
  }
  if (gpu.gpu.sources.size() < 2) {
    risks.push_back({"plan.single_source", Severity::kInfo,
                     fmt::format("{}: its figures have a single source", name), ""});
  }
  if (!gpu.works) {
    const std::string why = gpu.plans.empty() ? "no layout is possible" : gpu.plans.front().problem;
    risks.push_back({"plan.no_layout", Severity::kError,
                     fmt::format("{} on {}: {}", inputs.model.name, name, why),
                     gpu.remedies.empty()
                         ? std::string("Neither narrower weights nor more of these GPUs help: a "
                                       "GPU with more memory, or a looser service level.")
                         : fmt::format("What would work: {}.", fmt::join(gpu.remedies, "; "))});
    return;
  }
  const planner::SizePlan& plan = gpu.best();
  if (plan.headroom_ratio < 0.0) {
    risks.push_back(
        {"plan.overload", Severity::kError,
         fmt::format("{}: {} GPUs carry {:.3g} requests/s within the service level, "
                     "the peak is {:.3g}",
                     name, plan.gpus,
                     static_cast<double>(plan.deployments) * plan.capacity.requests_per_s,
                     inputs.demand.peak_requests_per_s),
         "More GPUs, or less demand."});
  }
  if (!plan.slo_met_after_failure) {
    risks.push_back({"plan.no_spare", Severity::kWarning,
                     fmt::format("{}: with one {} gone the planned demand is not carried", name,
                                 inputs.scenario.failure_domain),
                     "Add one failure domain, or choose smaller deployments."});
  }
  if (gpu.power && gpu.power->exceeds_rack_limit) {
    risks.push_back({"plan.rack_power", Severity::kError,
                     fmt::format("{}: a node draws {:.1f} kW, a rack has {:.1f}", name,
                                 gpu.power->node_kw, inputs.scenario.rack_limit_kw),
                     "Another rack, or liquid cooling; ask the data centre."});
  }
  if (!plan.defaults.empty()) {
    risks.push_back({"plan.not_measured", Severity::kWarning,
                     fmt::format("{}: {} term{} of the step time rest on defaults, the first: {}",
                                 name, plan.defaults.size(), plan.defaults.size() == 1 ? "" : "s",
                                 plan.defaults.front()),
                     "Measure one deployment and calibrate before buying many."});
  }
}

std::vector<Risk> list_risks(const SizeInputs& inputs, const SizeResult& result) {
  std::vector<Risk> risks;
  const Scenario& s = inputs.scenario;
  for (const GpuResult& gpu : result.gpus) add_gpu_risks(inputs, gpu, risks);
  for (const std::string& note : inputs.model.architecture.notes) {
    risks.push_back({"plan.model_note", Severity::kInfo, note, ""});
  }
  if (inputs.skew.popularity.empty() && inputs.model.architecture.is_moe()) {
    risks.push_back({"plan.uniform_routing", Severity::kInfo,
                     "routing is taken as uniform: no expert is hotter than another",
                     "Record routing on your traffic and pass the report of moe-skew."});
  }
  if (!inputs.links_report) {
    risks.push_back({"plan.links_from_data_sheet", Severity::kInfo,
                     "link rates come from data sheets and assumptions",
                     "Pass a report of moe-a2a once a machine is there."});
  }
  if (s.workload.trace && s.workload.trace->info.is_token_estimate) {
    risks.push_back({"plan.token_estimate", Severity::kWarning,
                     "lengths of the trace are bytes / 4, not tokens", "Count them."});
  }
  const bool has_prices = std::any_of(result.gpus.begin(), result.gpus.end(),
                                      [](const GpuResult& g) { return g.usd_per_year(); });
  if (result.recommended && has_prices) {
    risks.push_back({"plan.prices_given", Severity::kInfo,
                     fmt::format("the recommendation rests on the prices given{}",
                                 s.prices_source.empty() ? "" : ": " + s.prices_source),
                     "Put quotes in their place; part 9 shows what a fifth more or less does."});
  }
  if (result.recommended && !has_prices) {
    risks.push_back({"plan.no_prices", Severity::kWarning, "no price was given, so no cost is here",
                     "Add \"prices\" to the scenario, from a quote."});
  }
  return risks;
}

}  // namespace

void add_risks(const SizeInputs& inputs, const SizeResult& result, ReportSession& session) {
  if (result.recommended) {
    const GpuResult& gpu = result.gpus[*result.recommended];
    const planner::SizePlan& plan = gpu.best();
    session.add_finding(
        "plan.answer", Severity::kInfo,
        fmt::format("{} x {}: {} deployment{} of {} in {} node{} for {:.3g} requests/s ({})",
                    inputs.scenario.num_gpus > 0 ? plan.gpus : plan.gpus_bought, gpu.gpu.name,
                    plan.deployments, plan.deployments == 1 ? "" : "s",
                    planner::describe(plan.layout), plan.nodes, plan.nodes == 1 ? "" : "s",
                    plan.requests_per_s_needed, result.rule),
        "");
  }
  report::Table table =
      make_table("10. Risks", {{"severity", ""}, {"risk", ""}, {"what_to_do", ""}});
  for (const Risk& risk : list_risks(inputs, result)) {
    const char* severity = risk.severity == Severity::kError     ? "error"
                           : risk.severity == Severity::kWarning ? "warning"
                                                                 : "info";
    table.rows.push_back({std::string(severity), risk.message, risk.advice});
    // The table holds them all; what must not be missed stands at the top, too.
    if (risk.severity != Severity::kInfo) {
      session.add_finding(risk.code, risk.severity, risk.message, risk.advice);
    }
  }
  session.report().tables["part10_risks"] = table;
}

}  // namespace moe::app::procurement
