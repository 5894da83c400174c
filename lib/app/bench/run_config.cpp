#include "lib/app/bench/run_config.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/app/bench/weight_cast.hpp"
#include "lib/base/error.hpp"
#include "lib/base/units.hpp"

namespace moe::app {
namespace {

// More points than anybody waits for.
constexpr std::size_t kMaxPoints = 4096;

// The model's context, or --context when that is less.
std::int64_t context_limit(const RunArgs& args, const model::ModelConfig& config) {
  if (args.context == 0) return config.max_position_embeddings;
  if (args.context > config.max_position_embeddings) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--context {}: the model's context (max_position_embeddings) is {}",
                            args.context, config.max_position_embeddings));
  }
  return args.context;
}

bool fits_memory(const model::BoundModel& model, const engine::EngineOptions& options) {
  const std::int64_t budget = memory_budget(options);
  return budget == 0 ||
         engine::Engine::estimate(model.config, model, options).total_bytes() <= budget;
}

engine::EngineOptions options_for(const engine::EngineOptions& base, std::int64_t batch,
                                  std::int64_t context) {
  engine::EngineOptions options = base;
  options.max_sequences = static_cast<std::int32_t>(batch);
  options.max_context = context;
  return options;
}

std::string memory_reason(const model::BoundModel& model, const engine::EngineOptions& options) {
  const std::int64_t need = engine::Engine::estimate(model.config, model, options).total_bytes();
  return fmt::format("skipped: needs {} of memory, {} may be used",
                     format_bytes_binary(static_cast<double>(need)),
                     format_bytes_binary(static_cast<double>(memory_budget(options))));
}

}  // namespace

void add_run_options(Options& options, RunArgs& args) {
  options.positional("CHECKPOINT", args.checkpoint,
                     "Checkpoint directory, or a name in scenarios/checkpoints");
  options.group("What to run (lists sweep their product)");
  options.integers("--batch", args.batch, {1, 65536}, "Requests that run together");
  options.integers("--prompt-tokens", args.prompt_tokens, {1, 1 << 24}, "Length of the prompts");
  options.integers("--output-tokens", args.output_tokens, {1, 1 << 24},
                   "Tokens to generate; end-of-sequence tokens are ignored");
  options.text("--prompts", "FILE|auto|random|repeat", args.prompts,
               "Text of FILE; auto: the text that comes with moekit, or random ids without a "
               "tokenizer; random: uniform token ids; repeat: one prompt for all requests, which "
               "collapses routing");
  options.real("--temperature", args.temperature, {0.0, 100.0}, "0 takes the likeliest token");
  options.integer("--seed", args.seed, {0}, "Seed of random prompts and of sampling");
  add_top_k_option(options, "--top-k,--experts-per-token", args.engine);
  options.text("--scenarios", "DIR", args.scenarios, "Folder of the inputs that come with moekit");
  add_engine_options(options, args.engine);
  add_activation_option(options, args.engine);
  options.choice("--dtype", {"auto", "f32", "f16", "bf16"}, args.dtype,
                 "What the weights are converted to before they are packed, which holds both in "
                 "memory; auto: as they are stored");
  add_quantize_option(options, args.engine);
  options.flag("--compare-stored", args.compares_stored,
               "With --quantize: the first point once more by turns with the weights as they are "
               "stored; both are in memory");
  add_moe_path_option(options, args.engine);
  options.integer("--context", args.context, {0, 1 << 24},
                  "Tokens of KV cache per request; longer points are skipped",
                  "what the longest point needs");
  options.group("How to measure");
  options.integer(
      "--repeat", args.repeat, {1, 100000},
      "Repetitions of a point; with --until-ci the most are 1000 and this is the least");
  options.ratio("--until-ci", args.until_ci,
                "Repeat until the 95 % interval of the median latency is within this of it");
  options.duration("--max-time", args.max_time_s, "Time for a point; one repetition always runs");
  options.integer("--warmup", args.warmup, {0, 1000}, "Untimed repetitions before each point");
  options.flag("--no-limits", args.has_no_limits,
               "Do not sample the machine's limits between the repetitions (about 5 ms each)");
  options.group("Judge a batch size (checklist item batch.tuned)");
  options.integer("--configured-batch", args.configured_batch, {0, 65536},
                  "The batch in use, one of --batch; compared with the best of at least three",
                  "none");
  options.duration("--target-ttft", args.target_ttft_s,
                   "Only batches whose median TTFT is within this count", "none");
  options.duration("--target-itl", args.target_itl_s,
                   "Only batches whose median ITL is within this count", "none");
  options.group("Also write");
  options.flag("--raw-samples", args.keeps_raw_samples, "Keep every sample in the report");
  options.text("--dump-routing", "FILE", args.dump_routing,
               "Write which experts each token took (safetensors)");
  add_acceptance_options(options, args.acceptance);
  add_output_options(options, args.output);
  options.example("moe-bench run tinymoe-qwen3 -o report.json -o report.html",
                  "The checkpoint that comes with moekit; table on the screen, two files");
  options.example("moe-bench run DIR --batch 1,8,32 --prompt-tokens 1024 --until-ci 5%",
                  "A sweep over the batch, each point until its latency is known to 5 %");
}

