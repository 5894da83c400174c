#include "lib/app/bench/run_compare.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "lib/app/table_builder.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kMinRounds = 3;
constexpr std::int64_t kMaxRounds = 15;

using Measure = std::function<double()>;  // seconds of one batch; negative: interrupted

// Ratios of the second's time to the first's, one a round; the order within a round alternates.
std::vector<double> time_ratios(std::int64_t rounds, const Measure& first, const Measure& second) {
  std::vector<double> ratios;
  for (std::int64_t round = -1; round < rounds; ++round) {  // the first round warms up
    const bool is_swapped = round % 2 != 0;
    const double a = is_swapped ? second() : first();
    const double b = is_swapped ? first() : second();
    if (a < 0.0 || b < 0.0) return {};
    if (round >= 0) ratios.push_back(is_swapped ? a / b : b / a);
  }
  return ratios;
}

Measure batch_timer(engine::Engine& engine, const Batch& batch, const RunTools& tools) {
  return [&engine, &batch, &tools] {
    const engine::RunBatchResult result =
        engine::run_batch(engine, batch.requests, {}, *tools.clock, *tools.interrupt);
    return result.is_partial ? -1.0 : result.total_s;
  };
}

std::int64_t num_rounds(const RunArgs& args) {
  return std::clamp(args.repeat, kMinRounds, kMaxRounds);
}

// The first point that some engine can run; null: none.
const BenchPoint* first_point(const RunPlan& plan) {
  if (plan.groups.empty() || plan.groups.front().points.empty()) return nullptr;
  return &plan.points[plan.groups.front().points.front()];
}

void add_ratio(const char* name, const BenchPoint& point, const std::vector<double>& ratios,
               const std::string& what, report::Report& report) {
  const std::string how = fmt::format(
      "{}: median over {} rounds by turns, batch {}, prompt {}, output {} tokens, prefill and "
      "decode together",
      what, ratios.size(), point.batch, point.prompt_tokens, point.output_tokens);
  report.metrics[name] =
      ratios.empty() ? absent_metric(report::MetricKind::kMeasured, "1", "interrupted", how)
                     : value_metric(report::MetricKind::kMeasured, "1", stats::median(ratios), how);
}

}  // namespace

void compare_moe_paths(const RunArgs& args, const RunPlan& plan, const model::BoundModel& model,
                       const PromptSource& prompts, const RunTools& tools, report::Report& report) {
  report.metrics["model_experts_count"] =
      value_metric(report::MetricKind::kMeasured, "1", model.config.moe.num_experts,
                   "routed experts of a layer");
  const BenchPoint* point = first_point(plan);
  if (point == nullptr || !model.config.is_moe() || tools.interrupt->requested()) return;
  engine::EngineOptions options = plan.groups.front().options;
  options.moe_path = engine::MoePath::kUnfused;  // has the buffers of both
  engine::Engine engine = engine::Engine::load(model, options, *tools.progress, *tools.interrupt);
  const Batch batch = make_batch(*point, prompts);
  const Measure run = batch_timer(engine, batch, tools);
  const auto on_path = [&](engine::MoePath path) -> Measure {
    return [&engine, &run, path] {
      engine.set_moe_path(path);
      return run();
    };
  };
  add_ratio("fused_moe_speedup_ratio", *point,
            time_ratios(num_rounds(args), on_path(engine::MoePath::kFused),
                        on_path(engine::MoePath::kUnfused)),
            "time of experts one after another with the activation apart / of the grouped, fused "
            "path",
            report);
}

void compare_with_stored_weights(const RunArgs& args, const RunPlan& plan,
                                 const model::BoundModel& model, const model::BoundModel& stored,
                                 const PromptSource& prompts, const RunTools& tools,
                                 report::Report& report) {
  const BenchPoint* point = first_point(plan);
  if (point == nullptr || tools.interrupt->requested()) return;
  const engine::EngineOptions& options = plan.groups.front().options;
  engine::Engine first = engine::Engine::load(model, options, *tools.progress, *tools.interrupt);
  engine::Engine second = engine::Engine::load(stored, options, *tools.progress, *tools.interrupt);
  const Batch batch = make_batch(*point, prompts);
  add_ratio("quant_speedup_ratio", *point,
            time_ratios(num_rounds(args), batch_timer(first, batch, tools),
                        batch_timer(second, batch, tools)),
            "time with the weights as stored / quantised", report);
}

}  // namespace moe::app
