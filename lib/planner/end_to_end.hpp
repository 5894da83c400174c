#pragma once

// Operating points that were measured on whole deployments (TTFT and TPOT at a number of clients):
// reading them, the split into a part that is fitted and a part that judges, and how far the model
// is off on them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/planner/hardware.hpp"
#include "lib/planner/serving.hpp"

namespace moe::planner {

struct WorkerLayout {
  double num_workers = 1.0;
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  std::int32_t dp = 1;
  std::int32_t ep = 1;
};

struct OperatingPoint {
  std::string id;
  std::string gpu;     // id of hardware.json
  std::string engine;  // as the file says
  std::string engine_version;
  std::string model;      // "deepseek-ai/DeepSeek-V3"
  std::string precision;  // bf16, fp8, fp4, int4
  std::string date;       // YYYY-MM-DD or empty
  bool is_disaggregated = false;
  double input_tokens = 0.0;  // nominal
  double output_tokens = 0.0;
  double num_clients = 0.0;
  WorkerLayout decode;  // the only one unless disaggregated
  WorkerLayout prefill;
  double ttft_s = 0.0;
  double tpot_s = 0.0;
};

struct OperatingPoints {
  std::vector<OperatingPoint> points;
  // Lines that were read and left out, with the reason, most frequent first.
  std::vector<std::string> skipped;
  std::int64_t num_skipped = 0;
};

// CSV with a header line; columns are found by name (id, gpu, engine, engine_version, model,
// precision, mode, isl, osl, concurrency, tp, pp, dp, moe_tp, moe_ep, p_* and d_*, ttft_ms,
// tpot_ms, date, note). Rows with a note, and rows without what a prediction needs, are skipped.
// Throws Error(kInput) naming line and column for anything that is not such a table.
[[nodiscard]] OperatingPoints parse_operating_points(std::string_view csv,
                                                     const std::string& where);

// ---- the split ----

enum class Split : std::uint8_t {
  kPoints,       // a quarter of the operating points, repeats of one point together
  kDeployments,  // a quarter of the deployments (GPU, engine, model, precision, layout)
};
[[nodiscard]] std::string deployment_key(const OperatingPoint& point);
[[nodiscard]] std::string point_key(const OperatingPoint& point);
// By the FNV-1a hash of the key: divisible by 4.
[[nodiscard]] bool is_held_out(const OperatingPoint& point, Split split);

// ---- from a row to a model ----

// What rows do not state and is inferred (scenarios/measured/row_rules.json).
struct SpeculationRule {
  std::string engine;
  std::string engine_version;
  std::string date_from;  // inclusive, YYYY-MM-DD; empty: any date
  double draft_tokens = 0.0;
};
struct RowRules {
  double length_ratio = 1.0;  // mean over nominal length of prompts and outputs
  double memory_utilization = 0.9;
  std::vector<SpeculationRule> speculation;
  std::vector<std::string> assumptions;  // in words, for reports
};
[[nodiscard]] RowRules parse_row_rules(std::string_view json_text, const std::string& where);

// The architecture of a row's model with weights of its precision; null when it is not known.
using ArchitectureSource = std::function<const model::Architecture*(const OperatingPoint&)>;

// A row made ready: evaluating it again with other constants costs microseconds.
struct PreparedPoint {
  OperatingPoint measured;
  std::vector<StepModel> models;  // decode; prefill too when disaggregated
  RequestShape shape;
  double max_requests = 0.0;  // of the deployment, or of one decode worker
  double weight = 1.0;        // 1 / repeats

  [[nodiscard]] const TermKeys& keys() const { return models.front().keys(); }
  [[nodiscard]] ServingPoint predict() const;
};

struct PreparedPoints {
  std::vector<PreparedPoint> points;
  std::vector<std::string> skipped;
  std::int64_t num_skipped = 0;
};
[[nodiscard]] PreparedPoints prepare_points(const std::vector<OperatingPoint>& points,
                                            const HardwareFile& hardware,
                                            const ArchitectureSource& architectures,
                                            const MeasuredTimes& measured, const RowRules& rules);

// ---- errors ----

struct PointError {
  std::string id;
  std::string gpu;
  std::string engine;
  std::string model;
  std::string precision;
  bool is_disaggregated = false;
  bool is_held_out = false;
  double tpot_measured_s = 0.0;
  double tpot_predicted_s = 0.0;
  double ttft_measured_s = 0.0;
  double ttft_predicted_s = 0.0;
  [[nodiscard]] double tpot_error() const { return tpot_predicted_s / tpot_measured_s - 1.0; }
  [[nodiscard]] double ttft_error() const { return ttft_predicted_s / ttft_measured_s - 1.0; }
};
[[nodiscard]] std::vector<PointError> point_errors(const std::vector<PreparedPoint>& points,
                                                   Split split);

// Absolute relative errors of the rows that `select` takes.
[[nodiscard]] GroupError summarize(const std::vector<PointError>& errors,
                                   const std::function<bool(const PointError&)>& select);

}  // namespace moe::planner
