#include <fmt/format.h>

#include "lib/report/human.hpp"
#include "lib/report/json_io.hpp"
#include "lib/report/markup.hpp"
#include "lib/report/writers.hpp"

namespace moe::report {
namespace {

std::string tool_name(const Report& report) {
  const bool there =
      report.tool.is_object() && report.tool.contains("name") && report.tool["name"].is_string();
  return there ? report.tool["name"].get<std::string>() : std::string("moekit");
}

void append_case(std::string& out, const std::string& suite, const std::string& name,
                 const std::string& body) {
  out += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"0\"", escape_markup(suite),
                     escape_markup(name));
  out += body.empty() ? "/>\n" : fmt::format(">\n{}    </testcase>\n", body);
}

std::string item_body(const AcceptanceItem& item) {
  switch (item.result) {
    case ItemResult::kPass:
      return {};
    case ItemResult::kFail:
      return fmt::format("      <failure message=\"{}\" type=\"checklist\">{}</failure>\n",
                         escape_markup(item.reason.empty() ? item.rule : item.reason),
                         escape_markup(fmt::format("rule: {}\n{}", item.rule, item.advice)));
    case ItemResult::kNotMeasured:
    case ItemResult::kNotApplicable:
      return fmt::format("      <skipped message=\"{}: {}\"/>\n", human_result(item.result),
                         escape_markup(item.reason));
  }
  return {};
}

std::string validity_body(const Validity& validity) {
  if (validity.valid) return {};
  std::string reasons;
  for (const std::string& reason : validity.reasons) reasons += reason + "\n";
  return fmt::format(
      "      <failure message=\"the run is not valid\" type=\"validity\">{}"
      "</failure>\n",
      escape_markup(reasons));
}

// An error that no item of the checklist stands for, such as a size below a limit given on the
// command line: without it a job that ended with 1 would have no test that failed.
std::string finding_body(const Finding& finding) {
  return fmt::format("      <failure message=\"{}\" type=\"finding\">{}</failure>\n",
                     escape_markup(finding.message), escape_markup(finding.advice));
}

}  // namespace

std::string write_junit(const Report& report) {
  require_finite(report);
  const std::string suite = tool_name(report);
  int num_failures = report.validity.valid ? 0 : 1;
  int num_skipped = 0;
  std::string cases;
  append_case(cases, suite, "validity", validity_body(report.validity));
  for (const AcceptanceItem& item : report.acceptance.items) {
    num_failures += item.result == ItemResult::kFail ? 1 : 0;
    num_skipped +=
        item.result == ItemResult::kNotMeasured || item.result == ItemResult::kNotApplicable ? 1
                                                                                             : 0;
    append_case(cases, suite, item.id, item_body(item));
  }
  int num_findings = 0;
  for (const Finding& finding : report.findings) {
    if (finding.severity != Severity::kError) continue;
    ++num_findings;
    append_case(cases, suite, "finding " + finding.code, finding_body(finding));
  }
  num_failures += num_findings;
  const std::size_t num_tests =
      report.acceptance.items.size() + 1 + static_cast<std::size_t>(num_findings);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites tests=\"{0}\" failures=\"{1}\" errors=\"0\" skipped=\"{2}\">\n"
      "  <testsuite name=\"{3}\" tests=\"{0}\" failures=\"{1}\" errors=\"0\" skipped=\"{2}\" "
      "time=\"0\">\n{4}  </testsuite>\n</testsuites>\n",
      num_tests, num_failures, num_skipped, escape_markup(suite), cases);
}

}  // namespace moe::report
