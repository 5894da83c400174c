// moe-bench run: how fast a checkpoint runs here, and what its experts did.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/format_names.hpp"
#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/run_compare.hpp"
#include "lib/app/bench/run_config.hpp"
#include "lib/app/bench/run_measure.hpp"
#include "lib/app/bench/run_report.hpp"
#include "lib/app/bench/subject.hpp"
#include "lib/app/bench/weight_cast.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

model::Dtype dtype_option(const std::string& name) {
  if (name == "f32") return model::Dtype::kF32;
  return name == "f16" ? model::Dtype::kF16 : model::Dtype::kBf16;
}

// A tokenizer that cannot be read matters only when text was asked for.
std::optional<model::Tokenizer> tokenizer_for(const RunArgs& args,
                                              const std::filesystem::path& directory,
                                              const model::BoundModel& model,
                                              ReportSession& session) {
  if (args.prompts == "random") return std::nullopt;
  try {
    std::optional<model::Tokenizer> tokenizer = load_tokenizer(directory, model);
    if (!tokenizer) return std::nullopt;
    for (const std::string& warning : tokenizer->warnings()) {
      session.add_finding("tokenizer.warning", report::Severity::kWarning, warning, "");
    }
    return tokenizer;
  } catch (const Error& error) {
    if (args.prompts != "auto" && args.prompts != "repeat") throw;
    session.add_finding(
        "prompts.no_tokenizer", report::Severity::kWarning,
        fmt::format("the tokenizer cannot be used, so prompts are random ids: {}", error.what()),
        "Mend tokenizer.json");
    return std::nullopt;
  }
}

void fill_settings(const RunArgs& args, const EngineSetup& setup, const PromptSource& prompts,
                   const model::ModelConfig& config, json::Json& settings) {
  settings["command"] = "run";
  settings["batch"] = args.batch;
  settings["prompt_tokens"] = args.prompt_tokens;
  settings["output_tokens"] = args.output_tokens;
  settings["prompts"] = args.prompts;
  settings["prompts_used"] = prompts.description();
  settings["chat_template"] = "not applied";
  settings["ignore_eos"] = true;
  settings["temperature"] = args.temperature;
  settings["seed"] = args.seed;
  settings["threads"] = setup.options.num_threads;
  settings["isa"] = kernels::isa_name(setup.options.isa);
  settings["isa_reason"] = setup.isa_reason;
  settings["activations"] = activation_format_name(setup.options.activations);
  settings["dtype"] = args.dtype;
  settings["moe_path"] = args.engine.moe_path;
  settings["activations_reason"] = setup.activations_reason;
  settings["experts_per_token"] =
      setup.options.top_k_override > 0 ? setup.options.top_k_override : config.moe.top_k;
  settings["chunk_tokens"] = setup.options.max_batch_tokens;
  settings["max_memory_bytes"] = args.engine.max_memory_bytes;
  settings["context"] = args.context;
  settings["repeat"] = args.repeat;
  settings["until_ci_ratio"] = args.until_ci ? json::Json(*args.until_ci) : json::Json(nullptr);
  settings["max_time_s"] = args.max_time_s;
  settings["warmup"] = args.warmup;
  settings["configured_batch"] = args.configured_batch;
  settings["target_ttft_s"] = args.target_ttft_s;
  settings["target_itl_s"] = args.target_itl_s;
  settings["clock"] = "CLOCK_MONOTONIC";
  settings["scheduling"] =
      "static batch: all requests start together, one prefill, then steps of one token each";
}

// Known once the weights are loaded.
void fill_placement_settings(const RunOutcome& outcome, json::Json& settings) {
  settings["numa_nodes"] = nullptr;
  settings["numa_interleaved_nodes"] = nullptr;
  settings["numa_placement"] = "the weights were not loaded";
  if (outcome.loads.empty()) return;
  const engine::PlacementOutcome& placement = outcome.loads.front().placement;
  settings["numa_nodes"] = placement.decided.nodes;
  settings["numa_interleaved_nodes"] =
      placement.is_interleaved ? json::Json(placement.decided.memory_nodes) : json::Json::array();
  settings["numa_placement"] = placement.summary;
}

int run_run(const RunArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  if (!args.dump_routing.empty()) check_writable(args.dump_routing, "--dump-routing");
  const std::filesystem::path directory = find_checkpoint(args.checkpoint, args.scenarios);
  model::BoundModel model = model::bind_checkpoint(directory);
  session.report().subject = describe_checkpoint(directory, model);
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  AlignedBytes converted;
  if (args.dtype != "auto") {
    converted =
        cast_weights(dtype_option(args.dtype), args.engine, progress, *context.interrupt, model);
  }
  if (args.compares_stored && args.engine.quantize == "none") {
    throw Error(ErrorCode::kUsage,
                "--compare-stored: expected --quantize int8, int4 or int8-channel with it");
  }
  const model::BoundModel stored = model;
  const std::optional<Quantized> quantized =
      apply_quantize_option(args.engine, progress, *context.interrupt, model);
  const EngineSetup setup = resolve_engine(args.engine, model);
  if (!args.dump_routing.empty() && !model.config.is_moe()) {
    throw Error(ErrorCode::kUsage, "--dump-routing: this is a dense model, it has no routing");
  }
  const RunPlan plan = plan_run(args, model, setup.options);
  const PromptSource prompts =
      make_prompts({args.prompts, static_cast<std::uint64_t>(args.seed), model.config.vocab_size,
                    scenarios_dir(args.scenarios)},
                   tokenizer_for(args, directory, model, session));

  RunTools tools{&clock, &progress, context.interrupt, nullptr};
  report::Report& report = session.report();
  fill_settings(args, setup, prompts, model.config, report.settings);
  report_quantization(model, quantized ? &*quantized : nullptr, report);
  add_kernel_choice(setup, report);
  add_activation_finding(setup, session);
  const RunFacts facts{&args, &model, &setup.options, &prompts, directory};

  std::optional<RoutingRecorder> recorder;
  if (!args.dump_routing.empty()) {
    recorder.emplace(args.dump_routing, report.subject["name"].get<std::string>(), model.config,
                     report.settings["experts_per_token"].get<std::int32_t>(), clock);
    tools.recorder = &*recorder;
  }
  const RunOutcome outcome = run_points(args, plan, model, prompts, tools);
  fill_placement_settings(outcome, report.settings);
  if (recorder) recorder->commit();
  if (args.engine.moe_path == "both") {
    compare_moe_paths(args, plan, model, prompts, tools, report);
  }
  if (args.compares_stored) {
    compare_with_stored_weights(args, plan, model, stored, prompts, tools, report);
  }

  add_run_metrics(outcome, facts, report);
  add_run_acceptance(outcome, facts, report);
  add_run_tables(outcome, facts, report);
  add_run_charts(report);
  add_run_findings(outcome, facts, session);
  const bool has_failure =
      std::any_of(outcome.points.begin(), outcome.points.end(),
                  [](const PointOutcome& point) { return point.status == PointStatus::kFailed; });
  int exit_code = kExitOk;
  if (has_failure || outcome.is_interrupted) exit_code = kExitRuntime;
  if (!report.validity.valid) exit_code = kExitNothingMeasured;
  return session.finish(exit_code, args.seed, kernels::isa_name(setup.options.isa));
}

}  // namespace

void add_run_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<RunArgs>();
  Options& options = line.add_command("run", "Measures a checkpoint: latency, throughput, experts",
                                      [args, &context] { return run_run(*args, context); });
  add_run_options(options, *args);
}

}  // namespace moe::app
