// moe-skew convert: a trace or counts in another form.

#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/skew/skew_commands.hpp"
#include "lib/app/skew/skew_input.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/routing/export.hpp"

namespace moe::app {
namespace {

struct ConvertArgs {
  InputArgs input;
  std::string to;
  std::string form = "trace";
  bool is_forced = false;
  OutputOptions output;
};

void write_as(const ConvertArgs& args, routing::RoutingInput& input) {
  if (args.form == "trace") {
    routing::export_trace(input, args.to,
                          {{"converted_from", routing::format_name(input.info.format)}});
  } else if (args.form == "jsonl") {
    routing::export_json_lines(input, args.to);
  } else if (args.form == "sglang-json") {
    routing::export_sglang_json(input, args.to);
  } else if (args.form == "csv") {
    routing::export_counts_csv(input, args.to);
  } else {
    routing::export_counts_npy(input, args.to);
  }
}

int run_convert(const ConvertArgs& args, const ToolContext& context) {
  if (args.to.empty()) throw Error(ErrorCode::kUsage, "expected --to FILE");
  check_writable(args.to, "--to");
  ReportSession session(context, args.output);
  routing::RoutingInput input = open_input(args.input);
  const routing::InputCheck check = routing::check_input(input);
  if (!args.is_forced) routing::require_sane(input, check);
  report::Report& report = session.report();
  report.subject = describe_input(input.info);
  report.settings["command"] = "convert";
  report.settings["form"] = args.form;
  report.settings["to"] = args.to;
  for (const routing::SanityFinding& finding : check.findings) {
    const auto severity = finding.trouble == routing::Trouble::kNote ? report::Severity::kInfo
                                                                     : report::Severity::kWarning;
    session.add_finding("input." + finding.code, severity, finding.message, finding.advice,
                        {{"count", finding.count}});
  }
  write_as(args, input);
  set_metric(report, "converted_tokens_count", "1",
             check.num_tokens > 0 ? std::optional<double>(static_cast<double>(check.num_tokens))
                                  : std::nullopt,
             "the input holds counts only", "tokens read");
  set_metric(report, "converted_assignments_count", "1", static_cast<double>(check.num_assignments),
             "", "token and expert pairs read");
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_convert_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ConvertArgs>();
  Options& options = line.add_command("convert", "Writes a trace or its counts in another form",
                                      [args, &context] { return run_convert(*args, context); });
  add_input_options(options, args->input);
  options.group("What to write");
  options.text("--to", "FILE", args->to, "The file to write");
  options.choice("--form", {"trace", "jsonl", "sglang-json", "csv", "npy"}, args->form,
                 "trace (the toolkit's own) and jsonl need token rows; sglang-json, csv and npy "
                 "are counts");
  options.flag("--force", args->is_forced, "Convert an input that a sanity check refuses, too");
  add_output_options(options, args->output);
  options.example("moe-skew convert dumps/ --to trace.safetensors",
                  "all ranks' dumps as one trace");
}

}  // namespace moe::app
