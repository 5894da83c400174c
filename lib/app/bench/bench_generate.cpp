// moe-bench generate: text in, text out.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/checkpoint.hpp"
#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/bench/logits_file.hpp"
#include "lib/app/bench/subject.hpp"
#include "lib/app/bench/weight_cast.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/output.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/report_session.hpp"
#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/units.hpp"
#include "lib/engine/generate.hpp"

namespace moe::app {
namespace {

struct GenerateArgs {
  std::string checkpoint;
  std::string scenarios;
  std::string prompt;
  std::string prompt_ids;
  std::int64_t max_tokens = 64;
  double temperature = 0.0;
  std::int64_t sample_top_k = 0;
  double top_p = 1.0;
  std::int64_t seed = 0;
  bool ignore_eos = false;
  std::string dump_logits;
  EngineArgs engine;
  OutputOptions output;
};

struct Prompt {
  std::vector<std::int32_t> ids;
  std::optional<model::Tokenizer> tokenizer;  // absent: ids in, ids out
};

Prompt read_prompt(const GenerateArgs& args, const std::filesystem::path& directory,
                   const model::BoundModel& model) {
  Prompt prompt;
  if (args.prompt.empty() == args.prompt_ids.empty()) {
    throw Error(ErrorCode::kUsage,
                "expected --prompt TEXT or --prompt-ids N,N,..., one of the two");
  }
  if (!args.prompt_ids.empty()) {
    const IntRange range{0, model.config.vocab_size - 1};
    std::size_t begin = 0;
    // Long prompts are fine here, unlike in the lists of a sweep.
    while (begin <= args.prompt_ids.size()) {
      const std::size_t comma = std::min(args.prompt_ids.find(',', begin), args.prompt_ids.size());
      const std::string item = args.prompt_ids.substr(begin, comma - begin);
      prompt.ids.push_back(
          static_cast<std::int32_t>(parse_integers(item, range, "--prompt-ids").front()));
      begin = comma + 1;
    }
    return prompt;
  }
  prompt.tokenizer = require_tokenizer(directory, model, "--prompt");
  prompt.ids = prompt.tokenizer->encode(args.prompt, true);
  if (prompt.ids.empty()) throw Error(ErrorCode::kUsage, "--prompt: the text gives no tokens");
  return prompt;
}

// Sizes the engine for this prompt alone.
void set_context(const GenerateArgs& args, std::size_t prompt_tokens,
                 const model::ModelConfig& config, engine::EngineOptions& options) {
  const auto needed = static_cast<std::int64_t>(prompt_tokens);
  if (needed >= config.max_position_embeddings) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the prompt has {} tokens and the model's context "
                            "(max_position_embeddings) is {}, which must hold the prompt and at "
                            "least one more; shorten the prompt",
                            needed, config.max_position_embeddings));
  }
  options.max_sequences = 1;
  options.max_context = std::min(config.max_position_embeddings, needed + args.max_tokens);
}

void fill_report(const GenerateArgs& args, const std::filesystem::path& directory,
                 const model::BoundModel& model, const EngineSetup& setup, const Prompt& prompt,
                 const engine::GenerateResult& result, report::Report& report) {
  using report::Metric;
  using report::MetricKind;
  report.subject = describe_checkpoint(directory, model);
  json::Json& settings = report.settings;
  settings["command"] = "generate";
  settings["prompt_tokens"] = prompt.ids.size();
  settings["max_tokens"] = args.max_tokens;
  settings["temperature"] = args.temperature;
  settings["top_k"] = args.sample_top_k;
  settings["top_p"] = args.top_p;
  settings["ignore_eos"] = args.ignore_eos;
  settings["threads"] = setup.options.num_threads;
  settings["isa"] = kernels::isa_name(setup.options.isa);
  settings["activations"] = setup.activations_reason;
  const auto count = static_cast<double>(result.token_ids.size());
  report.metrics["output_tokens"] = {MetricKind::kMeasured,
                                     "tokens",
                                     count,
                                     {},
                                     {},
                                     "tokens generated, the end of sequence "
                                     "token included"};
  Metric ttft{MetricKind::kMeasured,
              "s",
              {},
              {},
              {},
              "from the start of the prefill to the first token; one sample"};
  Metric rate{MetricKind::kMeasured,
              "tokens/s",
              {},
              {},
              {},
              "(tokens - 1) / (time of the last token - time of the first)"};
  const std::vector<double>& times = result.token_times_s;
  if (times.empty()) {
    ttft.absent_reason = "no token was generated";
  } else {
    ttft.value = times.front();
  }
  if (times.size() > 1 && times.back() > times.front()) {
    rate.value = static_cast<double>(times.size() - 1) / (times.back() - times.front());
  } else {
    rate.absent_reason = "needs two tokens";
  }
  report.metrics["ttft_s"] = ttft;
  report.metrics["decode_tokens_per_s"] = rate;
  report::Table table;
  table.title = "Generated";
  table.columns = {{"token_ids", ""}, {"text", ""}, {"stopped_by", ""}};
  const std::string text =
      prompt.tokenizer ? prompt.tokenizer->decode(result.token_ids, true) : std::string();
  table.rows.push_back({fmt::format("{}", fmt::join(result.token_ids, ",")), text,
                        std::string(engine::stop_reason_name(result.stop))});
  report.tables["generated"] = table;
}

