#pragma once

// The report that a buyer signs: eleven parts as tables of one report, each figure with its kind,
// band and source, all assumptions, and the command that makes it again.

#include <string>

#include "lib/app/plan/size_result.hpp"
#include "lib/app/report_session.hpp"

namespace moe::app {

// Fills metrics, tables, charts, highlights and findings of the session's report. `command` is what
// makes the report again.
void fill_procurement_report(const SizeInputs& inputs, const SizeResult& result,
                             const std::string& command, ReportSession& session);

// The parts, in the order of the report.
namespace procurement {

void add_answer(const SizeInputs& inputs, const SizeResult& result, report::Report& report);
void add_header(const SizeInputs& inputs, report::Report& report);
void add_workload(const SizeInputs& inputs, report::Report& report);
void add_service_level(const SizeInputs& inputs, report::Report& report);
void add_fit(const SizeInputs& inputs, const SizeResult& result, report::Report& report);
void add_performance(const SizeInputs& inputs, const SizeResult& result, report::Report& report);
void add_count(const SizeInputs& inputs, const SizeResult& result, report::Report& report);
void add_power(const SizeResult& result, report::Report& report);
void add_money(const SizeInputs& inputs, const SizeResult& result, report::Report& report);
void add_sensitivity(const SizeResult& result, report::Report& report);
void add_risks(const SizeInputs& inputs, const SizeResult& result, ReportSession& session);
void add_reproduction(const SizeInputs& inputs, const std::string& command, report::Report& report);
// What reports/checklist.json reads of a plan, of the recommended GPU type.
void add_evidence(const SizeInputs& inputs, const SizeResult& result, report::Report& report);

// "a plan for H200": shared by titles.
[[nodiscard]] std::string title_of(const char* part, const GpuResult& gpu);
// "Weights 3, one of GPU type h200-sxm": unique per GPU, sorted within a part.
[[nodiscard]] std::string table_name(const char* part, const GpuResult& gpu);

}  // namespace procurement
}  // namespace moe::app
