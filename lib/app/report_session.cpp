#include "lib/app/report_session.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "lib/app/exit_code.hpp"
#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/report/environment.hpp"

namespace moe::app {
namespace {

// "a.b,c.d" -> {"a.b", "c.d"}; an id that the checklist lacks would never pass and is refused.
report::GateOptions gate_options(const AcceptanceOptions& acceptance,
                                 const report::Checklist& checklist) {
  report::GateOptions gate;
  gate.gate = acceptance.is_gate;
  std::size_t begin = 0;
  while (!acceptance.required.empty() && begin <= acceptance.required.size()) {
    const std::size_t end =
        std::min(acceptance.required.find(',', begin), acceptance.required.size());
    gate.require.push_back(acceptance.required.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::vector<std::string> unknown = report::unknown_ids(checklist, gate.require);
  if (!unknown.empty()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--require: the checklist has no item \"{}\"", unknown.front()));
  }
  return gate;
}

}  // namespace

void add_acceptance_options(Options& options, AcceptanceOptions& acceptance) {
  options.group("Acceptance");
  options.text("--checklist", "FILE", acceptance.checklist,
               "Acceptance checklist instead of the built-in one");
  options.flag("--gate", acceptance.is_gate,
               "Exit with 1 when any item of the checklist that was measured failed");
  options.text("--require", "ID,ID,...", acceptance.required,
               "Exit with 1 unless these items of the checklist were measured and passed");
}

ReportSession::ReportSession(const ToolContext& context, const OutputOptions& output,
                             const std::optional<AcceptanceOptions>& acceptance)
    : context_(context),
      has_acceptance_(acceptance.has_value()),
      targets_(resolve_outputs(output)),
      is_quiet_(output.is_quiet),
      begin_s_(clock_.now_s()),
      started_at_s_(static_cast<std::int64_t>(std::time(nullptr))) {
  if (acceptance) {
    checklist_ = acceptance->checklist.empty() ? report::default_checklist()
                                               : report::read_checklist(acceptance->checklist);
    gate_ = gate_options(*acceptance, checklist_);
  }
  is_text_on_stdout_ =
      std::any_of(targets_.begin(), targets_.end(), [](const OutputTarget& target) {
        return target.path == "-" && target.format == report::Format::kText;
      });
  report_.settings = json::Json::object();
}

void ReportSession::add_finding(const std::string& code, report::Severity severity,
                                const std::string& message, const std::string& advice,
                                json::Json evidence) {
  report_.findings.push_back({code, severity, message, advice, std::move(evidence)});
  // Whoever reads the text sees it there.
  const bool is_shown = severity != report::Severity::kInfo && !is_text_on_stdout_ && !is_quiet_;
  if (is_shown) print_warning(context_, message);
}

void ReportSession::invalidate(const std::string& reason) {
  report_.validity.valid = false;
  report_.validity.reasons.push_back(reason);
}

int ReportSession::finish(int exit_code, std::optional<std::int64_t> seed,
                          const std::optional<std::string>& isa_in_use) {
  // The checklist reads which tool a report is of.
  report_.tool = report::make_tool_json(context_.tool);
  report_.acceptance.verdict = "incomplete";
  if (has_acceptance_) report_.acceptance = report::evaluate(report_, checklist_);
  return close(exit_code, seed, isa_in_use);
}

int ReportSession::finish_merged(std::span<const report::Report> reports,
                                 const std::vector<std::string>& names) {
  MOE_CHECK(has_acceptance_);
  report_.acceptance = report::evaluate_together(reports, names, checklist_);
  return close(kExitOk, std::nullopt, std::nullopt);
}

int ReportSession::close(int exit_code, std::optional<std::int64_t> seed,
                         const std::optional<std::string>& isa_in_use) {
  report_.tool = report::make_tool_json(context_.tool);
  report_.environment = report::make_environment_json(isa_in_use, ::environ);
  if (exit_code == kExitOk && !report_.validity.valid) exit_code = kExitNothingMeasured;
  const std::vector<std::string> failures = report::gate_failures(report_.acceptance, gate_);
  if (exit_code == kExitOk && !failures.empty()) {
    exit_code = kExitCheckFailed;
    print_warning(context_,
                  fmt::format("required checks did not pass: {}", fmt::join(failures, ", ")));
  }
  json::Json& run = report_.run;
  run = json::Json::object();
  run["started_at"] = report::format_utc(started_at_s_);
  run["duration_s"] = clock_.now_s() - begin_s_;
  run["argv"] = context_.argv;
  run["seed"] = seed ? json::Json(*seed) : json::Json(nullptr);
  run["exit_code"] = exit_code;
  write_report(report_, targets_);
  return exit_code;
}

}  // namespace moe::app
