// moe-plan predict: what clients of a deployment will see.

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
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
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using report::MetricKind;

struct PredictArgs {
  StepArgs step;
  std::string gpu = "h100-sxm";
  std::string layout = "TP1";
  std::string prefill_layout;
  std::int64_t prefill_workers = 1;
  std::int64_t decode_workers = 1;
  std::vector<std::int64_t> clients = {1, 8, 32, 128};
  double request_rate = 0.0;
  std::vector<std::string> calibration;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

struct System {
  std::optional<planner::StepModel> decode;
  std::optional<planner::StepModel> prefill;  // disaggregated
  std::int32_t num_prefill_workers = 1;
  std::int32_t num_decode_workers = 1;
  planner::FitResult room;
  planner::RequestShape shape;

  [[nodiscard]] double max_requests() const { return static_cast<double>(room.max_requests); }
  [[nodiscard]] planner::Disaggregation parts() const {
    return {&*prefill, &*decode, num_prefill_workers, num_decode_workers};
  }
  [[nodiscard]] planner::ServingPoint closed(double clients) const {
    return prefill ? planner::serve_closed_loop(parts(), shape, clients, max_requests())
                   : planner::serve_closed_loop(*decode, shape, clients, max_requests());
  }
  [[nodiscard]] planner::ServingPoint open(double rate) const {
    return prefill ? planner::serve_open_loop(parts(), shape, rate, max_requests())
                   : planner::serve_open_loop(*decode, shape, rate, max_requests());
  }
};

void check_layout(const model::Architecture& architecture, const planner::Layout& layout,
                  const std::string& option) {
  const std::string problem = planner::layout_problem(architecture, layout);
  if (!problem.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} {}: {}", option, planner::describe(layout), problem));
  }
}

const std::vector<report::Column> kPointColumns = {{"load", ""},
                                                   {"ttft_s", "s"},
                                                   {"ttft_p99_s", "s"},
                                                   {"wait_s", "s"},
                                                   {"tpot_s", "s"},
                                                   {"tpot_full_overlap_s", "s"},
                                                   {"tpot_no_overlap_s", "s"},
                                                   {"output_tokens_per_s", "tokens/s"},
                                                   {"output_tokens_per_s_per_gpu", "tokens/s"},
                                                   {"batch_per_rank", "1"},
                                                   {"in_system", "1"},
                                                   {"prefill_utilization", "1"},
                                                   {"limited_by", ""},
                                                   {"step_limited_by", ""}};

void add_point(const std::string& load, const planner::ServingPoint& point, report::Table& table) {
  table.rows.push_back({load, point.ttft_s, point.ttft_p99_s, point.wait_s, point.tpot_s,
                        point.tpot_full_overlap_s, point.tpot_no_overlap_s,
                        point.output_tokens_per_s, point.output_tokens_per_s_per_gpu,
                        point.batch_per_rank, point.concurrency, point.prefill_utilization,
                        std::string(point.is_stable ? "" : "UNSTABLE: ") +
                            std::string(planner::serving_limit_name(point.limit)),
                        std::string(planner::resource_name(point.limiting_resource))});
}

void add_step_table(const planner::StepModel& model, const planner::RequestShape& shape,
                    report::Report& report) {
  report::Table table = make_table("One decode step by part", {{"batch_per_rank", "1"},
                                                               {"step_s", "s"},
                                                               {"full_overlap_s", "s"},
                                                               {"no_overlap_s", "s"},
                                                               {"dense_s", "s"},
                                                               {"experts_s", "s"},
                                                               {"attention_s", "s"},
                                                               {"state_s", "s"},
                                                               {"communication_s", "s"},
                                                               {"overhead_s", "s"},
                                                               {"distinct_experts_per_layer", "1"},
                                                               {"limited_by", ""}});
  const double context = shape.input_tokens + shape.output_tokens / 2.0;
  for (const double batch : {1.0, 4.0, 16.0, 64.0, 256.0}) {
    const planner::StepTime step = model.decode(batch, context);
    double hits = 0.0;
    if (!model.profile().moe.empty()) {
      const planner::MoeShape& moe = model.profile().moe.front();
      const double tokens = batch * model.layout().dp;
      hits = planner::expected_hits(moe.num_experts, moe.top_k, tokens);
      if (!model.setup().skew.popularity.empty()) {
        hits = planner::expected_hits(model.setup().skew.popularity, moe.top_k, tokens);
      }
    }
    using planner::StepPart;
    table.rows.push_back({batch, step.value_s, step.full_overlap_s, step.no_overlap_s,
                          step.part(StepPart::kDense), step.part(StepPart::kExperts),
                          step.part(StepPart::kAttention), step.part(StepPart::kState),
                          step.part(StepPart::kAllReduce) + step.part(StepPart::kAllToAll) +
                              step.part(StepPart::kPipeline),
                          step.part(StepPart::kOverhead), hits,
                          std::string(planner::resource_name(step.limiting()))});
  }
  report.tables["decode_step"] = table;
  report.charts.push_back(
      {.title = "Decode step by part",
       .kind = report::ChartKind::kStacked,
       .table = "decode_step",
       .x = "batch_per_rank",
       .y = {"dense_s", "experts_s", "attention_s", "state_s", "communication_s", "overhead_s"},
       .group_by = ""});
}

