// moe-skew replay: every plan on every trace. The figure that a plan was made by says nothing about
// other traffic; this table does.

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/replay_parts.hpp"
#include "lib/app/skew/skew_placement.hpp"

namespace moe::app {
namespace {

using report::MetricKind;

void describe_run(const ReplayArgs& args, const ReplayTiming& timing, ReportSession& session) {
  report::Report& report = session.report();
  report.settings["policy"] = args.policy;
  report.settings["fit"] = args.fits;
  report.settings["plans"] = args.plans;
  report.settings["window"] = args.window;
  report.settings["tokens_per_step"] = args.tokens_per_step;
  report.settings["steps"] = args.num_steps;
  report.settings["seed"] = args.seed;
  if (args.age_steps >= 0) {
    report.metrics["plan_age_steps"] =
        value_metric(MetricKind::kAssumed, "1", static_cast<double>(args.age_steps),
                     "steps between the end of the plan's statistics and its use, as given");
  }
  if (timing.fit != nullptr) {
    report.settings["kernels"] =
        fmt::format("{} {} {}", timing.fit->gpu, timing.fit->engine, timing.fit->quant);
    session.add_finding(
        "replay.kernel_model", report::Severity::kInfo,
        fmt::format(
            "step times are the expert kernels of the slowest GPU, summed over layers, from "
            "a fit to measured kernels ({} {} {}); its median error on points not fitted "
            "is {:.0f} %",
            timing.fit->gpu, timing.fit->engine, timing.fit->quant,
            100.0 * timing.fit->held_out_error),
        "with few tokens a step skew makes this cheaper: fewer experts are read");
  } else {
    session.add_finding("replay.no_kernel_model", report::Severity::kInfo,
                        "no --gpu: time is counted in copies of the slowest GPU, which overstates "
                        "what skew costs in decode",
                        "give --gpu, --engine, --quant and the shape of an expert");
  }
  if (timing.has_steps && !timing.is_recorded) {
    session.add_finding("replay.drawn_steps", report::Severity::kInfo,
                        fmt::format("steps are drawn from the recorded shares, {} of {} tokens; "
                                    "recorded traffic is burstier",
                                    args.num_steps, args.tokens_per_step),
                        "--window takes the recorded ones where the trace has them");
  }
}

int run_replay(const ReplayArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const routing::WindowSpec window =
      args.window.empty() ? routing::WindowSpec{} : routing::parse_window(args.window);
  const std::vector<balance::KernelFit> fits = replay_kernel_fits(args);
  const ReplayTiming timing = replay_timing(args, fits);
  const std::vector<LoadedTrace> traces = load_traces(args.trace, args.trace.traces, window);
  const std::vector<ReplayPlan> plans = replay_plans(args, traces);
  const balance::Cluster cluster = cluster_of(plans.front().placement, args.cluster);
  report::Report& report = session.report();
  describe_traces("replay", traces, args.trace, session);
  describe_cluster(cluster, report);
  describe_run(args, timing, session);
  const ReplayFigures replay = replay_all(args, plans, traces, cluster, timing, report);
  add_replay_matrix(plans, traces, replay, report);
  add_replay_traffic(args, plans, traces, cluster, report);
  add_replay_metrics(plans, replay, session);
  add_staleness_findings(plans, traces, replay, session);
  add_migration(args, plans, traces, replay, timing, session);
  return session.finish(kExitOk, args.seed, std::nullopt);
}

}  // namespace

void add_replay_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ReplayArgs>();
  Options& options = line.add_command("replay", "Judges plans on traces they were not made for",
                                      [args, &context] { return run_replay(*args, context); });
  options.positionals("TRACE", args->trace.traces,
                      "Recorded routing, one column of the table each");
  add_trace_options(options, args->trace);
  add_cluster_options(options, args->cluster);
  options.group("Plans");
  options.texts("--plan", "NAME=FILE", args->plans,
                "A plan: SGLang JSON, TensorRT-LLM YAML or CSV");
  options.flag(
      "--fit", args->fits,
      "Make a plan for each trace, one for all, and for each trace one for all the others");
  options.choice("--policy", {"joint", "eplb"}, args->policy, "How --fit plans");
  options.integer("--effort", args->effort, {1, 1'000'000'000}, "As in moe-skew plan");
  options.integer("--seed", args->seed, {0, std::numeric_limits<std::int32_t>::max()},
                  "Seed of the search and of drawn steps");
  options.group("Step time");
  options.text("--window", "W", args->window,
               "Recorded steps: 1steps, 256tokens, 500ms; needs a trace that has them");
  options.integer("--tokens-per-step", args->tokens_per_step, {0, 1 << 24},
                  "Draw steps of so many tokens from the recorded shares", "no step times");
  options.integer("--steps", args->num_steps, {1, 1'000'000}, "How many to draw");
  options.text("--gpu", "NAME", args->gpu, "GPU of scenarios/measured/expert_kernels.json");
  options.text("--engine", "NAME", args->engine, "Engine whose kernels were measured");
  options.text("--quant", "NAME", args->quant, "Format of the expert weights");
  options.integer("--hidden-size", args->hidden_size, {0, 1 << 20}, "Of the model", "not known");
  options.integer("--moe-intermediate-size", args->moe_intermediate_size, {0, 1 << 20},
                  "Of the model", "not known");
  options.integer("--activation-bytes", args->bytes_per_element, {1, 8},
                  "Bytes of an element that is dispatched or combined");
  options.group("Migration");
  options.text("--from", "NAME", args->from, "The plan in force, one of the table");
  options.bytes("--expert-bytes", args->expert_bytes, "Weights of one expert of one layer",
                "not known");
  options.real("--link-bytes-per-s", args->link_bytes_per_s, {},
               "Rate at which a GPU loads experts");
  options.integer("--plan-age", args->age_steps, {-1, std::numeric_limits<std::int64_t>::max()},
                  "Steps between the plan's statistics and its use, for the report", "not known");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-skew replay a.json b.json c.json --fit --gpus 32 --slots 288",
                  "how far each plan carries beyond its own traffic");
}

}  // namespace moe::app
