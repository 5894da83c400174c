#pragma once

// One report of several subjects under the same load.

#include <vector>

#include "lib/app/bench/compare_subjects.hpp"
#include "lib/app/report_session.hpp"

namespace moe::app {

// Figures, findings and requests of every subject, and what compares them. Takes the rounds out of
// the subjects.
void fill_compare_report(const CompareArgs& args, const ServeArgs& serve, const ServeInputs& inputs,
                         const ServePoint& point, std::vector<Subject>& subjects,
                         ReportSession& session);

}  // namespace moe::app
