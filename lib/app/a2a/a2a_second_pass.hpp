#pragma once

// Suspects of slow pairs and what a second pass with good partners made of them, in a report.

#include "lib/app/a2a/a2a_run.hpp"
#include "lib/app/report_session.hpp"
#include "lib/comm/second_pass.hpp"

namespace moe::app {

// The table "suspects" and a finding for each rank that was suspected. `outcome` names the ranks.
void report_second_pass(const comm::SecondPass& pass, const RunOutcome& outcome,
                        ReportSession& session);

}  // namespace moe::app
