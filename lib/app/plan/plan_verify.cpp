// moe-plan verify: its own error against everything that was published or measured.

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/plan/verify_tables.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/planner/byte_anchors.hpp"
#include "lib/planner/measured_json.hpp"
#include "lib/planner/throughput_anchors.hpp"
#include "lib/stats/midpoint_median.hpp"

namespace moe::app {
namespace {

struct VerifyArgs {
  std::string csv;
  std::string scenarios;
  std::string hardware;
  std::string constants;
  std::string split = "points";
  OutputOptions output;
  AcceptanceOptions acceptance;
};

struct Inputs {
  std::filesystem::path scenarios;
  planner::HardwareFile hardware;
  planner::MeasuredTimes measured;
};

// ---- published throughput ----

void add_anchor_findings(const std::vector<planner::AnchorResult>& results,
                         ReportSession& session) {
  for (const planner::AnchorResult& result : results) {
    if (result.is_inside) continue;
    const planner::ThroughputAnchor& anchor = *result.anchor;
    const bool is_explained = !anchor.outside_reason.empty();
    const std::string message =
        fmt::format("{}: published {:.0f} tokens/s/GPU lies outside the band of {:.0f} to {:.0f}{}",
                    anchor.id, anchor.tokens_per_s_per_gpu, result.low, result.high,
                    is_explained ? ": " + anchor.outside_reason : "");
    session.add_finding(is_explained ? "verify.anchor_outside_explained" : "verify.anchor_outside",
                        is_explained ? report::Severity::kInfo : report::Severity::kError, message,
                        is_explained ? ""
                                     : "The model misses something here: do not size a "
                                       "similar system with it");
  }
}

bool verify_throughput(const Inputs& inputs, ReportSession& session) {
  const std::filesystem::path path = inputs.scenarios / "anchors" / "throughput.json";
  const std::vector<planner::ThroughputAnchor> anchors =
      planner::parse_throughput_anchors(read_text(path), path.string());
  std::vector<planner::AnchorResult> results;
  for (const planner::ThroughputAnchor& anchor : anchors) {
    const model::Architecture architecture = load_architecture(
        find_scenario(anchor.model, inputs.scenarios, "models", ".json"), anchor.weights);
    results.push_back(planner::check_anchor(anchor, architecture,
                                            planner::find_accelerator(inputs.hardware, anchor.gpu),
                                            inputs.measured));
  }
  report::Report& report = session.report();
  report::Table table = make_table("Published throughput of decode and prefill workers",
                                   {{"anchor", ""},
                                    {"phase", ""},
                                    {"gpu", ""},
                                    {"layout", ""},
                                    {"published", "tokens/s/GPU"},
                                    {"predicted", "tokens/s/GPU"},
                                    {"low", "tokens/s/GPU"},
                                    {"high", "tokens/s/GPU"},
                                    {"error", "1"},
                                    {"in_band", ""},
                                    {"limited_by", ""},
                                    {"source", ""}});
  std::vector<double> errors;
  bool all_explained = true;
  for (const planner::AnchorResult& result : results) {
    const planner::ThroughputAnchor& anchor = *result.anchor;
    const bool is_decode = anchor.kind == planner::AnchorKind::kDecode;
    table.rows.push_back({anchor.id, std::string(is_decode ? "decode" : "prefill"), anchor.gpu,
                          planner::describe(anchor.layout), anchor.tokens_per_s_per_gpu,
                          result.predicted, result.low, result.high, result.error(),
                          std::string(result.is_inside                ? "yes"
                                      : anchor.outside_reason.empty() ? "NO"
                                                                      : "no, explained"),
                          std::string(planner::resource_name(result.limiting)), anchor.source});
    errors.push_back(std::abs(result.error()));
    all_explained = all_explained && (result.is_inside || !anchor.outside_reason.empty());
  }
  report.tables["throughput_anchors"] = table;
  if (!errors.empty()) {
    report.metrics["throughput_anchor_median_error"] = value_metric(
        report::MetricKind::kModelled, "1", stats::midpoint_median(errors),
        "median over the published figures of |predicted / published - 1|; none of them was "
        "used in a fit, and batches that a source does not state are assumed");
    report.highlights.emplace_back("throughput_anchor_median_error");
  }
  add_anchor_findings(results, session);
  return all_explained;
}

// ---- published bytes ----

bool verify_bytes(const Inputs& inputs, ReportSession& session) {
  const std::filesystem::path path = inputs.scenarios / "anchors" / "bytes.json";
  report::Report& report = session.report();
  report::Table table = make_table("Published parameter counts and bytes", {{"anchor", ""},
                                                                            {"what", ""},
                                                                            {"published", "1"},
                                                                            {"predicted", "1"},
                                                                            {"error", "1"},
                                                                            {"allowed", "1"},
                                                                            {"result", ""},
                                                                            {"source", ""}});
  std::vector<double> errors;
  bool all_inside = true;
  for (const planner::ByteAnchor& anchor :
       planner::parse_byte_anchors(read_text(path), path.string())) {
    const planner::ByteAnchorResult result = planner::check_byte_anchor(
        anchor, load_plan_model(anchor.model, inputs.scenarios, anchor.weights).architecture);
    table.rows.push_back({anchor.id, std::string(planner::kind_name(anchor.kind)), anchor.published,
                          result.predicted, result.error, anchor.tolerance,
                          std::string(result.is_inside ? "inside" : "OUTSIDE"), anchor.source});
    errors.push_back(std::abs(result.error));
    if (result.is_inside) continue;
    all_inside = false;
    session.add_finding("verify.byte_anchor_outside", report::Severity::kError,
                        fmt::format("{}: published {:.0f}, predicted {:.0f}", anchor.id,
                                    anchor.published, result.predicted),
                        "The byte model is wrong for this kind of model");
  }
  report.tables["byte_anchors"] = table;
  if (!errors.empty()) {
    report.metrics["byte_anchor_median_error"] =
        value_metric(report::MetricKind::kModelled, "1", stats::midpoint_median(errors),
                     "median over published parameter counts and bytes of |predicted / published "
                     "- 1|");
  }
  return all_inside;
}

// ---- measured deployments ----

// The peer's answers for rows with the same id, beside ours.
void add_peer_table(const Inputs& inputs, const std::vector<planner::PointError>& errors,
                    report::Report& report) {
  const std::filesystem::path path = inputs.scenarios / "anchors" / "peer_predictions.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const json::Json document = json::parse_file(path.string());
  std::unordered_map<std::string, const planner::PointError*> by_id;
  for (const planner::PointError& error : errors) by_id[error.id] = &error;
  std::vector<planner::PointError> ours;
  std::vector<planner::PointError> theirs;
  for (const json::Json& row : planner::array_at(document, "rows", path.string())) {
    const auto it = by_id.find(planner::text_at(row, "id", path.string()));
    if (it == by_id.end()) continue;
    ours.push_back(*it->second);
    theirs.push_back(*it->second);
    theirs.back().tpot_predicted_s = planner::number_at(row, "tpot_s", 0.0, 1e6, path.string());
    theirs.back().ttft_predicted_s = planner::number_at(row, "ttft_s", 0.0, 1e6, path.string());
  }
  if (ours.empty()) return;
  report::Table table = make_table(
      "The same operating points, beside another planner",
      {{"planner", ""}, {"rows", "1"}, {"tpot_median_error", "1"}, {"ttft_median_error", "1"}});
  const auto add = [&](const std::string& name, const std::vector<planner::PointError>& list,
                       bool held_out_only) {
    const planner::GroupError error = planner::summarize(
        list, [&](const planner::PointError& e) { return !held_out_only || e.is_held_out; });
    if (error.num_rows == 0) return;
    table.rows.push_back({name, count_cell(error.num_rows), error.tpot_median, error.ttft_median});
  };
  add("moe-plan", ours, false);
  add("aiconfigurator 0.12.0", theirs, false);
  add("moe-plan, rows that its fit has not seen", ours, true);
  add("aiconfigurator 0.12.0, the same rows", theirs, true);
  report.tables["peer_side_by_side"] = table;
}

void verify_deployments(const VerifyArgs& args, const Inputs& inputs, ReportSession& session) {
  const std::filesystem::path csv = args.csv.empty()
                                        ? inputs.scenarios / "measured" / "end_to_end.csv"
                                        : std::filesystem::path(args.csv);
  const planner::RowRules rules = load_row_rules(inputs.scenarios);
  const planner::OperatingPoints rows =
      planner::parse_operating_points(read_text(csv), csv.string());
  RowArchitectures architectures(inputs.scenarios);
  const planner::PreparedPoints prepared = planner::prepare_points(
      rows.points, inputs.hardware,
      [&](const planner::OperatingPoint& point) {
        return architectures.find(point.model, point.precision);
      },
      inputs.measured, rules);
  add_skipped_findings(rows, prepared, session);
  if (prepared.points.empty()) {
    session.invalidate("no operating point of the table could be predicted");
    return;
  }
  const planner::Split split =
      args.split == "points" ? planner::Split::kPoints : planner::Split::kDeployments;
  const std::vector<planner::PointError> errors = planner::point_errors(prepared.points, split);
  report::Report& report = session.report();
  add_error_tables(errors, report);
  if (!args.csv.empty()) {
    add_error_row_table(
        errors, "end_to_end_all_rows", "All rows of this file",
        [](const planner::PointError&) { return true; }, report);
  }
  add_peer_table(inputs, errors, report);
  add_point_table(errors, report);
  json::Json evidence;
  evidence["assumptions"] = rules.assumptions;
  session.add_finding("end_to_end.assumptions", report::Severity::kInfo,
                      fmt::format("{} things that the source does not state were inferred",
                                  rules.assumptions.size()),
                      "The evidence lists them", evidence);
}

int run_verify(const VerifyArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  Inputs inputs;
  inputs.scenarios = require_scenarios(args.scenarios);
  inputs.hardware = load_plan_hardware(inputs.scenarios, args.hardware).file;
  inputs.measured = load_measured_times(inputs.scenarios, args.constants);
  report::Report& report = session.report();
  report.subject["kind"] = "reports";
  report.subject["name"] = "moe-plan";
  report.subject["content_hash"] = nullptr;
  report.settings["command"] = "verify";
  report.settings["end_to_end"] = args.csv.empty() ? "measured/end_to_end.csv" : args.csv;
  report.settings["split"] = args.split;
  report.settings["constants"] = inputs.measured.constants.source;
  const bool bytes_ok = verify_bytes(inputs, session);
  const bool throughput_ok = verify_throughput(inputs, session);
  verify_deployments(args, inputs, session);
  return session.finish(bytes_ok && throughput_ok ? kExitOk : kExitCheckFailed, std::nullopt,
                        std::nullopt);
}

}  // namespace

void add_plan_verify_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<VerifyArgs>();
  Options& options = line.add_command(
      "verify", "Prints moe-plan's own error against published and measured figures",
      [args, &context] { return run_verify(*args, context); });
  options.group("Input");
  options.text("--end-to-end", "FILE", args->csv,
               "Measured operating points as CSV [default: measured/end_to_end.csv of the "
               "scenarios]");
  options.choice("--split", {"points", "deployments"}, args->split,
                 "Which rows count as held out; constants fitted with this split belong to it");
  options.text("--constants", "FILE", args->constants,
               "Step constants [default: measured/step_constants.json of the scenarios]");
  options.text("--hardware", "FILE", args->hardware, "Own entries beside hardware.json");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_output_options(options, args->output);
  add_acceptance_options(options, args->acceptance);
  options.example("moe-plan verify", "Every anchor with published, predicted, error");
  options.example("moe-plan verify --end-to-end rows.csv --format json",
                  "The same for own measurements");
}

}  // namespace moe::app
