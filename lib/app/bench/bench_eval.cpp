// moe-bench eval: perplexity and bits per byte of a text.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/bench/subject.hpp"
#include "lib/app/bench/token_bytes.hpp"
#include "lib/app/bench/weight_cast.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/engine/evaluate.hpp"
#include "lib/routing/load.hpp"

namespace moe::app {
namespace {

constexpr const char* kProtocol =
    "the file as UTF-8 text through tokenizer.json without special tokens; windows of "
    "window_tokens "
    "tokens from the start, not overlapping, each a sequence of its own at positions 0..; the "
    "first "
    "token of a window is not scored, a last window of one token is left out; "
    "log-softmax and sums in f64";
constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 30;

struct EvalArgs {
  std::string checkpoint;
  std::string scenarios;
  std::string text;
  std::int64_t window_tokens = 512;
  std::int64_t max_windows = 0;
  EngineArgs engine;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

struct Text {
  std::filesystem::path file;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> bytes_per_token;
};

Text read_text(const EvalArgs& args, const model::Tokenizer& tokenizer) {
  Text text;
  text.file =
      find_scenario(args.text, scenarios_dir(args.scenarios), "checkpoints/eval-text", ".txt");
  const FileMap map(text.file);
  if (map.size_bytes() > kMaxTextBytes) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected at most 1 GiB of text, found {} bytes",
                                               text.file.string(), map.size_bytes()));
  }
  const std::string_view view(reinterpret_cast<const char*>(map.bytes().data()),
                              map.bytes().size());
  text.ids = encode_file_text(tokenizer, view, text.file);
  if (text.ids.size() < 2) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected text of two tokens or more, found {}",
                                               text.file.string(), text.ids.size()));
  }
  text.bytes_per_token = token_byte_lengths(tokenizer, text.ids, view);
  return text;
}

void fill_metrics(const engine::EvaluateResult& result, report::Report& report) {
  const auto measured = [](const std::string& unit, double value, const std::string& how) {
    return value_metric(report::MetricKind::kMeasured, unit, value, how);
  };
  report.metrics["perplexity"] =
      measured("1", result.perplexity(), "exp(nll_sum / scored tokens); protocol in settings");
  report.metrics["nll_sum"] =
      measured("nats", result.nll_sum, "sum of -ln p(token | earlier tokens of its window)");
  if (result.num_scored_bytes > 0) {
    report.metrics["bits_per_byte"] =
        measured("bits/byte", result.bits_per_byte(),
                 "nll_sum / ln 2 / bytes of the scored tokens: comparable between tokenizers");
  } else {
    report.metrics["bits_per_byte"] =
        absent_metric(report::MetricKind::kMeasured, "bits/byte",
                      "the bytes of the tokens are not known", "nll_sum / ln 2 / scored bytes");
  }
  const auto count = [&](const char* name, std::int64_t value, const char* how) {
    report.metrics[name] = measured("1", static_cast<double>(value), how);
  };
  count("text_tokens", result.num_tokens, "tokens run through the model");
  count("windows", result.num_windows, "windows run");
  count("scored_tokens", result.num_scored_tokens, "tokens whose probability was taken");
  count("scored_bytes", result.num_scored_bytes, "bytes of the scored tokens");
}

void fill_experts(const engine::EvaluateResult& result, report::Report& report) {
  report::Table table = make_table("Experts over this text", {{"layer", "1"},
                                                              {"routed_tokens", "1"},
                                                              {"experts_used", "1"},
                                                              {"max_over_mean", "1"},
                                                              {"coefficient_of_variation", "1"},
                                                              {"gini", "1"}});
  for (std::size_t layer = 0; layer < result.expert_counts.size(); ++layer) {
    if (result.expert_counts[layer].empty()) continue;
    const routing::LoadStats load = routing::load_stats(result.expert_counts[layer]);
    table.rows.push_back({count_cell(static_cast<std::int64_t>(layer)), count_cell(load.num_routed),
                          count_cell(load.num_distinct), load.max_over_mean,
                          load.coefficient_of_variation, load.gini});
  }
  if (!table.rows.empty()) report.tables["experts_per_layer"] = table;
}

// The same text with the weights as they are stored.
void compare_with_stored(const engine::EvaluateResult& result,
                         const engine::EvaluateResult& as_stored, report::Report& report) {
  if (as_stored.num_scored_tokens != result.num_scored_tokens) return;  // interrupted
  const auto measured = [](double value, const char* how) {
    return value_metric(report::MetricKind::kMeasured, "1", value, how);
  };
  const double before = as_stored.perplexity();
  report.metrics["perplexity_as_stored"] =
      measured(before, "the same text with the weights as the checkpoint stores them");
  report.metrics["perplexity_ratio"] =
      measured(result.perplexity() / before, "perplexity quantised / as stored");
}

