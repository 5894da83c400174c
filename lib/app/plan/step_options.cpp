#include "lib/app/plan/step_options.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/tool_reports.hpp"
#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/json/read.hpp"
#include "lib/report/json_io.hpp"

namespace moe::app {
namespace {

// Index of a column by name in a table of a report file.
std::optional<std::size_t> column_of(const json::Json& table, const std::string& name) {
  if (!table.is_object() || !table.contains("columns") || !table["columns"].is_array()) {
    return std::nullopt;
  }
  std::size_t index = 0;
  for (const json::Json& column : table["columns"]) {
    if (column.is_object() && column.contains("name") && column["name"] == name) return index;
    ++index;
  }
  return std::nullopt;
}

std::optional<double> cell_number(const json::Json& row, std::size_t column) {
  if (!row.is_array() || column >= row.size() || !row[column].is_number()) return std::nullopt;
  return row[column].get<double>();
}

// One point of moe-bench's latency table.
struct BenchPoint {
  double batch = 0.0;
  double prompt_tokens = 0.0;
  double output_tokens = 0.0;
  double ttft_s = 0.0;
  double tpot_s = 0.0;
};

std::vector<BenchPoint> bench_points(const std::string& path) {
  const json::Json report = json::parse_file(path);
  std::vector<BenchPoint> points;
  if (report.is_object() && report.contains("tables") && report["tables"].is_object() &&
      report["tables"].contains("latency")) {
    const json::Json& table = report["tables"]["latency"];
    const auto batch = column_of(table, "batch");
    const auto prompt = column_of(table, "prompt_tokens");
    const auto output = column_of(table, "output_tokens");
    const auto ttft = column_of(table, "ttft_s");
    const auto tpot = column_of(table, "tpot_s");
    if (batch && prompt && output && ttft && tpot && table.contains("rows")) {
      for (const json::Json& row : table["rows"]) {
        const BenchPoint point{
            cell_number(row, *batch).value_or(0.0), cell_number(row, *prompt).value_or(0.0),
            cell_number(row, *output).value_or(0.0), cell_number(row, *ttft).value_or(0.0),
            cell_number(row, *tpot).value_or(0.0)};
        if (point.batch >= 1.0 && point.prompt_tokens >= 1.0 && point.ttft_s > 0.0 &&
            point.tpot_s > 0.0) {
          points.push_back(point);
        }
      }
    }
  }
  if (points.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a moe-bench report with measured rows in its latency "
                            "table (batch, prompt_tokens, output_tokens, ttft_s, tpot_s)",
                            path));
  }
  return points;
}

}  // namespace

void add_model_options(Options& options, StepArgs& args) {
  options.positional("MODEL", args.model,
                     "config.json, a directory with one, or a name in scenarios/models");
  options.group("Deployment");
  options.text("--weights", "FORMAT", args.weights,
               "Weight format instead of the checkpoint's (bf16, fp8-block128, nvfp4, ...)");
  options.text("--engine", "NAME", args.engine, "vllm, sglang, trtllm or llama.cpp");
  options.text("--kv-dtype", "TYPE", args.kv_dtype, "Cache dtype (auto, bf16, fp8, ...)");
  options.real("--memory-utilization", args.memory_utilization, {0.05, 1.0},
               "Share of the visible memory that the engine may use");
  options.real("--scale-out", args.scale_out_gbs, {0.0, 1e5},
               "GB/s per GPU and direction between nodes; 0 assumes 50");
}

void add_workload_options(Options& options, StepArgs& args) {
  options.group("Workload");
  options.real("--input-tokens", args.input_tokens, {1.0, 1e8}, "Mean prompt length");
  options.real("--output-tokens", args.output_tokens, {1.0, 1e8}, "Mean output length");
  options.real("--cached-tokens", args.cached_tokens, {0.0, 1e8},
               "Part of a prompt that the prefix cache already holds");
  options.real("--draft-tokens", args.draft_tokens, {0.0, 64.0},
               "Speculative decoding: tokens drafted per step");
  options.real("--accepted-per-step", args.accepted_per_step, {1.0, 64.0},
               "Tokens gained per step with drafts, measured; 1 takes the fitted mean");
  options.real("--hidden-all-to-all", args.hidden_all_to_all, {0.0, 1.0},
               "Share of dispatch and combine that the engine hides behind computation");
}

void add_skew_options(Options& options, StepArgs& args) {
  options.group("Routing");
  options.text("--popularity", "FILE", args.popularity,
               "Expert popularity: a moe-skew or moe-bench report, or a JSON array of numbers");
  options.real("--zipf", args.zipf, {0.0, 10.0},
               "Popularity by a power law with this exponent instead; 0 is uniform");
  options.real("--rank-load", args.rank_load, {0.0, 1e4},
               "Fullest rank's load over the mean, as replayed for the placement; 0 derives it");
}

