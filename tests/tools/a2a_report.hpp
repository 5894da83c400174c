#pragma once

// Reports of moe-a2a for its tests.

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "lib/json/schema_check.hpp"
#include "lib/report/json_io.hpp"
#include "tests/tools/process.hpp"

namespace moe::test {

// Runs moe-a2a for JSON, holds it to the exit code and to the schema.
inline json::Json a2a_report(std::vector<std::string> args, int exit_code) {
  args.insert(args.end(), {"--format", "json", "-q"});
  const ProcessResult result = run_moe_a2a(args);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  json::Json document = json::parse(result.out, "stdout");
  EXPECT_EQ(json::describe(report::check_report(document)), "");
  EXPECT_EQ(document.at("run").at("exit_code"), exit_code);
  return document;
}

inline double value_of(const json::Json& report, const std::string& metric) {
  return report.at("metrics").at(metric).at("value").get<double>();
}

inline bool has_finding(const json::Json& report, const std::string& code) {
  for (const json::Json& finding : report.at("findings")) {
    if (finding.at("code") == code) return true;
  }
  return false;
}

// A one-line error of a run that went wrong.
inline std::string a2a_error(const std::vector<std::string>& args, int exit_code) {
  const ProcessResult result = run_moe_a2a(args);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(count_lines(result.err), 1) << result.err;
  return result.err;
}

}  // namespace moe::test
