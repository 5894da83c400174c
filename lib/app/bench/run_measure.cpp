#include "lib/app/bench/run_measure.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

ModelFacts model_facts(const model::ModelConfig& config, const engine::EngineOptions& options) {
  ModelFacts facts;
  facts.top_k = options.top_k_override > 0 ? options.top_k_override : config.moe.top_k;
  for (const model::LayerConfig& layer : config.layers) {
    facts.num_experts.push_back(layer.is_moe ? config.moe.num_experts : 0);
  }
  return facts;
}

// The product that does most of the work.
engine::PeakCase main_product(const model::BoundModel& model,
                              const engine::EngineOptions& options) {
  engine::PeakCase of = {options.isa, main_weight_format(model), options.activations};
  // Weights that the level does not multiply with bf16 activations are multiplied with f32 ones.
  if (!engine::can_multiply(of)) of.activations = kernels::ActivationFormat::kF32;
  return of;
}

class GroupRunner {
 public:
  // `sampler` is null without limits.
  GroupRunner(const RunArgs& args, engine::Engine& engine, const PromptSource& prompts,
              const RunTools& tools, engine::CoreWatch& watch, engine::RooflineSampler* sampler)
      : args_(args), engine_(engine), prompts_(prompts), tools_(tools), sampler_(sampler) {
    options_.sampling.temperature = args.temperature;
    options_.sampling.seed = static_cast<std::uint64_t>(args.seed);
    options_.core_watch = &watch;
  }

  void run(PointOutcome& outcome) {
    const BenchPoint& point = outcome.point;
    const Batch batch = make_batch(point, prompts_);
    outcome.has_identical_prompts = batch.has_identical;
    outcome.memory = engine_.memory();
    warm_up(batch);
    const stats::StoppingRules rules = stopping_rules(args_);
    std::vector<double> latencies_s;
    const double begin_s = tools_.clock->now_s();
    tools_.progress->begin(fmt::format("batch {}, prompt {}, output {}", point.batch,
                                       point.prompt_tokens, point.output_tokens),
                           rules.max_samples, "repetitions");
    sample_limits(outcome);
    while (!tools_.interrupt->requested()) {
      engine::RunBatchResult result = measure_once(point, batch);
      if (result.is_partial) break;
      latencies_s.push_back(result.total_s);
      outcome.repetitions.push_back(std::move(result));
      sample_limits(outcome);
      tools_.progress->update(static_cast<std::int64_t>(latencies_s.size()));
      outcome.stop = stats::decide_stop(rules, latencies_s, tools_.clock->now_s() - begin_s);
      if (outcome.stop.stop()) break;
    }
    tools_.progress->end();
    if (outcome.repetitions.empty()) {
      outcome.reason = "not run: interrupted";
      return;
    }
    outcome.status = PointStatus::kMeasured;
    outcome.reason = tools_.interrupt->requested()
                         ? fmt::format("interrupted after {} repetitions", latencies_s.size())
                         : stats::describe(rules, outcome.stop);
    outcome.output_hash = output_hash(outcome.repetitions.front().requests);
  }

 private:
  // The shapes that will be measured, a few steps of each, with the same prompts.
  void warm_up(const Batch& batch) {
    std::vector<engine::BatchRequest> requests = batch.requests;
    for (engine::BatchRequest& request : requests) {
      request.output_tokens = std::min<std::int64_t>(request.output_tokens, 4);
    }
    for (std::int64_t i = 0; i < args_.warmup && !tools_.interrupt->requested(); ++i) {
      (void)engine::run_batch(engine_, requests, options_, *tools_.clock, *tools_.interrupt);
    }
  }

  void sample_limits(PointOutcome& outcome) {
    if (sampler_ != nullptr) outcome.limits.push_back(sampler_->sample());
  }

  engine::RunBatchResult measure_once(const BenchPoint& point, const Batch& batch) {
    if (tools_.recorder != nullptr) {
      tools_.recorder->begin_repetition(point);
      engine_.set_routing_observer(tools_.recorder);
    }
    engine::RunBatchResult result =
        engine::run_batch(engine_, batch.requests, options_, *tools_.clock, *tools_.interrupt);
    if (tools_.recorder != nullptr) {
      engine_.set_routing_observer(nullptr);
      tools_.recorder->end_repetition();
    }
    return result;
  }

  const RunArgs& args_;
  engine::Engine& engine_;
  const PromptSource& prompts_;
  RunTools tools_;
  engine::RooflineSampler* sampler_ = nullptr;
  engine::RunBatchOptions options_;
};

