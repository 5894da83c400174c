#pragma once

// How a fit stands in a report: tables of parameters and memory, metrics, findings.

#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/model/architecture.hpp"
#include "lib/planner/fit.hpp"
#include "lib/planner/hardware.hpp"

namespace moe::app {

// Parameters and stored bytes by part, in all three conventions; kinds of layers; weight formats.
void add_parameter_tables(const model::Architecture& architecture, report::Report& report);

// Every byte of the fullest rank of every stage with its band, and what the cache holds.
void add_memory_tables(const planner::Layout& layout, const planner::FitOptions& options,
                       const planner::FitResult& result, report::Report& report);

struct FitFindings {
  const model::Architecture& architecture;
  const planner::Layout& layout;
  const planner::FitOptions& options;
  const planner::FitResult& result;
  const planner::Accelerator& gpu;
  bool is_memory_given = false;
};
void add_fit_findings(const FitFindings& fit, ReportSession& session);

}  // namespace moe::app
