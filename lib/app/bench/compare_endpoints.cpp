// moe-bench compare: the same requests at the same times to several servers, and to a checkpoint in
// this process, in turns, one table.

#include <algorithm>
#include <memory>
#include <optional>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/compare_report.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

void run_rounds(const CompareArgs& args, const ServePoint& point, Progress& progress,
                const Interrupt& interrupt, std::vector<Subject>& subjects) {
  ServeOutcome ignored;
  for (Subject& subject : subjects) {
    if (subject.here) {
      subject.here->warm_up(interrupt);
    } else {
      subject.meter->warm_up(point, ignored);
    }
  }
  for (std::int64_t round = 0; round < args.rounds; ++round) {
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      // Each round begins with another subject: what warms up or tires hits all alike.
      Subject& subject = subjects[(i + static_cast<std::size_t>(round)) % subjects.size()];
      if (subject.is_gone || interrupt.requested()) continue;
      subject.rounds.push_back(subject.here ? subject.here->run_round(progress, interrupt)
                                            : subject.meter->run_round(point));
      subject.is_gone = subject.rounds.back().end == client::LoadEnd::kServerGone;
    }
  }
}

int run_compare(const CompareArgs& args, const ToolContext& context) {
  check_load(args.serve.load, args.serve.request);
  if (args.serve.load.finds_knee) {
    throw Error(ErrorCode::kUsage, "compare measures one load: no --knee");
  }
  std::vector<Subject> subjects = parse_subjects(args);
  InProcessSubject* here = subjects.back().here.get();
  const ServeArgs serve = resolve_serve(args.serve, here);
  ReportSession session(context, serve.output, serve.acceptance);
  if (!serve.requests_jsonl.empty()) check_writable(serve.requests_jsonl, "--requests-jsonl");
  const ServeInputs inputs = read_inputs(serve.load, serve.request);
  const std::vector<ServePoint> points = load_points(serve.load, inputs);
  if (points.size() != 1) throw Error(ErrorCode::kUsage, "compare measures one load at a time");
  const ServePoint& point = points.front();
  if (here != nullptr) check_in_process(args.serve, point, inputs);
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(serve.output.is_quiet), clock);
  for (Subject& subject : subjects) {
    if (subject.here) continue;
    subject.target = probe_target(make_endpoint(subject.place, serve.server), serve.server,
                                  serve.request, inputs.prefers_chat, inputs.uses_ids(), context);
    subject.meter =
        std::make_unique<ServeMeter>(serve, inputs, subject.target, progress, *context.interrupt);
  }
  if (here != nullptr) {
    const std::unique_ptr<client::RequestSource> source =
        make_source(inputs, serve.load, serve.request, client::Api::kCompletions, {});
    here->load(*source, in_process_plan(args, serve, point), progress, *context.interrupt);
  }
  run_rounds(args, point, progress, *context.interrupt, subjects);
  fill_compare_report(args, serve, inputs, point, subjects, session);
  const bool is_gone = std::any_of(subjects.begin(), subjects.end(),
                                   [](const Subject& subject) { return subject.is_gone; });
  int exit_code = session.report().validity.valid ? kExitOk : kExitNothingMeasured;
  if (is_gone || context.interrupt->requested()) exit_code = kExitRuntime;
  return session.finish(exit_code, serve.load.seed,
                        here != nullptr ? std::optional(here->isa()) : std::nullopt);
}

}  // namespace

void add_compare_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<CompareArgs>();
  Options& options = line.add_command(
      "compare", "Put the same load on several servers and a checkpoint in process, in turns",
      [args, &context] { return run_compare(*args, context); });
  options.positionals("NAME=URL", args->endpoints, "Servers, with the names the table shows");
  options.group("Comparing");
  options.text("--in-process", "NAME=DIR", args->in_process,
               "Also run a checkpoint here: the clients of the closed loop become a batch, without "
               "HTTP and scheduler");
  options.integer("--rounds", args->rounds, {1, 1000}, "Times that each subject gets the load");
  add_load_options(options, args->serve.load);
  add_request_options(options, args->serve.request);
  add_server_options(options, args->serve.server);
  add_engine_options(options, args->engine);
  add_activation_option(options, args->engine);
  options.group("Measuring");
  options.text("--requests-jsonl", "FILE", args->serve.requests_jsonl,
               "One line of JSON a request");
  options.flag("--accept-client-bound", args->serve.accepts_client_bound,
               "Report a run that this client limited as valid; the finding stays");
  add_acceptance_options(options, args->serve.acceptance);
  add_output_options(options, args->serve.output);
  options.example("moe-bench compare vllm=http://a:8000 sglang=http://b:30000 --concurrency 16",
                  "two servers, three rounds each, interleaved");
  options.example("moe-bench compare vllm=http://a:8000 --in-process here=DIR --activations f32",
                  "a server and its checkpoint in this process: same tokens, both speeds");
}

}  // namespace moe::app
