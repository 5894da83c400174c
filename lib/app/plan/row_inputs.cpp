#include "lib/app/plan/row_inputs.hpp"

#include <system_error>

#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/scenarios_dir.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

// What published NVFP4 checkpoints leave in BF16: attention, routers, head.
constexpr const char* kNvfp4Config = R"({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
  "exclude_modules": ["lm_head", "*self_attn*", "*linear_attn*", "*.gate", "*shared_expert_gate*",
  "*embed*"]}})";
// What published INT4 checkpoints quantise: routed experts and nothing else.
constexpr const char* kInt4Config = R"({"quantization": {"quant_algo": "W4A16_AWQ",
  "group_size": 32, "exclude_modules": ["lm_head", "*self_attn*", "*linear_attn*", "*.gate",
  "*shared_expert*", "*layers.0.*", "*embed*"]}})";

}  // namespace

std::filesystem::path require_scenarios(const std::string& option) {
  std::filesystem::path directory = scenarios_dir(option);
  if (directory.empty()) {
    throw Error(ErrorCode::kInput,
                "the folder of the inputs that come with moekit was not found; name it with "
                "--scenarios");
  }
  return directory;
}

planner::MeasuredTimes load_measured_times(const std::filesystem::path& scenarios,
                                           const std::string& constants) {
  planner::MeasuredTimes measured = load_measured_times(scenarios);
  if (!constants.empty()) {
    measured.constants = planner::parse_step_constants(read_text(constants), constants);
  }
  return measured;
}

planner::RowRules load_row_rules(const std::filesystem::path& scenarios) {
  const std::filesystem::path path = scenarios / "measured" / "row_rules.json";
  return planner::parse_row_rules(read_text(path), path.string());
}

model::Architecture load_architecture(const std::filesystem::path& config,
                                      const std::string& format) {
  model::ArchitectureOptions options;
  if (format == "nvfp4") {
    options.quant_config_json = kNvfp4Config;
  } else if (format == "int4-experts") {
    options.quant_config_json = kInt4Config;
  } else {
    options.weight_format = format;
  }
  return model::parse_architecture(read_text(config), config.string(), options);
}

const model::Architecture* RowArchitectures::find(const std::string& model,
                                                  const std::string& precision) {
  const std::string key = model + "|" + precision;
  const auto known = architectures_.find(key);
  if (known != architectures_.end()) return &known->second;
  const std::string name = model.substr(model.rfind('/') + 1);
  if (name.empty() || name.find("..") != std::string::npos) return nullptr;
  const std::filesystem::path path = scenarios_ / "models" / (name + ".json");
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return nullptr;
  model::Architecture architecture = load_architecture(path, "");
  if (planner::precision_class(architecture.quant.expert) != precision) {
    // The published checkpoint has another precision: the row ran a converted one.
    if (precision == "fp4") {
      architecture = load_architecture(path, "nvfp4");
    } else if (precision == "fp8") {
      architecture = load_architecture(path, "fp8-block128");
    } else if (precision == "int4") {
      architecture = load_architecture(path, "int4-experts");
    } else if (precision == "bf16") {
      architecture = load_architecture(path, "bf16");
    } else {
      return nullptr;
    }
  }
  return &architectures_.emplace(key, std::move(architecture)).first->second;
}

}  // namespace moe::app