int run_eval(const EvalArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const std::filesystem::path directory = find_checkpoint(args.checkpoint, args.scenarios);
  model::BoundModel model = model::bind_checkpoint(directory);
  if (args.window_tokens > model.config.max_position_embeddings) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--window-tokens {}: the model's context (max_position_embeddings) is "
                            "{}; use a shorter window",
                            args.window_tokens, model.config.max_position_embeddings));
  }
  const model::Tokenizer tokenizer = require_tokenizer(directory, model, "eval");
  for (const std::string& warning : tokenizer.warnings()) {
    session.add_finding("tokenizer.warning", report::Severity::kWarning, warning, "");
  }
  const Text text = read_text(args, tokenizer);
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  report::Report& report = session.report();
  report.subject = describe_checkpoint(directory, model);
  const auto evaluate = [&](const EngineSetup& setup) {
    check_fits(model, setup.options);
    engine::Engine engine =
        engine::Engine::load(model, setup.options, progress, *context.interrupt);
    return engine::evaluate(engine, text.ids, text.bytes_per_token,
                            {args.window_tokens, args.max_windows}, progress, *context.interrupt);
  };
  const auto make_setup = [&](const EngineArgs& engine_args) {
    EngineSetup made = resolve_engine(engine_args, model);
    made.options.max_sequences = 1;
    made.options.max_context = args.window_tokens;
    return made;
  };
  // The weights as stored are no integers.
  EngineArgs stored_args = args.engine;
  if (args.engine.quantize != "none" && stored_args.activations == "int8") {
    stored_args.activations = "f32";
  }
  EngineSetup setup = make_setup(stored_args);
  std::optional<engine::EvaluateResult> as_stored;
  std::optional<Quantized> quantized;
  if (args.engine.quantize != "none") {
    as_stored = evaluate(setup);
    quantized = apply_quantize_option(args.engine, progress, *context.interrupt, model);
    setup = make_setup(args.engine);
  }
  const engine::EvaluateResult result = evaluate(setup);
  json::Json& settings = report.settings;
  settings["command"] = "eval";
  settings["text"] = text.file.string();
  settings["protocol"] = kProtocol;
  settings["window_tokens"] = args.window_tokens;
  settings["max_windows"] = args.max_windows;
  settings["threads"] = setup.options.num_threads;
  settings["isa"] = kernels::isa_name(setup.options.isa);
  settings["activations"] = setup.activations_reason;
  settings["experts_per_token"] =
      args.engine.top_k > 0 ? args.engine.top_k : std::int64_t{model.config.moe.top_k};
  add_activation_finding(setup, session);
  int exit_code = kExitOk;
  if (result.is_partial) {
    report.validity.partial = true;
    report.validity.reasons.emplace_back("interrupted");
    exit_code = kExitRuntime;
  }
  if (result.num_scored_tokens == 0) {
    session.invalidate("no token was scored");
    exit_code = kExitNothingMeasured;
  } else {
    fill_metrics(result, report);
    fill_experts(result, report);
    report_quantization(model, quantized ? &*quantized : nullptr, report);
    if (as_stored) compare_with_stored(result, *as_stored, report);
  }
  return session.finish(exit_code, std::nullopt, kernels::isa_name(setup.options.isa));
}

}  // namespace

void add_eval_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<EvalArgs>();
  Options& options = line.add_command("eval", "Perplexity and bits per byte of a text",
                                      [args, &context] { return run_eval(*args, context); });
  options.positional("CHECKPOINT", args->checkpoint,
                     "Checkpoint directory, or a name in scenarios/checkpoints");
  options.group("Input");
  args->text = "english";
  options.text("--text", "FILE", args->text,
               "UTF-8 text, or the name of one in scenarios/checkpoints/eval-text");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  options.group("How to score");
  options.integer("--window-tokens", args->window_tokens, {2, 1 << 24}, "Length of a window");
  options.integer("--max-windows", args->max_windows, {0, 1 << 30}, "Stop after so many", "all");
  add_engine_options(options, args->engine);
  args->engine.activations = "f32";
  add_activation_option(options, args->engine);
  add_quantize_option(options, args->engine);
  add_top_k_option(options, "--top-k,--experts-per-token", args->engine);
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-bench eval tinymoe-qwen3 --text english",
                  "The trained checkpoint on text it has not seen");
}

}  // namespace moe::app
