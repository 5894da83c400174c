#pragma once

// The reports that the tools write, for their tests: every one is held to the schema and to the
// exit code that the process ended with.

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tests/tools/process.hpp"

namespace moe::test {

using Json = nlohmann::ordered_json;

// A report file's text.
[[nodiscard]] Json checked_report(const std::string& text);

// What a run left on stdout; the report says the exit code, too.
[[nodiscard]] Json checked_report(const ProcessResult& result);

// Each runs its tool for JSON. What comes back may be ignored: the checks are made.
Json bench_report(const std::vector<std::string>& args, int exit_code = 0);
Json plan_report(const std::vector<std::string>& args, int exit_code = 0);
Json skew_report(const std::vector<std::string>& args, int exit_code = 0);
Json a2a_report(const std::vector<std::string>& args, int exit_code = 0);

// What a run without a report said on stderr: one line, and it ended with this code.
[[nodiscard]] std::string error_line(const ProcessResult& result, int exit_code);
[[nodiscard]] std::string a2a_error(const std::vector<std::string>& args, int exit_code);

[[nodiscard]] double value_of(const Json& report, const std::string& metric);

// The first finding with this code, or nullptr.
[[nodiscard]] const Json* finding_of(const Json& report, const std::string& code);
[[nodiscard]] bool has_finding(const Json& report, const std::string& code);
// Its message, or "no finding CODE".
[[nodiscard]] std::string message_of(const Json& report, const std::string& code);

// An item of the acceptance checklist. Throws std::out_of_range when there is none.
[[nodiscard]] const Json& acceptance_item(const Json& report, const std::string& id);
[[nodiscard]] std::string acceptance_of(const Json& report, const std::string& id);

}  // namespace moe::test
