#include "tests/tools/tool_report.hpp"

#include <stdexcept>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "lib/json/schema_check.hpp"
#include "lib/report/json_io.hpp"

namespace moe::test {
namespace {

using Runner = ProcessResult (*)(const std::vector<std::string>&, const ProcessOptions&);

Json report_by(Runner run, std::vector<std::string> args, int exit_code) {
  args.insert(args.end(), {"--format", "json", "--quiet"});
  const ProcessResult result = run(args, {});
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  return checked_report(result);
}

}  // namespace

Json checked_report(const std::string& text) {
  Json document = json::parse(text, "report");
  EXPECT_EQ(json::describe(report::check_report(document)), "");
  return document;
}

Json checked_report(const ProcessResult& result) {
  Json document = checked_report(result.out);
  EXPECT_EQ(document.at("run").at("exit_code"), result.exit_code);
  return document;
}

Json bench_report(const std::vector<std::string>& args, int exit_code) {
  return report_by(run_moe_bench, args, exit_code);
}

Json plan_report(const std::vector<std::string>& args, int exit_code) {
  return report_by(run_moe_plan, args, exit_code);
}

Json skew_report(const std::vector<std::string>& args, int exit_code) {
  return report_by(run_moe_skew, args, exit_code);
}

Json a2a_report(const std::vector<std::string>& args, int exit_code) {
  return report_by(run_moe_a2a, args, exit_code);
}

std::string error_line(const ProcessResult& result, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(count_lines(result.err), 1) << result.err;
  EXPECT_EQ(result.out, "");
  return result.err;
}

std::string a2a_error(const std::vector<std::string>& args, int exit_code) {
  return error_line(run_moe_a2a(args), exit_code);
}

double value_of(const Json& report, const std::string& metric) {
  return report.at("metrics").at(metric).at("value").get<double>();
}

const Json* finding_of(const Json& report, const std::string& code) {
  for (const Json& finding : report.at("findings")) {
    if (finding.at("code") == code) return &finding;
  }
  return nullptr;
}

bool has_finding(const Json& report, const std::string& code) {
  return finding_of(report, code) != nullptr;
}

std::string message_of(const Json& report, const std::string& code) {
  const Json* finding = finding_of(report, code);
  return finding == nullptr ? "no finding " + code : finding->at("message").get<std::string>();
}

const Json& acceptance_item(const Json& report, const std::string& id) {
  for (const Json& item : report.at("acceptance").at("items")) {
    if (item.at("id") == id) return item;
  }
  throw std::out_of_range("no acceptance item " + id);
}

std::string acceptance_of(const Json& report, const std::string& id) {
  return acceptance_item(report, id).at("result").get<std::string>();
}

}  // namespace moe::test
