#pragma once

// One report with everything in it that a report can hold, the same bytes on every machine.

#include <string>

#include "lib/report/report.hpp"

namespace moe::report::test {

// Evaluated against the compiled-in checklist.
[[nodiscard]] Report sample_report();

// Text that must be escaped by every writer: markup, quotes, control characters, a right-to-left
// override, bytes that are not UTF-8.
[[nodiscard]] Report hostile_report();

// Violations of the report schema, "" when there are none.
[[nodiscard]] std::string schema_violations(const Report& report);

// Compares with tests/golden/report/<name>. With the environment variable MOE_UPDATE_GOLDEN set the
// file is written instead; the difference is for a person to review.
void expect_golden(const std::string& name, const std::string& text);

}  // namespace moe::report::test
