#include "lib/app/plan/verify_tables.hpp"

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/table_builder.hpp"

namespace moe::app {
namespace {

const std::vector<report::Column> kErrorColumns = {{"group", ""},
                                                   {"rows", "1"},
                                                   {"tpot_median_error", "1"},
                                                   {"tpot_p90_error", "1"},
                                                   {"ttft_median_error", "1"},
                                                   {"ttft_p90_error", "1"}};

void add_row(const std::string& group, const planner::GroupError& error, report::Table& table) {
  table.rows.push_back({group, count_cell(error.num_rows), error.tpot_median, error.tpot_p90,
                        error.ttft_median, error.ttft_p90});
}

report::Table error_table(const std::string& title) {
  return make_table(title, kErrorColumns);
}

void add_grouped(const std::vector<planner::PointError>& errors, const std::string& key,
                 const std::string& title,
                 const std::function<std::string(const planner::PointError&)>& group_of,
                 report::Report& report) {
  std::map<std::string, int> groups;
  for (const planner::PointError& error : errors) {
    if (error.is_held_out) ++groups[group_of(error)];
  }
  if (groups.empty()) return;
  report::Table table = error_table(title);
  for (const auto& [group, count] : groups) {
    add_row(group,
            planner::summarize(errors,
                               [&](const planner::PointError& e) {
                                 return e.is_held_out && group_of(e) == group;
                               }),
            table);
  }
  report.tables[key] = table;
}

report::Metric error_metric(double value, const std::string& how) {
  return value_metric(report::MetricKind::kMeasured, "1", value, how);
}

}  // namespace

void add_error_row_table(const std::vector<planner::PointError>& errors, const std::string& key,
                         const std::string& title, const ErrorFilter& select,
                         report::Report& report) {
  report::Table table = error_table(title);
  add_row("all", planner::summarize(errors, select), table);
  report.tables[key] = table;
}

void add_error_tables(const std::vector<planner::PointError>& errors, report::Report& report) {
  const auto held = [](const planner::PointError& e) { return e.is_held_out; };
  const planner::GroupError all = planner::summarize(errors, held);
  if (all.num_rows > 0) {
    const std::string how =
        "median over held-out operating points of |predicted / measured - 1|; the constants were "
        "fitted to the other rows";
    report.metrics["tpot_median_error"] = error_metric(all.tpot_median, how);
    report.metrics["ttft_median_error"] = error_metric(all.ttft_median, how);
    report.metrics["held_out_rows"] =
        value_metric(report::MetricKind::kMeasured, "1", static_cast<double>(all.num_rows),
                     "operating points that the hash split keeps out of the fit");
    report.highlights.emplace_back("tpot_median_error");
    report.highlights.emplace_back("ttft_median_error");
    report.highlights.emplace_back("held_out_rows");
  }
  report::Table summary = error_table("Errors of TPOT and TTFT on measured deployments");
  add_row("held out", all, summary);
  add_row("held out, one kind of worker",
          planner::summarize(errors,
                             [](const auto& e) { return e.is_held_out && !e.is_disaggregated; }),
          summary);
  add_row(
      "held out, prefill and decode apart",
      planner::summarize(errors, [](const auto& e) { return e.is_held_out && e.is_disaggregated; }),
      summary);
  add_row("fitted", planner::summarize(errors, [](const auto& e) { return !e.is_held_out; }),
          summary);
  report.tables["end_to_end_errors"] = summary;
  add_grouped(
      errors, "end_to_end_errors_by_gpu_engine", "Held-out errors per GPU and engine",
      [](const auto& e) { return e.gpu + " " + e.engine; }, report);
  add_grouped(
      errors, "end_to_end_errors_by_model", "Held-out errors per model and precision",
      [](const auto& e) { return e.model + " " + e.precision; }, report);
}

void add_point_table(const std::vector<planner::PointError>& errors, report::Report& report) {
  report::Table table = make_table("Every operating point", {{"id", ""},
                                                             {"gpu", ""},
                                                             {"engine", ""},
                                                             {"held_out", ""},
                                                             {"tpot_measured_s", "s"},
                                                             {"tpot_predicted_s", "s"},
                                                             {"tpot_error", "1"},
                                                             {"ttft_measured_s", "s"},
                                                             {"ttft_predicted_s", "s"},
                                                             {"ttft_error", "1"}});
  table.is_detail = true;
  for (const planner::PointError& error : errors) {
    table.rows.push_back({error.id, error.gpu, error.engine, error.is_held_out,
                          error.tpot_measured_s, error.tpot_predicted_s, error.tpot_error(),
                          error.ttft_measured_s, error.ttft_predicted_s, error.ttft_error()});
  }
  report.tables["end_to_end_points"] = table;
}

void add_skipped_findings(const planner::OperatingPoints& rows,
                          const planner::PreparedPoints& prepared, ReportSession& session) {
  const auto add = [&](const std::string& code, std::int64_t count,
                       const std::vector<std::string>& reasons, const std::string& what) {
    if (count == 0) return;
    json::Json evidence;
    evidence["reasons"] = reasons;
    session.add_finding(code, report::Severity::kInfo, fmt::format("{} rows {}", count, what),
                        "The evidence lists the reasons", evidence);
  };
  add("end_to_end.rows_left_out", rows.num_skipped, rows.skipped,
      "carry a note or lack what a prediction needs and were left out");
  add("end_to_end.rows_not_predicted", prepared.num_skipped, prepared.skipped,
      "could not be predicted");
}

}  // namespace moe::app
