// moe-a2a run: measures the all-to-all between ranks.

#include "lib/app/a2a/a2a_run.hpp"

#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/a2a/a2a_machine.hpp"
#include "lib/app/a2a/a2a_variables.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/base/clock.hpp"
#include "lib/comm/launcher.hpp"
#include "lib/sysinfo/build_info.hpp"

namespace moe::app {
namespace {

bool has_mpi() {
  for (const sysinfo::Backend& backend : sysinfo::list_backends()) {
    if (backend.name == "mpi") return backend.is_available;
  }
  return false;
}

// Ranks of one process under a launcher of several would be as many runs of their own.
void require_one_job(const std::string& backend, const comm::LauncherFacts& launcher) {
  const bool is_alone = backend == "threads" || backend == "null";
  if (!is_alone || launcher.num_ranks.value_or(1) <= 1) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("--backend {}: {} started {} processes, and each would measure itself "
                          "alone; use --backend mpi or nccl{}",
                          backend, launcher.name, *launcher.num_ranks,
                          has_mpi() ? "" : " (this build has no MPI)"));
}

std::string choose_backend(const RunArgs& args, const comm::LauncherFacts& launcher) {
  if (args.backend != "auto") return args.backend;
  return has_mpi() && launcher.num_ranks.value_or(1) > 1 ? "mpi" : "threads";
}

void require_ranks(const RunArgs& args, const comm::Job& job, const RunPlan& plan,
                   const comm::LauncherFacts& launcher) {
  const int launched = launcher.num_ranks.value_or(0);
  if (args.backend == "mpi" && job.num_ranks() == 1 && launched != 1) {
    const std::string what =
        launched == 0 ? "one process has nobody to send to; start with mpirun -np N moe-a2a run ..."
                      : fmt::format(
                            "{} started {} processes, but MPI sees one: the launcher is not "
                            "that of the MPI library this build uses",
                            launcher.name, launched);
    throw Error(ErrorCode::kUsage, "--backend mpi: " + what);
  }
  if (plan.fault.kind == comm::FaultKind::kNone) return;
  if (plan.fault.rank >= job.num_ranks()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--inject: no rank {} among {}", plan.fault.rank, job.num_ranks()));
  }
  const bool has_processes = args.backend == "mpi" || args.backend == "nccl";
  if (plan.fault.kind == comm::FaultKind::kKill && !has_processes) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--inject kill: with --backend {} all ranks are this process; use mpi",
                            args.backend));
  }
}

void add_settings(const RunArgs& args, const RunPlan& plan, const comm::Job& job,
                  const comm::LauncherFacts& launcher, report::Report& report) {
  json::Json& settings = report.settings;
  settings["command"] = "run";
  settings["backend"] = args.backend;
  settings["size_semantics"] = "bytes that one rank sends in all, its own part included";
  settings["sizes_bytes"] = plan.sizes;
  settings["pattern"] = args.pattern;
  if (args.pattern == "zipf") settings["zipf_s"] = args.zipf_s;
  settings["warm_up"] = args.warm_up;
  settings["iterations"] = args.iterations;
  settings["check"] = args.check;
  settings["time_limit_s"] = args.time_limit_s;
  settings["pair_bytes"] = args.has_no_pairs ? 0 : args.pair_bytes;
  settings["launcher"] = launcher.name.empty() ? "none" : launcher.name;
  if (!args.inject.empty()) settings["inject"] = args.inject;
  for (const auto& [name, value] : job.facts()) settings[name] = value;
  if (args.tokens > 0) {
    settings["tokens_per_rank"] = args.tokens;
    settings["hidden"] = args.hidden;
    settings["top_k"] = args.top_k;
    settings["experts"] = args.experts;
    settings["dispatch_dtype"] = args.dispatch_dtype;
    settings["combine_dtype"] = args.combine_dtype;
    settings["ranks_per_node"] = args.ranks_per_node;
    settings["compute_s"] = args.compute_s;
  }
}

// The report of rank 0 while it is being made.
struct RankZeroReport {
  std::optional<ReportSession> session;
  GateContext machine;
};

void prepare_report(const RunArgs& args, const RunPlan& plan, const comm::Job& job,
                    const comm::LauncherFacts& launcher, const ToolContext& context,
                    RankZeroReport& report) {
  report.session.emplace(context, args.output, args.acceptance);
  add_settings(args, plan, job, launcher, report.session->report());
  report.machine = machine_context(args.cluster, job.num_ranks(), *report.session);
  if (args.backend == "nccl") {
    (void)add_variable_findings(args.cluster.scenarios, "", "", *report.session);
  }
  if (args.gate.min_of_bound > 0.0 && !report.machine.ceiling_bytes_per_s) {
    throw Error(ErrorCode::kUsage,
                "--min-of-bound: needs two ranks and a machine; name it with --gpu or --topology");
  }
}

