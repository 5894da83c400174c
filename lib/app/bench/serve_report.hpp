#pragma once

// Turns what was measured at a server into metrics, tables, charts and findings.

#include <string>

#include "lib/app/bench/serve_measure.hpp"
#include "lib/app/report_session.hpp"

namespace moe::app {

struct ServeFacts {
  const ServeArgs* args = nullptr;
  const ServeInputs* inputs = nullptr;
  const ServeTarget* target = nullptr;
};

[[nodiscard]] json::Json serve_subject(const ServeTarget& target);
void fill_serve_settings(const ServeFacts& facts, json::Json& settings);

// The figures of one load under NAME + suffix.
void add_load_metrics(const ServePointOutcome& outcome, const std::string& suffix,
                      report::Report& report);
// Metrics of every point: under plain names those of the first, and of each under NAME.LABEL when
// there are several; and what the checklist reads.
void add_serve_metrics(const ServeOutcome& outcome, const ServeFacts& facts,
                       report::Report& report);
void add_serve_tables(const ServeOutcome& outcome, report::Report& report);
// One row for a load; the columns are those of load_columns().
[[nodiscard]] std::vector<report::Column> load_columns();
[[nodiscard]] std::vector<report::Cell> load_row(const ServePointOutcome& outcome);

void add_point_findings(const ServePointOutcome& outcome, const ServeFacts& facts,
                        const std::string& who, ReportSession& session);
void add_serve_findings(const ServeOutcome& outcome, const ServeFacts& facts,
                        ReportSession& session);

// "r4.5" -> "r4_5": a label inside a metric's name.
[[nodiscard]] std::string metric_label(const std::string& label);

}  // namespace moe::app
