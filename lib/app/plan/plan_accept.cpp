// moe-plan accept: reports of all tools about one system, merged into one verdict.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/report/json_io.hpp"

namespace moe::app {
namespace {

struct AcceptArgs {
  std::vector<std::string> reports;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

std::string text_of(const json::Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string()
             ? found->get<std::string>()
             : std::string();
}

// The machine a report is from, in one word; plans are about machines that are not there.
std::string host_of(const report::Report& report) {
  return text_of(report.tool, "name") == "moe-plan" ? "" : text_of(report.environment, "host");
}

void add_reports_table(const std::vector<report::Report>& reports,
                       const std::vector<std::string>& names, report::Report& out) {
  report::Table table = make_table("Reports", {{"report", ""},
                                               {"tool", ""},
                                               {"subject", ""},
                                               {"started_at", ""},
                                               {"host", ""},
                                               {"valid", ""}});
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const report::Report& one = reports[i];
    const std::string validity =
        one.validity.valid
            ? (one.validity.partial ? "partial" : "valid")
            : "not valid: " + (one.validity.reasons.empty() ? std::string("no reason given")
                                                            : one.validity.reasons.front());
    table.rows.push_back({names[i], text_of(one.tool, "name"), text_of(one.subject, "name"),
                          text_of(one.run, "started_at"), host_of(one), validity});
  }
  out.tables["reports"] = table;
}

// Evidence that does not belong together must not make one verdict without a word.
void add_findings(const std::vector<report::Report>& reports, const std::vector<std::string>& names,
                  ReportSession& session) {
  std::string first_host;
  std::string first_name;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const report::Report& one = reports[i];
    if (!one.validity.valid) {
      session.add_finding(
          "accept.invalid_report", report::Severity::kWarning,
          fmt::format("{} is not valid: its figures count as not measured", names[i]),
          "Repeat that run.");
    }
    const std::string host = host_of(one);
    if (host.empty()) continue;
    if (first_host.empty()) {
      first_host = host;
      first_name = names[i];
    } else if (host != first_host) {
      session.add_finding(
          "accept.different_hosts", report::Severity::kWarning,
          fmt::format("{} is from host {}, {} from {}", first_name, first_host, names[i], host),
          "Merge reports of one system only; several hosts of one cluster are one system.");
    }
  }
}

int run_accept(const AcceptArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  std::vector<report::Report> reports;
  std::vector<std::string> names;
  std::string all_bytes;
  for (const std::string& path : args.reports) {
    const std::string text = read_text(path);
    reports.push_back(report::parse_report(text, path));
    names.push_back(std::filesystem::path(path).filename().string());
    all_bytes += text;
  }
  report::Report& out = session.report();
  out.subject = {
      {"kind", "reports"},
      {"name", fmt::format("{} report{}", reports.size(), reports.size() == 1 ? "" : "s")},
      {"content_hash", text_hash(all_bytes)}};
  out.settings["command"] = "accept";
  out.settings["reports"] = args.reports;
  out.settings["checklist"] =
      args.acceptance.checklist.empty() ? "built in" : args.acceptance.checklist;
  add_reports_table(reports, names, out);
  add_findings(reports, names, session);
  return session.finish_merged(reports, names);
}

}  // namespace

void add_plan_accept_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<AcceptArgs>();
  Options& options =
      line.add_command("accept", "Merges JSON reports of all tools of one system into one verdict",
                       [args, &context] { return run_accept(*args, context); });
  options.positionals("REPORT", args->reports,
                      "JSON reports of moe-bench, moe-a2a, moe-skew and moe-plan about one system");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-plan accept bench.json a2a.json skew.json plan.json --gate",
                  "exit with 1 when any item that was measured failed");
}

}  // namespace moe::app
