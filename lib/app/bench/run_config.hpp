#pragma once

// What moe-bench run was asked to do, and how its points are laid over engines.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/bench/point_figures.hpp"
#include "lib/app/cli.hpp"
#include "lib/app/output.hpp"
#include "lib/app/report_session.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/stats/stopping.hpp"

namespace moe::app {

// As given on the command line.
struct RunArgs {
  std::string checkpoint;
  std::string scenarios;
  std::string prompts = "auto";
  std::vector<std::int64_t> batch = {1, 4, 16};
  std::vector<std::int64_t> prompt_tokens = {128, 512};
  std::vector<std::int64_t> output_tokens = {64};
  std::int64_t seed = 0;
  double temperature = 0.0;
  std::string dtype = "auto";  // auto, f32, f16, bf16
  std::int64_t context = 0;    // tokens of KV cache per sequence; 0: what the longest point needs
  std::int64_t repeat = 8;
  std::optional<double> until_ci;
  double max_time_s = 10.0;  // per point
  std::int64_t warmup = 1;   // repetitions
  bool has_no_limits = false;
  std::int64_t configured_batch = 0;  // the batch in use, judged by the sweep; 0: none
  double target_ttft_s = 0.0;         // medians that a batch must keep; 0: no target
  double target_itl_s = 0.0;
  bool keeps_raw_samples = false;
  std::string dump_routing;
  bool compares_stored = false;  // quantised weights against those of the checkpoint
  EngineArgs engine;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

void add_run_options(Options& options, RunArgs& args);

// The product of the lists, output tokens innermost and batch outermost.
[[nodiscard]] std::vector<BenchPoint> sweep_points(const RunArgs& args);

[[nodiscard]] stats::StoppingRules stopping_rules(const RunArgs& args);

// Points that one loaded engine can serve.
struct EngineGroup {
  engine::EngineOptions options;
  std::vector<std::size_t> points;
};

struct RunPlan {
  std::vector<BenchPoint> points;
  std::vector<std::string> skip_reasons;  // one a point; empty: it will run
  std::vector<EngineGroup> groups;
};

// Longest sequence of a point: the last token is never fed back.
[[nodiscard]] std::int64_t context_of(const BenchPoint& point);

// Skips points that exceed the context or the memory; the others share as few engines as the memory
// allows. Throws Error(kUsage) when no point fits the context, and what check_fits() throws when
// not even the smallest point fits the memory.
[[nodiscard]] RunPlan plan_run(const RunArgs& args, const model::BoundModel& model,
                               const engine::EngineOptions& base);

}  // namespace moe::app
