#pragma once

// What the commands of moe-plan read from their command lines: a model with what a report says of
// it, the hardware file, measured times, lists, layouts.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/hardware.hpp"
#include "lib/planner/layout.hpp"
#include "lib/planner/step_time.hpp"

namespace moe::app {

// A file that is there; false for everything else.
[[nodiscard]] bool is_file(const std::filesystem::path& path);

struct PlanModel {
  model::Architecture architecture;
  std::string name;  // "Mixtral-8x7B-v0.1"
  std::filesystem::path path;
  std::string content_hash;  // of the config's bytes
  // Where weight bytes come from: "config.json by formula", ...
  std::string byte_source;
};

// A config.json, a directory that holds one, or a name in scenarios/models. `weight_format`
// replaces the checkpoint's; empty keeps it. A hf_quant_config.json beside the config is read.
[[nodiscard]] PlanModel load_plan_model(const std::string& path_or_name,
                                        const std::filesystem::path& scenarios,
                                        const std::string& weight_format);

struct PlanHardware {
  planner::HardwareFile file;
  std::string content_hash;
};

// scenarios/hardware.json, entries of `extra` (empty: none) over it.
[[nodiscard]] PlanHardware load_plan_hardware(const std::filesystem::path& scenarios,
                                              const std::string& extra);

// scenarios/measured: kernels.json, collectives.json, step_constants.json.
[[nodiscard]] planner::MeasuredTimes load_measured_times(const std::filesystem::path& scenarios);

// A small file as text. Throws Error(kInput).
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

// "fnv1a64:0123456789abcdef".
[[nodiscard]] std::string text_hash(std::string_view text);

// "a,b,c" -> {"a", "b", "c"}; empty parts are left out.
[[nodiscard]] std::vector<std::string> split_list(const std::string& text);

// "TP8 EP8", "tp=8,dp=4,ep=32". Throws Error(kUsage).
[[nodiscard]] planner::Layout parse_layout(const std::string& text);

}  // namespace moe::app
