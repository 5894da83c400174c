// From a scenario to what the planner calculates with.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/app/plan/size_result.hpp"
#include "lib/app/plan/tool_reports.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

planner::Demand demand_of(const Scenario& s) {
  planner::Demand demand;
  const workload::Workload& w = s.workload;
  demand.shape.input_tokens = std::max(1.0, w.input_tokens.mean());
  demand.shape.output_tokens = std::max(1.0, w.output_tokens.mean());
  demand.shape.cached_input_tokens = w.prefix_hit_ratio * demand.shape.input_tokens;
  demand.shape.pass_tokens = static_cast<double>(s.max_batched_tokens);
  demand.gap_cv = w.process.gap_cv;
  demand.request_tokens =
      std::max<std::int64_t>(1, w.input_tokens.quantile(s.cache_percentile) +
                                    w.output_tokens.quantile(s.cache_percentile));
  if (w.concurrency) {
    // So many clients ask as often as answers come; at the service level, this often.
    const double request_s = s.ttft_s + (demand.shape.output_tokens - 1.0) * s.tpot_s;
    demand.mean_requests_per_s = static_cast<double>(*w.concurrency) / request_s;
    demand.peak_requests_per_s = demand.mean_requests_per_s;
  } else {
    demand.mean_requests_per_s = w.mean_requests_per_s();
    demand.peak_requests_per_s = w.peak_requests_per_s();
  }
  return demand;
}

}  // namespace

SizeInputs load_size_inputs(Scenario scenario, const std::filesystem::path& scenarios_dir) {
  SizeInputs inputs;
  inputs.scenario = std::move(scenario);
  const Scenario& s = inputs.scenario;
  if (s.gpus.empty()) {
    throw Error(ErrorCode::kUsage, "no GPU type: name one or more with --gpu or in a scenario");
  }
  inputs.scenarios_dir = scenarios_dir;
  inputs.model = load_plan_model(s.model, scenarios_dir, s.weight_format);
  inputs.hardware = load_plan_hardware(scenarios_dir, s.hardware_file);
  inputs.measured = load_measured_times(scenarios_dir);
  inputs.demand = demand_of(s);
  if (!s.skew_report.empty()) {
    const SkewEvidence evidence = read_skew_report(s.skew_report);
    inputs.skew = evidence.skew;
    if (!inputs.skew.popularity.empty()) {
      require_popularity_of(inputs.model.architecture, inputs.skew.popularity, s.skew_report);
    }
    inputs.evidence.insert(inputs.evidence.end(), evidence.notes.begin(), evidence.notes.end());
  }
  if (!s.a2a_report.empty()) {
    inputs.links_report = s.a2a_report;
    inputs.evidence.push_back(read_a2a_report(s.a2a_report).note);
  }
  return inputs;
}

}  // namespace moe::app
