// moe-plan calibrate: fits the constants of the step-time model to measured operating points.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/plan/verify_tables.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/atomic_file.hpp"
#include "lib/base/error.hpp"
#include "lib/planner/step_fit.hpp"

namespace moe::app {
namespace {

struct CalibrateArgs {
  std::string csv;
  std::string scenarios;
  std::string hardware;
  std::string constants;
  std::string out;
  std::string split = "points";
  std::string without_model;
  OutputOptions output;
};

// Groups by the key that the constants use, so that a report can quote the right error.
void add_held_out_errors(const planner::PreparedPoints& prepared,
                         const std::vector<planner::PointError>& errors,
                         planner::StepConstants& constants) {
  constants.held_out.clear();
  std::vector<std::string> groups;
  for (const planner::PreparedPoint& point : prepared.points) {
    groups.push_back(point.keys().at(planner::TermLevel::kGroup));
  }
  std::vector<std::string> unique = groups;
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  for (const std::string& group : unique) {
    const planner::GroupError error = planner::summarize(errors, [&](const planner::PointError& e) {
      return e.is_held_out && groups[static_cast<std::size_t>(&e - errors.data())] == group;
    });
    // Fewer say nothing about a group.
    if (error.num_rows >= 5) constants.held_out[group] = error;
  }
  constants.held_out["all"] =
      planner::summarize(errors, [](const planner::PointError& e) { return e.is_held_out; });
}

int run_calibrate(const CalibrateArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  if (!args.out.empty()) check_writable(args.out, "--out");
  const std::filesystem::path scenarios = require_scenarios(args.scenarios);
  const std::filesystem::path csv = args.csv.empty() ? scenarios / "measured" / "end_to_end.csv"
                                                     : std::filesystem::path(args.csv);
  const planner::HardwareFile hardware = load_plan_hardware(scenarios, args.hardware).file;
  planner::MeasuredTimes measured = load_measured_times(scenarios, args.constants);
  const planner::RowRules rules = load_row_rules(scenarios);
  const planner::Split split =
      args.split == "points" ? planner::Split::kPoints : planner::Split::kDeployments;
  const planner::OperatingPoints rows =
      planner::parse_operating_points(read_text(csv), csv.string());
  RowArchitectures architectures(scenarios);
  const auto source = [&](const planner::OperatingPoint& point) {
    return architectures.find(point.model, point.precision);
  };
  planner::PreparedPoints prepared =
      planner::prepare_points(rows.points, hardware, source, measured, rules);
  std::vector<bool> use;
  for (const planner::PreparedPoint& point : prepared.points) {
    use.push_back(!planner::is_held_out(point.measured, split) &&
                  point.measured.model != args.without_model);
  }
  const auto num_used = std::count(use.begin(), use.end(), true);
  if (num_used < 20) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected at least 20 usable rows to fit to, found {} of {}",
                            csv.string(), num_used, rows.points.size() + prepared.points.size()));
  }
  const planner::StepFitResult fit =
      planner::fit_step_constants(measured.constants, prepared.points, use);
  for (planner::PreparedPoint& point : prepared.points) {
    for (planner::StepModel& model : point.models) {
      model.set_terms(fit.constants.resolve(point.keys()));
    }
  }
  const std::vector<planner::PointError> errors = planner::point_errors(prepared.points, split);
  planner::StepConstants constants = fit.constants;
  constants.source = fmt::format("moe-plan calibrate on {} rows of {}, split by {}; see SOURCES.md",
                                 fit.num_rows, csv.filename().string(), args.split);
  add_held_out_errors(prepared, errors, constants);
  if (!args.out.empty()) write_file_atomically(args.out, planner::step_constants_json(constants));

  report::Report& report = session.report();
  report.subject["kind"] = "reports";
  report.subject["name"] = csv.filename().string();
  report.subject["content_hash"] = nullptr;
  report.settings["command"] = "calibrate";
  report.settings["split"] = args.split;
  report.settings["out"] =
      args.out.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(args.out);
  report.metrics["calibration_rows"] =
      value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(fit.num_rows),
                   "operating points that the constants were fitted to");
  report.metrics["calibration_parameters"] =
      value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(fit.num_parameters),
                   "global values and factors, each drawn towards its prior");
  report.metrics["calibration_rounds"] =
      value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(fit.num_rounds),
                   "rounds of damped least squares");
  add_error_tables(errors, report);
  if (!args.without_model.empty()) {
    add_error_row_table(
        errors, "model_left_out", "A model that the fit has not seen: " + args.without_model,
        [&](const planner::PointError& e) { return e.model == args.without_model; }, report);
  }
  add_skipped_findings(rows, prepared, session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_plan_calibrate_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<CalibrateArgs>();
  Options& options =
      line.add_command("calibrate", "Fits the step-time constants to measured operating points",
                       [args, &context] { return run_calibrate(*args, context); });
  options.group("Input");
  options.text("--end-to-end", "FILE", args->csv,
               "Operating points as CSV [default: measured/end_to_end.csv of the scenarios]");
  options.text("--constants", "FILE", args->constants,
               "Where priors come from and the fit begins [default: measured/step_constants.json]");
  options.choice("--split", {"points", "deployments"}, args->split,
                 "What is kept apart to judge: a quarter of the points, or whole deployments");
  options.text("--without-model", "NAME", args->without_model,
               "Keep this model out of the fit and show how it is predicted");
  options.text("--hardware", "FILE", args->hardware, "Own entries beside hardware.json");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  options.group("Result");
  options.text("--out", "FILE", args->out,
               "Write the constants here; without it only the errors "
               "are shown");
  add_output_options(options, args->output);
  options.example("moe-plan calibrate --split deployments",
                  "How far off the model is on deployments that it has not seen");
}

}  // namespace moe::app
