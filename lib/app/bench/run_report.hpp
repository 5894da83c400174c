#pragma once

// Turns what was measured into metrics, tables, charts and findings.

#include <filesystem>
#include <string>
#include <vector>

#include "lib/app/bench/prompts.hpp"
#include "lib/app/bench/run_config.hpp"
#include "lib/app/bench/run_measure.hpp"
#include "lib/app/report_session.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::app {

struct RunFacts {
  const RunArgs* args = nullptr;
  const model::BoundModel* model = nullptr;
  const engine::EngineOptions* options = nullptr;
  const PromptSource* prompts = nullptr;
  std::filesystem::path directory;  // of the checkpoint
};

// Metrics of every measured point: under plain names those of the first, and, when several were
// measured, of each under NAME.batch_B.prompt_tokens_P.output_tokens_O.
void add_run_metrics(const RunOutcome& outcome, const RunFacts& facts, report::Report& report);

// Those that only the checklist reads: the configured batch against the sweep, memory against its
// limit.
void add_run_acceptance(const RunOutcome& outcome, const RunFacts& facts, report::Report& report);

void add_run_tables(const RunOutcome& outcome, const RunFacts& facts, report::Report& report);
// And the metrics to show first.
void add_run_charts(report::Report& report);

// Warnings with advice, and what makes the report invalid.
void add_run_findings(const RunOutcome& outcome, const RunFacts& facts, ReportSession& session);

// "b4 p128 o64", the point's name in tables and charts.
[[nodiscard]] std::string point_label(const BenchPoint& point);

}  // namespace moe::app
