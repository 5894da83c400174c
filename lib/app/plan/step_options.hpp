#pragma once

// Options and inputs that predict and sweep share: the workload, the engine, the cache, routing
// skew, links, and reports that correct the model.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/app/cli.hpp"
#include "lib/app/report_session.hpp"
#include "lib/planner/fit.hpp"
#include "lib/planner/serving.hpp"
#include "lib/planner/step_time.hpp"

namespace moe::app {

struct StepArgs {
  std::string model;
  std::string weights;
  std::string engine = "vllm";
  std::string kv_dtype = "auto";
  double input_tokens = 1024.0;
  double output_tokens = 1024.0;
  double cached_tokens = 0.0;
  double draft_tokens = 0.0;
  double accepted_per_step = 1.0;
  double memory_utilization = 0.9;
  double scale_out_gbs = 0.0;  // 0: the assumed default
  double hidden_all_to_all = 0.0;
  std::string popularity;
  double zipf = 0.0;
  double rank_load = 0.0;
  std::string hardware;
  std::string scenarios;
  std::string constants;
};

void add_model_options(Options& options, StepArgs& args);
void add_workload_options(Options& options, StepArgs& args);
void add_skew_options(Options& options, StepArgs& args);
void add_data_options(Options& options, StepArgs& args);

// Throws Error(kUsage), Error(kInput). `num_experts` sizes --zipf.
[[nodiscard]] planner::StepSetup resolve_setup(const StepArgs& args,
                                               const model::Architecture& architecture);
[[nodiscard]] planner::RequestShape resolve_shape(const StepArgs& args);
[[nodiscard]] planner::FitOptions resolve_fit(const StepArgs& args, const planner::StepSetup& setup,
                                              const planner::RequestShape& shape);

// Expert popularity from a file: a JSON array of numbers, or a report of moe-skew inspect or
// moe-bench run (tool_reports.hpp).
[[nodiscard]] std::vector<double> read_popularity(const std::filesystem::path& path);

// The settings, as a report records them.
void record_settings(const StepArgs& args, report::Report& report);

// Measured over predicted from the latency table of moe-bench reports: geometric means over their
// points, of a model that stands for the measured deployment.
struct Calibration {
  double decode = 1.0;
  double prefill = 1.0;
  std::int64_t num_points = 0;
};
[[nodiscard]] Calibration calibrate_from_reports(const std::vector<std::string>& paths,
                                                 const planner::StepModel& model);

}  // namespace moe::app