void add_metrics(const planner::ServingPoint& point, report::Report& report) {
  const auto add = [&](const char* name, const char* unit, double value, const char* how) {
    report.metrics[name] = value_metric(MetricKind::kModelled, unit, value, how);
  };
  add("ttft_s", "s", point.ttft_s,
      "mean time to first token at the highest load asked for: prefill, waiting behind other "
      "prompts or for cache, steps until the token is sent");
  add("tpot_s", "s", point.tpot_s,
      "mean time per output token after the first, prompts of other requests between included");
  add("tpot_full_overlap_s", "s", point.tpot_full_overlap_s,
      "lower end of the band: the decode step's largest resource alone");
  add("tpot_no_overlap_s", "s", point.tpot_no_overlap_s,
      "upper end of the band: all parts of the step one after the other");
  add("output_tokens_per_s", "tokens/s", point.output_tokens_per_s, "of the whole system");
  add("output_tokens_per_s_per_gpu", "tokens/s", point.output_tokens_per_s_per_gpu,
      "output_tokens_per_s over all GPUs, those of prefill workers included");
  const double network = point.decode_step.part(planner::StepPart::kAllReduce) +
                         point.decode_step.part(planner::StepPart::kAllToAll) +
                         point.decode_step.part(planner::StepPart::kPipeline);
  add("comm_share_ratio", "1", network / point.decode_step.value_s,
      "communication over the whole decode step");
  report.highlights = {"ttft_s", "tpot_s", "tpot_full_overlap_s", "tpot_no_overlap_s",
                       "output_tokens_per_s_per_gpu"};
}

void add_findings(const System& system, const std::vector<planner::ServingPoint>& points,
                  ReportSession& session) {
  std::vector<std::string> defaults = system.decode->defaults();
  if (system.prefill) {
    for (const std::string& line : system.prefill->defaults()) {
      if (std::find(defaults.begin(), defaults.end(), line) == defaults.end()) {
        defaults.push_back(line);
      }
    }
  }
  for (const std::string& line : defaults) {
    session.add_finding("predict.default_stands_in", report::Severity::kWarning, line,
                        "Measure this deployment with moe-bench and pass its report with "
                        "--calibration");
  }
  const planner::GroupError& error = system.decode->held_out_error();
  if (error.num_rows > 0) {
    session.add_finding(
        "predict.expected_error", report::Severity::kInfo,
        fmt::format("on {} measured operating points that the fit has not seen, of this GPU, "
                    "engine and precision where there are some, TPOT was off by {:.0f} % and TTFT "
                    "by {:.0f} % in the median, {:.0f} % and {:.0f} % at the 90th percentile",
                    error.num_rows, error.tpot_median * 100.0, error.ttft_median * 100.0,
                    error.tpot_p90 * 100.0, error.ttft_p90 * 100.0),
        "");
  }
  if (!system.room.fits) {
    session.add_finding("predict.does_not_fit", report::Severity::kError,
                        "the weights leave no room for one request on the fullest rank; the times "
                        "are those of a deployment that would",
                        "moe-plan fit shows where every byte goes");
  }
  for (const planner::ServingPoint& point : points) {
    if (point.is_stable) continue;
    session.add_finding("predict.unstable", report::Severity::kWarning,
                        fmt::format("requests arrive faster than they are served: {:.3g} of them "
                                    "per second leave, limited by {}",
                                    point.requests_per_s, planner::serving_limit_name(point.limit)),
                        "Add deployments (moe-plan size) or send less");
  }
}