int run_generate(const GenerateArgs& args, const ToolContext& context) {
  // Streaming is stdout's job unless a report was asked for there.
  const bool is_streaming = args.output.format == "text";
  OutputOptions output = args.output;
  if (is_streaming) output.format = "none";
  ReportSession session(context, output);
  if (!args.dump_logits.empty()) check_writable(args.dump_logits, "--dump-logits");
  const std::filesystem::path directory = find_checkpoint(args.checkpoint, args.scenarios);
  model::BoundModel model = model::bind_checkpoint(directory);
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(output.is_quiet), clock);
  const std::optional<Quantized> quantized =
      apply_quantize_option(args.engine, progress, *context.interrupt, model);
  const Prompt prompt = read_prompt(args, directory, model);
  if (prompt.tokenizer && !output.is_quiet) {
    for (const std::string& warning : prompt.tokenizer->warnings()) print_warning(context, warning);
  }
  EngineSetup setup = resolve_engine(args.engine, model);
  set_context(args, prompt.ids.size(), model.config, setup.options);
  check_fits(model, setup.options);
  engine::Engine engine = engine::Engine::load(model, setup.options, progress, *context.interrupt);
  if (!args.dump_logits.empty()) write_prompt_logits(engine, prompt.ids, args.dump_logits);

  engine::GenerateOptions options;
  options.max_new_tokens = args.max_tokens;
  options.ignore_eos = args.ignore_eos;
  options.sampling = {args.temperature, static_cast<std::int32_t>(args.sample_top_k), args.top_p,
                      static_cast<std::uint64_t>(args.seed)};
  std::optional<model::TokenStream> stream;
  if (prompt.tokenizer) stream.emplace(*prompt.tokenizer, true);
  bool is_first = true;
  const auto on_token = [&](std::int32_t token) {
    if (!is_streaming) return true;
    if (stream) {
      write_stdout(stream->push(token));
    } else {
      write_stdout(fmt::format("{}{}", is_first ? "" : ",", token));
    }
    is_first = false;
    return true;
  };
  const engine::GenerateResult result =
      engine::generate(engine, 0, prompt.ids, options, on_token, clock, *context.interrupt);
  if (is_streaming) write_stdout((stream ? stream->flush() : std::string()) + "\n");
  if (!output.is_quiet && is_streaming && !result.token_times_s.empty()) {
    print_note(context,
               fmt::format("{} prompt tokens, {} generated in {}, stopped by {}", prompt.ids.size(),
                           result.token_ids.size(), format_duration(result.token_times_s.back()),
                           engine::stop_reason_name(result.stop)));
  }
  fill_report(args, directory, model, setup, prompt, result, session.report());
  report_quantization(model, quantized ? &*quantized : nullptr, session.report());
  add_activation_finding(setup, session);
  const bool is_interrupted = result.stop == engine::StopReason::kInterrupted;
  if (is_interrupted) {
    session.report().validity.partial = true;
    session.report().validity.reasons.emplace_back("interrupted");
  }
  return session.finish(is_interrupted ? kExitRuntime : kExitOk, args.seed,
                        kernels::isa_name(setup.options.isa));
}

}  // namespace

void add_generate_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<GenerateArgs>();
  Options& options = line.add_command("generate", "Continues a prompt: text in, text out",
                                      [args, &context] { return run_generate(*args, context); });
  options.positional("CHECKPOINT", args->checkpoint,
                     "Checkpoint directory, or a name in scenarios/checkpoints");
  options.group("Input");
  options.text("-p,--prompt", "TEXT", args->prompt,
               "Prompt, used as it is: no chat template is applied");
  options.text("--prompt-ids", "N,N,...", args->prompt_ids,
               "Token ids instead of text; the output is token ids, too");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  options.group("What to generate");
  options.integer("-n,--max-tokens", args->max_tokens, {1, 1 << 24}, "Tokens to generate at most");
  options.real("--temperature", args->temperature, {0.0, 100.0}, "0 takes the likeliest token");
  options.integer("--top-k", args->sample_top_k, {0, 1 << 30},
                  "Sample from the K likeliest tokens; 0 from all");
  options.real("--top-p", args->top_p, {1e-6, 1.0},
               "Sample from the smallest set of tokens that has this probability");
  options.integer("--seed", args->seed, {0}, "Seed of the sampling");
  options.flag("--ignore-eos", args->ignore_eos, "Go on after an end-of-sequence token");
  options.group("Also write");
  options.text("--dump-logits", "FILE", args->dump_logits,
               "Write the logits of every token of the prompt (safetensors), a golden file for "
               "moe-bench verify");
  add_engine_options(options, args->engine);
  args->engine.activations = "f32";
  add_activation_option(options, args->engine);
  add_quantize_option(options, args->engine);
  add_top_k_option(options, "--experts-per-token", args->engine);
  add_output_options(options, args->output);
  options.example("moe-bench generate tinymoe-qwen3 --prompt 'In the beginning' -n 32",
                  "Text of the checkpoint that comes with moekit");
}

}  // namespace moe::app
