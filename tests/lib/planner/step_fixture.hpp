#pragma once

// The data files of moe-plan, read once for the tests of step times.

#include <map>
#include <string>

#include "lib/model/architecture.hpp"
#include "lib/planner/end_to_end.hpp"
#include "lib/planner/hardware.hpp"
#include "lib/planner/step_time.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::test {

inline std::string scenario(const std::string& path) {
  return read_file(std::string(MOE_SOURCE_DIR) + "/scenarios/" + path);
}

inline const planner::HardwareFile& hardware() {
  static const planner::HardwareFile file =
      planner::parse_hardware(scenario("hardware.json"), "hardware.json");
  return file;
}

inline const planner::MeasuredTimes& measured_times() {
  static const planner::MeasuredTimes times = {
      planner::parse_kernel_table(scenario("measured/kernels.json"), "kernels.json"),
      planner::parse_collective_table(scenario("measured/collectives.json"), "collectives.json"),
      planner::parse_step_constants(scenario("measured/step_constants.json"),
                                    "step_constants.json")};
  return times;
}

inline const model::Architecture& architecture(const std::string& name) {
  static std::map<std::string, model::Architecture> known;
  const auto it = known.find(name);
  if (it != known.end()) return it->second;
  return known.emplace(name, model::parse_architecture(scenario("models/" + name + ".json"), name))
      .first->second;
}

inline planner::StepModel step_model(const std::string& name, const std::string& gpu,
                                     const planner::Layout& layout,
                                     const planner::StepSetup& setup = {}) {
  return {architecture(name), layout, planner::find_accelerator(hardware(), gpu), setup,
          measured_times()};
}

}  // namespace moe::test
