// moe-skew synth: a trace whose truth is known.

#include <limits>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/skew/skew_commands.hpp"
#include "lib/app/skew/skew_input.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/json/write.hpp"
#include "lib/routing/export.hpp"
#include "lib/routing/synthetic.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kBlockTokens = 1024;

struct SynthArgs {
  std::string to;
  std::string truth;
  std::string kind = "zipf";
  std::int64_t num_layers = 4;
  std::int64_t num_experts = 64;
  std::int64_t top_k = 8;
  std::int64_t num_tokens = 16384;
  std::int64_t tokens_per_step = 64;
  double step_s = 0.05;
  double zipf_s = 0.8;
  double event_s = 5.0;
  double ramp_s = 10.0;
  double factor = 3.0;
  std::int64_t seed = 1;
  OutputOptions output;
};

routing::SyntheticKind kind_of(const std::string& name) {
  if (name == "drift") return routing::SyntheticKind::kDrift;
  if (name == "switch") return routing::SyntheticKind::kSwitch;
  if (name == "burst") return routing::SyntheticKind::kBurst;
  return routing::SyntheticKind::kZipf;
}

routing::SyntheticSpec spec_of(const SynthArgs& args) {
  routing::SyntheticSpec spec;
  spec.kind = kind_of(args.kind);
  spec.num_layers = static_cast<std::int32_t>(args.num_layers);
  spec.num_experts = static_cast<std::int32_t>(args.num_experts);
  spec.top_k = static_cast<std::int32_t>(args.top_k);
  spec.num_tokens = args.num_tokens;
  spec.tokens_per_step = args.tokens_per_step;
  spec.step_s = args.step_s;
  spec.zipf_s = args.zipf_s;
  spec.event_s = args.event_s;
  spec.burst_ramp_s = args.ramp_s;
  spec.burst_factor = args.factor;
  spec.seed = static_cast<std::uint64_t>(args.seed);
  return spec;
}

// Shares of every expert at the times where they change, and what happens when.
json::Json truth_of(const SynthArgs& args, const routing::SyntheticTruth& truth) {
  json::Json document;
  document["kind"] = args.kind;
  document["seed"] = args.seed;
  document["duration_s"] = truth.duration_s();
  std::vector<double> times = {0.0};
  if (args.kind == "switch") times.push_back(args.event_s);
  if (args.kind == "drift") times.push_back(truth.duration_s());
  if (args.kind == "burst") {
    document["burst"] = {{"begin_s", args.event_s},
                         {"peak_s", args.event_s + args.ramp_s},
                         {"end_s", args.event_s + 2.0 * args.ramp_s},
                         {"factor", args.factor}};
    json::Json& experts = document["burst"]["experts"] = json::Json::array();
    for (std::int64_t l = 0; l < args.num_layers; ++l) experts.push_back(truth.burst_expert(l));
    times.push_back(args.event_s + args.ramp_s);
  }
  if (args.kind == "switch") document["switch"] = {{"at_s", args.event_s}};
  json::Json& shares = document["shares"] = json::Json::array();
  for (const double time_s : times) {
    json::Json at;
    at["time_s"] = time_s;
    json::Json& layers = at["layers"] = json::Json::array();
    for (std::int64_t l = 0; l < args.num_layers; ++l) layers.push_back(truth.shares(l, time_s));
    shares.push_back(std::move(at));
  }
  return document;
}

int run_synth(const SynthArgs& args, const ToolContext& context) {
  if (args.to.empty()) throw Error(ErrorCode::kUsage, "expected --to FILE");
  check_writable(args.to, "--to");
  if (!args.truth.empty()) check_writable(args.truth, "--truth");
  ReportSession session(context, args.output);
  const routing::SyntheticSpec spec = spec_of(args);
  const routing::SyntheticTruth truth(spec);
  const bool has_event = args.kind == "switch" || args.kind == "burst";
  if (has_event && args.event_s >= truth.duration_s()) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--event {} s: the trace ends after {} s; give more --tokens or an "
                            "earlier event",
                            args.event_s, truth.duration_s()));
  }
  routing::RoutingInput input = routing::make_synthetic(spec, kBlockTokens);
  const json::Json known = truth_of(args, truth);
  routing::export_trace(input, args.to,
                        {{"synthetic", args.kind}, {"seed", fmt::format("{}", args.seed)}});
  if (!args.truth.empty()) json::write_file(args.truth, known);
  report::Report& report = session.report();
  InputArgs written;
  written.path = args.to;
  report.subject = describe_input(open_input(written).info);
  report.settings["command"] = "synth";
  report.settings["kind"] = args.kind;
  report.settings["tokens_per_step"] = args.tokens_per_step;
  report.settings["step_s"] = args.step_s;
  report.settings["zipf_s"] = args.zipf_s;
  report.settings["event_s"] = args.event_s;
  report.settings["burst_ramp_s"] = args.ramp_s;
  report.settings["burst_factor"] = args.factor;
  report.metrics["synthetic_tokens_count"] = value_metric(
      report::MetricKind::kModelled, "1", static_cast<double>(args.num_tokens), "tokens written");
  report.metrics["synthetic_duration_s"] =
      value_metric(report::MetricKind::kModelled, "s", truth.duration_s(),
                   "forward passes times their distance");
  return session.finish(kExitOk, args.seed, std::nullopt);
}

}  // namespace

void add_skew_synth_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<SynthArgs>();
  Options& options = line.add_command("synth", "Makes a trace whose truth is known",
                                      [args, &context] { return run_synth(*args, context); });
  options.group("What to write");
  options.text("--to", "FILE", args->to, "The trace to write");
  options.text("--truth", "FILE", args->truth, "Write the truth as JSON: shares, events");
  options.group("The traffic");
  options.choice("--kind", {"zipf", "drift", "switch", "burst"}, args->kind,
                 "Popularity by rank for good; moving to another order; another order at once; one "
                 "expert a layer rising to --factor");
  options.integer("--layers", args->num_layers, {1, 1024}, "MoE layers");
  options.integer("--experts", args->num_experts, {1, 4096}, "Experts of a layer");
  options.integer("--top-k", args->top_k, {1, 64}, "Experts a token");
  options.integer("--tokens", args->num_tokens, {1, std::int64_t{1} << 31}, "Tokens in all");
  options.integer("--tokens-per-step", args->tokens_per_step, {1, 1 << 20},
                  "Tokens of one forward pass");
  options.duration("--step", args->step_s, "Time from one forward pass to the next");
  options.real("--zipf", args->zipf_s, {0.0, 10.0}, "Exponent of the popularity by rank");
  options.duration("--event", args->event_s, "When the switch or burst begins");
  options.duration("--ramp", args->ramp_s, "Time in which a burst rises; it lasts as long again");
  options.real("--factor", args->factor, {1.0, 1000.0}, "What a burst multiplies a share by");
  options.integer("--seed", args->seed, {0, std::numeric_limits<std::int64_t>::max()},
                  "Same seed, same trace");
  add_output_options(options, args->output);
  options.example(
      "moe-skew synth --kind burst --tokens 50000 --to burst.safetensors --truth b.json",
      "one expert of each layer rises threefold within 10 s");
}

}  // namespace moe::app
