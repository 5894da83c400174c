#pragma once

// Tables of how far predictions are off, shared by verify and calibrate.

#include <functional>
#include <string>
#include <vector>

#include "lib/app/report_session.hpp"
#include "lib/planner/end_to_end.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

using ErrorFilter = std::function<bool(const planner::PointError&)>;

// Held-out errors: all, per GPU and engine, per model and precision; and of the fitted rows.
void add_error_tables(const std::vector<planner::PointError>& errors, report::Report& report);

// One table with one row.
void add_error_row_table(const std::vector<planner::PointError>& errors, const std::string& key,
                         const std::string& title, const ErrorFilter& select,
                         report::Report& report);

// Every row: measured, predicted, error.
void add_point_table(const std::vector<planner::PointError>& errors, report::Report& report);

void add_skipped_findings(const planner::OperatingPoints& rows,
                          const planner::PreparedPoints& prepared, ReportSession& session);

}  // namespace moe::app