int finish_run(const RunArgs& args, const RunOutcome& outcome, RankZeroReport& of_rank_0) {
  ReportSession& session = *of_rank_0.session;
  report::Report& report = session.report();
  report.subject =
      json::Json{{"kind", "ranks"},
                 {"name", fmt::format("{} ranks, {}", outcome.places.size(), args.backend)},
                 {"content_hash", nullptr}};
  report_run(args, outcome, of_rank_0.machine, report);
  int exit_code = judge_run(args, outcome, session);
  if (exit_code == kExitOk && outcome.moves_data) {
    exit_code = judge_gate(args.gate, results_of(outcome), of_rank_0.machine, session);
  }
  return session.finish(exit_code, args.seed, std::nullopt);
}

// What this process does for its ranks; the outcome is that of rank 0, if it is here.
void run_job(comm::Job& job, const RunArgs& args, const RunPlan& plan, const RankZero* zero,
             RunOutcome& outcome) {
  try {
    job.run([&](comm::Communicator& communicator) {
      RunOutcome unused;
      const bool is_rank_0 = communicator.rank() == 0;
      run_rank(communicator, args, plan, is_rank_0 ? zero : nullptr, is_rank_0 ? outcome : unused);
    });
  } catch (const comm::StuckError& error) {
    outcome.stuck = error;
  }
}

// A process without rank 0: it works and says nothing.
int run_silently(comm::Job& job, const RunArgs& args, const RunPlan& plan) {
  RunOutcome unused;
  int mine = kExitOk;
  try {
    run_job(job, args, plan, nullptr, unused);
  } catch (const Error& error) {
    mine = exit_code_of(error.code());  // rank 0 says what it was
  }
  return job.agree_exit_code(unused.stuck ? kExitRuntime : mine);
}

int run_with_report(comm::Job& job, const RunArgs& args, const RunPlan& plan,
                    const comm::LauncherFacts& launcher, const ToolContext& context) {
  RunOutcome outcome;
  RankZeroReport of_rank_0;
  {
    const SteadyClock clock;
    ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
    const RankZero zero{[&] { prepare_report(args, plan, job, launcher, context, of_rank_0); },
                        &progress};
    run_job(job, args, plan, &zero, outcome);
  }
  // Stuck before there was a report to write.
  if (!of_rank_0.session) throw *outcome.stuck;
  int exit_code = kExitOk;
  try {
    exit_code = finish_run(args, outcome, of_rank_0);
  } catch (const Error& error) {
    // The other processes wait for a code.
    (void)job.agree_exit_code(exit_code_of(error.code()));
    throw;
  }
  return job.agree_exit_code(exit_code);
}

int run_run(RunArgs args, const ToolContext& context) {
  RunPlan plan = plan_run(args);
  plan.measure.interrupt = context.interrupt;
  const comm::LauncherFound found = comm::find_launcher([](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
  args.backend = choose_backend(args, found.facts);
  require_one_job(args.backend, found.facts);
  comm::BackendOptions options;
  options.num_ranks = static_cast<int>(args.ranks);
  options.time_limit_s = args.time_limit_s;
  options.interrupt = context.interrupt;
  options.launcher = found.facts;
  options.registers_buffers = args.registers_buffers;
  options.uses_own_all_to_all = args.uses_own_all_to_all;
  const std::unique_ptr<comm::Job> job = comm::open_job(args.backend, options);
  require_ranks(args, *job, plan, found.facts);
  return job->has_rank_0() ? run_with_report(*job, args, plan, found.facts, context)
                           : run_silently(*job, args, plan);
}

}  // namespace

void add_run_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<RunArgs>();
  Options& options =
      line.add_command("run", "Measures the All-to-All between ranks, checks data and pairs",
                       [args, &context] { return run_run(*args, context); });
  add_run_options(options, *args);
  options.example("moe-a2a run --ranks 4 --sizes 64KiB..16MiB",
                  "four threads of this machine: time, bandwidth, data and pairs");
  options.example("mpirun -np 16 moe-a2a run --backend mpi --min-pair-share 0.7 -o a2a.json",
                  "exit 1 and the host's name when a link is slow, 6 when data was wrong, 5 when a "
                  "rank was lost");
  options.example("moe-a2a run --tokens 128 --compute 2ms --ranks 4",
                  "dispatch and combine, and the chunk count that hides them best");
}

}  // namespace moe::app
