// moe-bench serve: what a running server does under load, as a client sees it.

#include <memory>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/requests_jsonl.hpp"
#include "lib/app/bench/serve_measure.hpp"
#include "lib/app/bench/serve_report.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"

namespace moe::app {
namespace {

int run_serve(const ServeArgs& args, const ToolContext& context) {
  check_load(args.load, args.request);
  ReportSession session(context, args.output, args.acceptance);
  if (!args.requests_jsonl.empty()) check_writable(args.requests_jsonl, "--requests-jsonl");
  const ServeInputs inputs = read_inputs(args.load, args.request);
  (void)load_points(args.load, inputs);  // refused before the server is asked anything
  const client::Endpoint endpoint = make_endpoint(args.url, args.server);
  const ServeTarget target = probe_target(endpoint, args.server, args.request, inputs.prefers_chat,
                                          inputs.uses_ids(), context);
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  ServeMeter meter(args, inputs, target, progress, *context.interrupt);
  const ServeOutcome outcome = meter.measure_all();

  report::Report& report = session.report();
  const ServeFacts facts{&args, &inputs, &target};
  report.subject = serve_subject(target);
  report.settings["command"] = "serve";
  fill_serve_settings(facts, report.settings);
  report.settings["api"] = client::name_of(target.api);
  report.settings["warmup_requests"] = outcome.num_warmup;
  add_serve_metrics(outcome, facts, report);
  add_serve_tables(outcome, report);
  add_serve_findings(outcome, facts, session);
  if (!args.requests_jsonl.empty()) {
    RequestsFile file(args.requests_jsonl);
    for (const ServePointOutcome& point : outcome.points) {
      file.add(point.result, point.point.label);
    }
    file.commit();
  }
  int exit_code = kExitOk;
  if (!report.validity.valid) exit_code = kExitNothingMeasured;
  if (outcome.is_server_gone || outcome.is_interrupted) exit_code = kExitRuntime;
  return session.finish(exit_code, args.load.seed, std::nullopt);
}

}  // namespace

void add_serve_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ServeArgs>();
  Options& options =
      line.add_command("serve", "Put load on an OpenAI-compatible server and measure it",
                       [args, &context] { return run_serve(*args, context); });
  add_serve_options(options, *args);
}

}  // namespace moe::app
