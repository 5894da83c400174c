#pragma once

// Files of the source tree that are compiled in, so that a binary works away from it.

#include <string_view>

namespace moe::report::embedded {

[[nodiscard]] std::string_view report_schema();     // reports/schema/report.schema.json
[[nodiscard]] std::string_view checklist_schema();  // reports/schema/checklist.schema.json
[[nodiscard]] std::string_view scenario_schema();   // reports/schema/scenario.schema.json
[[nodiscard]] std::string_view checklist();         // reports/checklist.json
[[nodiscard]] std::string_view report_css();        // reports/templates/report.css
[[nodiscard]] std::string_view report_js();         // reports/templates/report.js
[[nodiscard]] std::string_view chart_js();          // Chart.js; empty when the build had none

}  // namespace moe::report::embedded