// nullopt when it was interrupted: the points then stay as they are, not run.
std::optional<engine::Engine> load_engine(const model::BoundModel& model,
                                          const engine::EngineOptions& options,
                                          const RunTools& tools) {
  try {
    return engine::Engine::load(model, options, *tools.progress, *tools.interrupt);
  } catch (const Error&) {
    if (!tools.interrupt->requested()) throw;
    return std::nullopt;
  }
}

void run_group(const RunArgs& args, const EngineGroup& group, const model::BoundModel& model,
               const PromptSource& prompts, const RunTools& tools, engine::CoreWatch& watch,
               RunOutcome& outcome) {
  LoadOutcome load;
  const double begin_s = tools.clock->now_s();
  std::optional<engine::Engine> loaded = load_engine(model, group.options, tools);
  if (!loaded) return;
  engine::Engine& engine = *loaded;
  load.load_s = tools.clock->now_s() - begin_s;
  load.memory = engine.memory();
  load.placement = engine.placement();
  if (tools.interrupt->requested()) return;
  engine::WarmUpOptions warm_up;
  warm_up.seed = static_cast<std::uint64_t>(args.seed);
  warm_up.max_s = 10.0;
  tools.progress->begin("warm-up", 0, "tokens");
  load.warm_up = engine::warm_up_experts(engine, warm_up, *tools.clock, *tools.interrupt);
  tools.progress->end();
  watch.calibrate(engine.threads());
  std::optional<engine::RooflineSampler> sampler;
  if (!args.has_no_limits) {
    sampler.emplace(engine.threads(), engine.packed_weights(), main_product(model, group.options),
                    watch, *tools.clock);
    load.peak_name = sampler->peak_name();
  }
  outcome.loads.push_back(std::move(load));
  GroupRunner runner(args, engine, prompts, tools, watch, sampler ? &*sampler : nullptr);
  for (const std::size_t i : group.points) {
    PointOutcome& point = outcome.points[i];
    if (tools.interrupt->requested()) break;
    try {
      runner.run(point);
    } catch (const std::bad_alloc&) {
      point.status = PointStatus::kFailed;
      point.reason = "failed: out of memory";
    }
  }
  // Pages of the KV cache come when they are first written.
  const auto [keys, values] = engine.kv_cache();
  outcome.loads.back().mappings =
      sysinfo::read_mapping_memory(std::array{engine.packed_weights(), keys, values});
}

}  // namespace

Batch make_batch(const BenchPoint& point, const PromptSource& source) {
  Batch batch;
  for (std::int64_t i = 0; i < point.batch; ++i) {
    batch.prompts.push_back(source.prompt(i, point.prompt_tokens));
  }
  for (const std::vector<std::int32_t>& prompt : batch.prompts) {
    batch.requests.push_back({prompt, point.output_tokens});
  }
  std::vector<std::vector<std::int32_t>> sorted = batch.prompts;
  std::sort(sorted.begin(), sorted.end());
  batch.has_identical = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  return batch;
}

const char* point_status_name(PointStatus status) {
  switch (status) {
    case PointStatus::kMeasured:
      return "measured";
    case PointStatus::kSkipped:
      return "skipped";
    case PointStatus::kFailed:
      return "failed";
    case PointStatus::kNotRun:
      return "not run";
  }
  MOE_CHECK(false);
  return "";
}

RunOutcome run_points(const RunArgs& args, const RunPlan& plan, const model::BoundModel& model,
                      const PromptSource& prompts, const RunTools& tools) {
  RunOutcome outcome;
  engine::CoreWatch watch;
  for (std::size_t i = 0; i < plan.points.size(); ++i) {
    PointOutcome point;
    point.point = plan.points[i];
    point.reason = plan.skip_reasons[i];
    point.status = point.reason.empty() ? PointStatus::kNotRun : PointStatus::kSkipped;
    if (point.reason.empty()) point.reason = "not run: interrupted";
    outcome.points.push_back(std::move(point));
  }
  for (const EngineGroup& group : plan.groups) {
    if (tools.interrupt->requested()) break;
    run_group(args, group, model, prompts, tools, watch, outcome);
  }
  outcome.cores = watch.reference();
  // Only now is the widest reading of each core known, by which the samples are told apart.
  for (const EngineGroup& group : plan.groups) {
    const ModelFacts facts = model_facts(model.config, group.options);
    for (const std::size_t i : group.points) {
      PointOutcome& point = outcome.points[i];
      if (point.status != PointStatus::kMeasured) continue;
      point.figures = compute_figures(point.point, point.repetitions, facts, true,
                                      {point.limits, &outcome.cores});
    }
  }
  outcome.is_interrupted = tools.interrupt->requested();
  return outcome;
}

}  // namespace moe::app
