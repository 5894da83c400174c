#pragma once

// Inputs of verify and calibrate: rules for measured rows, and the models that rows name.

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "lib/model/architecture.hpp"
#include "lib/planner/end_to_end.hpp"
#include "lib/planner/step_time.hpp"

namespace moe::app {

// The folder, or Error(kInput) saying what to do.
[[nodiscard]] std::filesystem::path require_scenarios(const std::string& option);

// scenarios/measured with the constants of another file when `constants` is not empty.
[[nodiscard]] planner::MeasuredTimes load_measured_times(const std::filesystem::path& scenarios,
                                                         const std::string& constants);
[[nodiscard]] planner::RowRules load_row_rules(const std::filesystem::path& scenarios);

// A config with weights as `format` says: "": as the checkpoint has them; "nvfp4",
// "int4-experts": the parts that such checkpoints quantise; else parse_weight_format().
[[nodiscard]] model::Architecture load_architecture(const std::filesystem::path& config,
                                                    const std::string& format);

// Models of measured rows: "deepseek-ai/DeepSeek-V3" in fp4 -> scenarios/models/DeepSeek-V3.json
// with NVFP4 weights. Each is read once.
class RowArchitectures {
 public:
  explicit RowArchitectures(std::filesystem::path scenarios) : scenarios_(std::move(scenarios)) {}
  // Null when there is no config for the model.
  [[nodiscard]] const model::Architecture* find(const std::string& model,
                                                const std::string& precision);

 private:
  std::filesystem::path scenarios_;
  std::map<std::string, model::Architecture> architectures_;
};

}  // namespace moe::app
