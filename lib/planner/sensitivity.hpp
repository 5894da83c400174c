#pragma once

// Which assumption moves the result: each input is set to its low and to its high end, the others
// stay, and the plan is computed again.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace moe::planner {

struct SensitivityInput {
  std::string name;  // "output tokens"
  std::string low;   // "-20 %"
  std::string high;  // "+20 %"
  // The result with the input at its low or high end; nullopt: the plan does not work there.
  std::function<std::optional<double>()> at_low;
  std::function<std::optional<double>()> at_high;
};

struct SensitivityRow {
  std::string name;
  std::string low;
  std::string high;
  std::optional<double> low_result;
  std::optional<double> high_result;
  // Largest distance from the base over the base; infinite cases count as the largest of all.
  double swing_ratio = 0.0;
  bool breaks = false;  // the plan does not work at one end
};

// Widest swing first; inputs that break the plan before those that do not. base > 0.
[[nodiscard]] std::vector<SensitivityRow> tornado(double base,
                                                  const std::vector<SensitivityInput>& inputs);

}  // namespace moe::planner
