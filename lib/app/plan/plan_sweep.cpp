// moe-plan sweep: all layouts on all GPU types, and what is worth having.

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/plan/step_options.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/planner/sweep.hpp"

namespace moe::app {
namespace {

struct SweepArgs {
  StepArgs step;
  std::string gpus = "h100-sxm,h200-sxm,b200-sxm";
  std::int64_t max_gpus = 64;
  std::int64_t max_tp = 16;
  std::int64_t max_pp = 16;
  std::vector<std::int64_t> batches = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  double max_ttft_s = 0.0;
  double max_tpot_s = 0.0;
  OutputOptions output;
};

report::Table front_table(const planner::SweepResult& result) {
  report::Table table = make_table("Layouts that no other beats in both latency and throughput",
                                   {{"gpu", ""},
                                    {"layout", ""},
                                    {"gpus", "1"},
                                    {"batch_per_rank", "1"},
                                    {"ttft_s", "s"},
                                    {"tpot_s", "s"},
                                    {"tokens_per_s_per_user", "tokens/s"},
                                    {"tokens_per_s_per_gpu", "tokens/s"},
                                    {"max_requests", "1"},
                                    {"step_limited_by", ""}});
  for (const planner::SweepPoint& point : result.front) {
    table.rows.push_back({point.gpu, planner::describe(point.layout),
                          count_cell(point.layout.gpus()), count_cell(point.batch),
                          point.serving.ttft_s, point.serving.tpot_s, 1.0 / point.serving.tpot_s,
                          point.serving.output_tokens_per_s_per_gpu, point.max_requests,
                          std::string(planner::resource_name(point.serving.limiting_resource))});
  }
  return table;
}

report::Table space_table(const planner::SweepResult& result) {
  report::Table table = make_table("What was looked at", {{"what", ""}, {"count", "1"}});
  const auto add = [&](const std::string& what, std::int64_t count) {
    table.rows.push_back({what, count_cell(count)});
  };
  add("GPU types x legal layouts", result.num_layouts);
  add("of these without room for one request", result.num_not_fitting);
  add("points evaluated", result.num_points);
  add("points beyond the cache, not evaluated", result.num_over_cache);
  add("points beyond the latency limits", result.num_over_slo);
  for (const auto& [reason, count] : result.illegal) {
    add("layouts left out: " + reason, count);
  }
  return table;
}

int run_sweep(const SweepArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::filesystem::path scenarios = require_scenarios(args.step.scenarios);
  const PlanModel model = load_plan_model(args.step.model, scenarios, args.step.weights);
  const PlanHardware hardware = load_plan_hardware(scenarios, args.step.hardware);
  const planner::MeasuredTimes measured = load_measured_times(scenarios, args.step.constants);
  planner::SweepSpace space;
  std::vector<std::string> ids;
  for (const std::string& name : split_list(args.gpus)) {
    space.gpus.push_back(&planner::find_accelerator(hardware.file, name));
    ids.push_back(space.gpus.back()->id);
  }
  if (space.gpus.empty()) throw Error(ErrorCode::kUsage, "--gpus: expected at least one GPU type");
  space.max_gpus = static_cast<std::int32_t>(args.max_gpus);
  space.max_tp = static_cast<std::int32_t>(args.max_tp);
  space.max_pp = static_cast<std::int32_t>(args.max_pp);
  for (const std::int64_t batch : args.batches) {
    space.batches.push_back(static_cast<std::int32_t>(batch));
  }
  space.setup = resolve_setup(args.step, model.architecture);
  space.shape = resolve_shape(args.step);
  space.fit = resolve_fit(args.step, space.setup, space.shape);
  space.max_ttft_s = args.max_ttft_s;
  space.max_tpot_s = args.max_tpot_s;
  const SteadyClock clock;
  const double begin_s = clock.now_s();
  const planner::SweepResult result = planner::sweep(model.architecture, space, measured);
  const double sweep_s = clock.now_s() - begin_s;

  report::Report& report = session.report();
  report.subject["kind"] = "model_config";
  report.subject["name"] = model.name;
  report.subject["content_hash"] = model.content_hash;
  report.settings["command"] = "sweep";
  report.settings["gpus"] = ids;
  report.settings["max_gpus"] = args.max_gpus;
  report.settings["batches"] = args.batches;
  record_settings(args.step, report);
  report.tables["front"] = front_table(result);
  report.tables["space"] = space_table(result);
  report.charts.push_back({.title = "Throughput per GPU against speed for a user",
                           .kind = report::ChartKind::kLine,
                           .table = "front",
                           .x = "tokens_per_s_per_user",
                           .y = {"tokens_per_s_per_gpu"},
                           .group_by = "gpu"});
  report.metrics["sweep_points"] =
      value_metric(report::MetricKind::kModelled, "1", static_cast<double>(result.num_points),
                   "operating points evaluated, each a closed loop with a fixed point");
  report.metrics["sweep_s"] = value_metric(report::MetricKind::kMeasured, "s", sweep_s,
                                           "time of the sweep itself, on one thread");
  if (result.front.empty()) {
    session.add_finding("sweep.nothing_found", report::Severity::kError,
                        "no layout fits and meets the limits",
                        "The table of what was looked at says what ruled layouts out");
    session.invalidate("no layout fits and meets the limits");
  }
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_plan_sweep_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<SweepArgs>();
  Options& options = line.add_command("sweep", "All layouts on all GPU types: the Pareto front",
                                      [args, &context] { return run_sweep(*args, context); });
  add_model_options(options, args->step);
  options.text("--gpus", "ID,ID,...", args->gpus, "GPU types, ids of hardware.json");
  options.integer("--max-gpus", args->max_gpus, {1, 4096}, "GPUs of one deployment at most");
  options.integer("--max-tp", args->max_tp, {1, 256}, "Tensor parallel ranks at most");
  options.integer("--max-pp", args->max_pp, {1, 256}, "Pipeline stages at most");
  options.integers("--batches", args->batches, {1, 65536}, "Sequences on every attention rank");
  options.duration("--max-ttft", args->max_ttft_s, "Leave out slower points; 0: no limit");
  options.duration("--max-tpot", args->max_tpot_s, "Leave out slower points; 0: no limit");
  add_workload_options(options, args->step);
  add_skew_options(options, args->step);
  add_data_options(options, args->step);
  add_output_options(options, args->output);
  options.example("moe-plan sweep DeepSeek-V3 --gpus h200-sxm,b200-sxm --max-tpot 50ms",
                  "Which layout gives the most tokens per GPU at 50 ms");
}

}  // namespace moe::app
