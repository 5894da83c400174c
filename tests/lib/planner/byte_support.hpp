#pragma once

// Models of the project as architectures, for the byte tests.

#include <filesystem>
#include <string>

#include "lib/model/architecture.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::planner {

inline const std::filesystem::path kScenarios = std::filesystem::path(MOE_SOURCE_DIR) / "scenarios";

inline model::Architecture model_of(const std::string& name, const std::string& weights = {}) {
  const std::filesystem::path file = kScenarios / "models" / (name + ".json");
  model::ArchitectureOptions options;
  options.weight_format = weights;
  return model::parse_architecture(test::read_file(file), file.string(), options);
}

}  // namespace moe::planner