void add_data_options(Options& options, StepArgs& args) {
  options.group("Data");
  options.text("--hardware", "FILE", args.hardware, "Own entries beside hardware.json");
  options.text("--constants", "FILE", args.constants,
               "Step constants [default: measured/step_constants.json of the scenarios]");
  options.text("--scenarios", "DIR", args.scenarios, "Folder of the inputs that come with moekit");
}

std::vector<double> read_popularity(const std::filesystem::path& path) {
  const json::Json document = json::parse_file(path.string());
  if (document.is_array()) {
    std::vector<double> result;
    for (const json::Json& value : document) {
      if (!value.is_number() || value.get<double>() < 0.0) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: expected an array of numbers >= 0", path.string()));
      }
      result.push_back(value.get<double>());
    }
    return result;
  }
  return popularity_from_report(report::read_report(path.string()), path.string());
}

planner::StepSetup resolve_setup(const StepArgs& args, const model::Architecture& architecture) {
  planner::StepSetup setup;
  setup.engine = planner::parse_engine(args.engine);
  setup.kv.dtype = planner::parse_kv_dtype(args.kv_dtype);
  if (args.scale_out_gbs > 0.0) {
    setup.network.bytes_per_s = args.scale_out_gbs * 1e9;
    setup.network.is_assumed = false;
  }
  setup.draft_tokens = args.draft_tokens;
  setup.accepted_per_step = args.accepted_per_step;
  setup.hidden_all_to_all = args.hidden_all_to_all;
  const std::int64_t num_experts = num_experts_of(architecture);
  if (!args.popularity.empty() && args.zipf > 0.0) {
    throw Error(ErrorCode::kUsage, "--popularity and --zipf both give the popularity; use one");
  }
  if (!args.popularity.empty()) {
    setup.skew.popularity = read_popularity(args.popularity);
    require_popularity_of(architecture, setup.skew.popularity, args.popularity);
  } else if (args.zipf > 0.0) {
    setup.skew.popularity = planner::power_law_popularity(num_experts, args.zipf);
  }
  setup.skew.rank_max_over_mean = args.rank_load;
  return setup;
}

planner::RequestShape resolve_shape(const StepArgs& args) {
  if (args.cached_tokens >= args.input_tokens) {
    throw Error(ErrorCode::kUsage, fmt::format("--cached-tokens {} must be below --input-tokens {}",
                                               args.cached_tokens, args.input_tokens));
  }
  planner::RequestShape shape;
  shape.input_tokens = args.input_tokens;
  shape.output_tokens = args.output_tokens;
  shape.cached_input_tokens = args.cached_tokens;
  return shape;
}

planner::FitOptions resolve_fit(const StepArgs& args, const planner::StepSetup& setup,
                                const planner::RequestShape& shape) {
  planner::FitOptions options;
  options.utilization = args.memory_utilization;
  options.kv = setup.kv;
  options.overhead.engine = setup.engine;
  options.request_tokens =
      static_cast<std::int64_t>(std::ceil(shape.input_tokens + shape.output_tokens));
  return options;
}

void record_settings(const StepArgs& args, report::Report& report) {
  report.settings["engine"] = args.engine;
  report.settings["weights"] = args.weights.empty() ? "as the checkpoint" : args.weights;
  report.settings["kv_dtype"] = args.kv_dtype;
  report.settings["memory_utilization"] = args.memory_utilization;
  report.settings["input_tokens"] = args.input_tokens;
  report.settings["output_tokens"] = args.output_tokens;
  report.settings["cached_tokens"] = args.cached_tokens;
  report.settings["draft_tokens"] = args.draft_tokens;
  report.settings["hidden_all_to_all"] = args.hidden_all_to_all;
  report.settings["routing"] = !args.popularity.empty() ? "popularity of " + args.popularity
                               : args.zipf > 0.0 ? fmt::format("power law, exponent {}", args.zipf)
                                                 : "uniform";
}

Calibration calibrate_from_reports(const std::vector<std::string>& paths,
                                   const planner::StepModel& model) {
  Calibration result;
  double log_decode = 0.0;
  double log_prefill = 0.0;
  for (const std::string& path : paths) {
    for (const BenchPoint& point : bench_points(path)) {
      const double batch = point.batch / model.layout().dp;
      const double decode =
          model.decode(batch, point.prompt_tokens + point.output_tokens / 2.0).value_s;
      // All prompts of a batch are taken in by one pass.
      double prefill = 0.0;
      const planner::StepTime one = model.prefill(point.prompt_tokens, 1.0 / std::max(1.0, batch));
      prefill = one.value_s * std::max(1.0, batch);
      log_decode += std::log(point.tpot_s / decode);
      log_prefill += std::log(point.ttft_s / prefill);
      ++result.num_points;
    }
  }
  if (result.num_points > 0) {
    const auto n = static_cast<double>(result.num_points);
    result.decode = std::exp(log_decode / n);
    result.prefill = std::exp(log_prefill / n);
  }
  return result;
}

}  // namespace moe::app