std::vector<BenchPoint> sweep_points(const RunArgs& args) {
  if (args.configured_batch > 0 && !std::ranges::count(args.batch, args.configured_batch)) {
    throw Error(ErrorCode::kUsage, fmt::format("--configured-batch {} is not one of --batch {}",
                                               args.configured_batch, format_integers(args.batch)));
  }
  const std::size_t count =
      args.batch.size() * args.prompt_tokens.size() * args.output_tokens.size();
  if (count > kMaxPoints) {
    throw Error(ErrorCode::kUsage,
                fmt::format("the lists give {} points, expected at most {}", count, kMaxPoints));
  }
  std::vector<BenchPoint> points;
  for (const std::int64_t batch : args.batch) {
    for (const std::int64_t prompt_tokens : args.prompt_tokens) {
      for (const std::int64_t output_tokens : args.output_tokens) {
        points.push_back({batch, prompt_tokens, output_tokens});
      }
    }
  }
  return points;
}

stats::StoppingRules stopping_rules(const RunArgs& args) {
  constexpr std::int64_t kMaxUntilCi = 1000;
  stats::StoppingRules rules;
  rules.min_samples = args.repeat;
  rules.max_samples = args.until_ci ? std::max(args.repeat, kMaxUntilCi) : args.repeat;
  rules.target_half_width_ratio = args.until_ci;
  rules.time_budget_s = args.max_time_s;
  return rules;
}

std::int64_t context_of(const BenchPoint& point) {
  return point.prompt_tokens + point.output_tokens - 1;
}

RunPlan plan_run(const RunArgs& args, const model::BoundModel& model,
                 const engine::EngineOptions& base) {
  RunPlan plan;
  plan.points = sweep_points(args);
  plan.skip_reasons.resize(plan.points.size());
  const std::int64_t limit = context_limit(args, model.config);
  std::vector<std::size_t> left;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    const BenchPoint& point = plan.points[i];
    if (context_of(point) <= limit) {
      left.push_back(i);
      continue;
    }
    plan.skip_reasons[i] =
        fmt::format("skipped: {} prompt and {} output tokens exceed the context of {}",
                    point.prompt_tokens, point.output_tokens, limit);
  }
  if (left.empty()) {
    const BenchPoint& point = plan.points.front();
    throw Error(ErrorCode::kUsage,
                fmt::format("{} prompt tokens and {} output tokens exceed the context of {} in "
                            "every point; use fewer --prompt-tokens or --output-tokens",
                            point.prompt_tokens, point.output_tokens, limit));
  }
  const auto smallest = *std::min_element(left.begin(), left.end(), [&](auto a, auto b) {
    return plan.points[a].batch * context_of(plan.points[a]) <
           plan.points[b].batch * context_of(plan.points[b]);
  });
  check_fits(model,
             options_for(base, plan.points[smallest].batch, context_of(plan.points[smallest])));
  while (!left.empty()) {
    // One engine holds max_sequences x max_context: it grows as long as that fits.
    EngineGroup group;
    std::int64_t batch = 0;
    std::int64_t context = 0;
    std::vector<std::size_t> others;
    for (const std::size_t i : left) {
      const BenchPoint& point = plan.points[i];
      const std::int64_t own = args.context > 0 ? args.context : context_of(point);
      const engine::EngineOptions alone = options_for(base, point.batch, own);
      const engine::EngineOptions both =
          options_for(base, std::max(batch, point.batch), std::max(context, own));
      if (!fits_memory(model, alone)) {
        plan.skip_reasons[i] = memory_reason(model, alone);
      } else if (fits_memory(model, both)) {
        batch = both.max_sequences;
        context = both.max_context;
        group.points.push_back(i);
      } else {
        others.push_back(i);
      }
    }
    group.options = options_for(base, batch, context);
    if (!group.points.empty()) plan.groups.push_back(group);
    left = std::move(others);
  }
  return plan;
}

}  // namespace moe::app