System make_system(const PredictArgs& args, const PlanModel& model,
                   const planner::HardwareFile& hardware, const planner::MeasuredTimes& measured) {
  System system;
  const planner::Accelerator& gpu = planner::find_accelerator(hardware, args.gpu);
  const planner::Layout layout = parse_layout(args.layout);
  check_layout(model.architecture, layout, "--layout");
  planner::StepSetup setup = resolve_setup(args.step, model.architecture);
  system.shape = resolve_shape(args.step);
  if (!args.calibration.empty()) {
    const Calibration found = calibrate_from_reports(
        args.calibration, planner::StepModel(model.architecture, layout, gpu, setup, measured));
    setup.decode_calibration = found.decode;
    setup.prefill_calibration = found.prefill;
  }
  system.decode.emplace(model.architecture, layout, gpu, setup, measured);
  if (!args.prefill_layout.empty()) {
    const planner::Layout prefill = parse_layout(args.prefill_layout);
    check_layout(model.architecture, prefill, "--prefill-layout");
    system.prefill.emplace(model.architecture, prefill, gpu, setup, measured);
    system.num_prefill_workers = static_cast<std::int32_t>(args.prefill_workers);
    system.num_decode_workers = static_cast<std::int32_t>(args.decode_workers);
  }
  planner::FitOptions fit = resolve_fit(args.step, setup, system.shape);
  fit.memory_bytes = gpu.usable_memory_bytes();
  system.room = planner::fit(model.architecture, layout, fit);
  return system;
}

int run_predict(const PredictArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const std::filesystem::path scenarios = require_scenarios(args.step.scenarios);
  const PlanModel model = load_plan_model(args.step.model, scenarios, args.step.weights);
  const PlanHardware hardware = load_plan_hardware(scenarios, args.step.hardware);
  const planner::MeasuredTimes measured = load_measured_times(scenarios, args.step.constants);
  const System system = make_system(args, model, hardware.file, measured);

  report::Report& report = session.report();
  report.subject["kind"] = "model_config";
  report.subject["name"] = model.name;
  report.subject["content_hash"] = model.content_hash;
  report.settings["command"] = "predict";
  report.settings["gpu"] = planner::find_accelerator(hardware.file, args.gpu).id;
  report.settings["layout"] = planner::describe(system.decode->layout());
  record_settings(args.step, report);
  if (!args.calibration.empty()) {
    report.settings["calibration"] = args.calibration;
    report.settings["decode_calibration"] = system.decode->setup().decode_calibration;
    report.settings["prefill_calibration"] = system.decode->setup().prefill_calibration;
  }
  std::vector<planner::ServingPoint> points;
  report::Table table = make_table("Loads", kPointColumns);
  if (args.request_rate > 0.0) {
    points.push_back(system.open(args.request_rate));
    add_point(fmt::format("{:.4g} requests/s", args.request_rate), points.back(), table);
  } else {
    for (const std::int64_t clients : args.clients) {
      points.push_back(system.closed(static_cast<double>(clients)));
      add_point(fmt::format("{} clients", clients), points.back(), table);
    }
  }
  report.tables["loads"] = table;
  report.charts.push_back({.title = "Throughput against time per output token",
                           .kind = report::ChartKind::kLine,
                           .table = "loads",
                           .x = "tpot_s",
                           .y = {"output_tokens_per_s_per_gpu"},
                           .group_by = ""});
  add_step_table(*system.decode, system.shape, report);
  add_metrics(points.back(), report);
  report.metrics["max_requests"] =
      value_metric(MetricKind::kModelled, "1", static_cast<double>(system.room.max_requests),
                   "requests of full length that the cache of one deployment holds");
  add_findings(system, points, session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_plan_predict_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<PredictArgs>();
  Options& options =
      line.add_command("predict", "TTFT, time per token and throughput of a deployment, as a band",
                       [args, &context] { return run_predict(*args, context); });
  add_model_options(options, args->step);
  options.text("--gpu", "ID", args->gpu, "GPU type, an id of hardware.json");
  options.text("--layout", "WORDS", args->layout, "TP, DP, EP, PP of one deployment: \"TP8 EP8\"");
  options.text("--prefill-layout", "WORDS", args->prefill_layout,
               "Prefill on workers of their own with this layout; --layout is the decode workers'");
  options.integer("--prefill-workers", args->prefill_workers, {1, 65536},
                  "Prefill workers, with --prefill-layout");
  options.integer("--decode-workers", args->decode_workers, {1, 65536},
                  "Decode workers, with --prefill-layout");
  add_workload_options(options, args->step);
  options.integers("--clients", args->clients, {1, 1'000'000},
                   "Closed loop: clients that send their next request when the last is answered");
  options.real("--request-rate", args->request_rate, {0.0, 1e9},
               "Open loop: requests per second that arrive, instead of --clients");
  add_skew_options(options, args->step);
  add_data_options(options, args->step);
  options.texts("--calibration", "FILE", args->calibration,
                "moe-bench report of this deployment: times are scaled to what it measured");
  add_output_options(options, args->output);
  add_acceptance_options(options, args->acceptance);
  options.example("moe-plan predict DeepSeek-V3 --gpu h200-sxm --engine sglang --layout TP8",
                  "Four loads of one server");
  options.example("moe-plan predict Mixtral-8x7B-v0.1 --gpu h100-sxm --layout TP2 --request-rate 4",
                  "Open loop: is it stable, and how long is the queue");
}

}  // namespace moe::app
