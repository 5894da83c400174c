// moe-plan size: from a service level and an arrival curve to GPUs, racks and money, as a report
// that can be signed.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/figure_table.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/procurement_report.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

// Flags that were given replace what the scenario file says; empty or negative: not given.
struct SizeArgs {
  std::string scenario;
  std::string scenarios;
  std::string model;
  std::string weight_format;
  std::string gpus;
  std::string hardware;
  std::string layout;
  std::int64_t num_gpus = 0;
  std::string engine;
  std::string kv_dtype;
  double requests_per_s = 0.0;
  double peak_over_mean = 0.0;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::optional<double> prefix_hits;
  double ttft_s = 0.0;
  double tpot_s = 0.0;
  std::optional<double> load;
  std::optional<double> growth;
  double rent = -1.0;
  std::string skew_report;
  std::string a2a_report;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

// The workload of flags alone, or a scenario's with single figures replaced.
void apply_workload(const SizeArgs& args, Scenario& s) {
  workload::Workload& w = s.workload;
  const bool is_complete =
      args.requests_per_s > 0.0 && args.input_tokens > 0 && args.output_tokens > 0;
  if (!s.has_workload && !is_complete) {
    throw Error(ErrorCode::kUsage,
                "without a scenario file a plan needs --requests-per-s, --input-tokens and "
                "--output-tokens");
  }
  if (args.input_tokens > 0) {
    w.input_tokens = workload::LengthDistribution::fixed(args.input_tokens);
    w.lengths_source = "given on the command line";
  }
  if (args.output_tokens > 0) {
    w.output_tokens = workload::LengthDistribution::fixed(args.output_tokens);
    w.lengths_source = "given on the command line";
  }
  if (args.requests_per_s > 0.0) {
    w.arrivals = args.peak_over_mean > 0.0
                     ? workload::RateCurve::diurnal(args.requests_per_s, args.peak_over_mean)
                     : workload::RateCurve::constant(args.requests_per_s);
    w.concurrency.reset();
    w.arrivals_source = "given on the command line";
  } else if (args.peak_over_mean > 0.0) {
    throw Error(ErrorCode::kUsage, "--peak-over-mean goes with --requests-per-s");
  }
  if (args.prefix_hits) {
    w.prefix_hit_ratio = *args.prefix_hits;
    w.prefix_source = "given on the command line";
  }
  if (w.prefix_source.empty()) w.prefix_source = "none assumed";
  s.has_workload = true;
}

Scenario resolve(const SizeArgs& args, const std::filesystem::path& scenarios) {
  Scenario s;
  if (!args.scenario.empty()) {
    s = read_scenario(find_scenario(args.scenario, scenarios, "plans", ".json"));
  }
  const auto take = [&](const char* key, const auto& value, auto& target, bool is_given) {
    if (!is_given) return;
    target = value;
    s.given[key] = true;
  };
  take("model.config", args.model, s.model, !args.model.empty());
  take("model.weight_format", args.weight_format, s.weight_format, !args.weight_format.empty());
  take("hardware.gpus", split_list(args.gpus), s.gpus, !args.gpus.empty());
  take("hardware.file", args.hardware, s.hardware_file, !args.hardware.empty());
  take("hardware.layout", args.layout, s.layout, !args.layout.empty());
  take("hardware.num_gpus", args.num_gpus, s.num_gpus, args.num_gpus > 0);
  take("engine.name", args.engine, s.engine, !args.engine.empty());
  take("engine.kv_dtype", args.kv_dtype, s.kv_dtype, !args.kv_dtype.empty());
  take("slo.ttft_s", args.ttft_s, s.ttft_s, args.ttft_s > 0.0);
  take("slo.tpot_s", args.tpot_s, s.tpot_s, args.tpot_s > 0.0);
  take("sizing.load_ratio", args.load.value_or(0.0), s.load_ratio, args.load.has_value());
  take("sizing.growth_ratio", args.growth.value_or(0.0), s.growth_ratio, args.growth.has_value());
  take("prices.rent_usd_per_gpu_hour", args.rent, s.prices.rent_per_gpu_hour, args.rent >= 0.0);
  if (args.rent >= 0.0) {
    for (auto& [gpu, prices] : s.by_gpu) prices.rent_per_gpu_hour = args.rent;
  }
  take("skew_report", args.skew_report, s.skew_report, !args.skew_report.empty());
  take("a2a_report", args.a2a_report, s.a2a_report, !args.a2a_report.empty());
  if (s.model.empty()) {
    throw Error(ErrorCode::kUsage, "no model: name one with --model or in a scenario file");
  }
  if (!(s.load_ratio > 0.0)) throw Error(ErrorCode::kUsage, "--load: expected more than 0 %");
  apply_workload(args, s);
  if (s.title.empty()) s.title = s.model;
  return s;
}

// The command as a person would type it again: what a shell takes apart is quoted.
std::string command_of(const ToolContext& context) {
  std::string out = context.tool;
  for (std::size_t i = 1; i < context.argv.size(); ++i) {
    const std::string& word = context.argv[i];
    const bool is_plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$&|;<>()*?[]#~`!") == std::string::npos;
    out += ' ' + (is_plain ? word : fmt::format("'{}'", word));
  }
  return out;
}

void add_subject(const SizeInputs& inputs, report::Report& report) {
  report.subject = {{"kind", "model_config"},
                    {"name", inputs.model.name},
                    {"content_hash", inputs.model.content_hash},
                    {"path", inputs.model.path.string()},
                    {"title", inputs.scenario.title}};
  json::Json& settings = report.settings;
  settings["command"] = "size";
  settings["scenario"] = inputs.scenario.path;
  settings["gpus"] = inputs.scenario.gpus;
  settings["hardware_hash"] = inputs.hardware.content_hash;
  settings["num_gpus"] = inputs.scenario.num_gpus;
  for (const Assumption& one : list_assumptions(inputs.scenario)) {
    settings["assumed_" + name_part(one.name)] = one.value;
  }
}

int run_size(const SizeArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const std::filesystem::path scenarios = require_scenarios(args.scenarios);
  const SizeInputs inputs = load_size_inputs(resolve(args, scenarios), scenarios);
  const SizeResult result = work_out(inputs);
  report::Report& report = session.report();
  add_subject(inputs, report);
  fill_procurement_report(inputs, result, command_of(context), session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

void add_input_options(Options& options, SizeArgs& args) {
  const IntRange count{1, 1000000};
  options.group("Input");
  options.text("--scenario", "FILE", args.scenario,
               "Scenario file (reports/schema/scenario.schema.json), or a name in "
               "scenarios/plans; the options below override it");
  options.text("--model", "MODEL", args.model,
               "config.json, a directory with one, or a name in scenarios/models");
  options.text("--weight-format", "FORMAT", args.weight_format,
               "Weights in this format instead of the checkpoint's");
  options.text("--gpu", "GPU,GPU,...", args.gpus, "GPU types, by id or part of the name");
  options.text("--hardware", "FILE", args.hardware, "Further GPU types, as JSON");
  options.integer("--gpus", args.num_gpus, count, "The number of GPUs is given", "search");
  options.text("--layout", "LAYOUT", args.layout, "The layout is given: \"TP8 EP8\"");
  options.text("--engine", "NAME", args.engine, "vllm (default), sglang, trtllm or llamacpp");
  options.text("--kv-dtype", "DTYPE", args.kv_dtype, "KV cache dtype (default auto)");
  options.text("--skew-report", "FILE", args.skew_report, "JSON report of moe-skew");
  options.text("--a2a-report", "FILE", args.a2a_report, "JSON report of moe-a2a");
  options.text("--scenarios", "DIR", args.scenarios, "Folder of the inputs that come with moekit");
}

void add_demand_options(Options& options, SizeArgs& args) {
  const RealRange positive{1e-6, 1e9};
  options.group("Demand and service level");
  options.real("--requests-per-s", args.requests_per_s, positive, "Mean arrival rate");
  options.real("--peak-over-mean", args.peak_over_mean, {1.0, 2.0}, "Busiest hour over the mean");
  options.integer("--input-tokens", args.input_tokens, {1, 100000000}, "Prompt tokens",
                  "the scenario's");
  options.integer("--output-tokens", args.output_tokens, {1, 100000000}, "Answer tokens",
                  "the scenario's");
  options.ratio("--prefix-hits", args.prefix_hits, "Prompt tokens found in a prefix cache",
                "the scenario's, or 0");
  options.duration("--ttft", args.ttft_s, "p99 TTFT limit", "the scenario's, or 2s");
  options.duration("--tpot", args.tpot_s, "Mean TPOT (ITL) limit", "the scenario's, or 50ms");
  options.ratio("--load", args.load, "Share of the rate at the limit that is planned for",
                "the scenario's, or 0.8");
  options.ratio("--growth", args.growth, "Demand added until the end of the plan",
                "the scenario's, or 0.3");
  options.real("--rent", args.rent, {0.0, 1e6}, "USD an hour of a GPU");
}

}  // namespace

void add_plan_size_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<SizeArgs>();
  Options& options =
      line.add_command("size", "GPUs, racks and money for a service level and an arrival curve",
                       [args, &context] { return run_size(*args, context); });
  add_input_options(options, *args);
  add_demand_options(options, *args);
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-plan size --scenario deepseek-v3-50rps -o plan.html -o plan.json",
                  "DeepSeek-V3 for 50 requests/s on H200 and B200, as a page that prints");
  options.example(
      "moe-plan size --model Mixtral-8x7B-v0.1 --gpu h100-sxm --gpus 2 --requests-per-s 2 "
      "--input-tokens 1000 --output-tokens 300",
      "what two GPUs carry");
}

}  // namespace moe::app
