#include "lib/planner/sensitivity.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/check.hpp"

namespace moe::planner {

std::vector<SensitivityRow> tornado(double base, const std::vector<SensitivityInput>& inputs) {
  MOE_CHECK(base > 0.0);
  std::vector<SensitivityRow> rows;
  for (const SensitivityInput& input : inputs) {
    SensitivityRow row{input.name,      input.low, input.high, input.at_low(),
                       input.at_high(), 0.0,       false};
    for (const std::optional<double>& result : {row.low_result, row.high_result}) {
      row.breaks = row.breaks || !result;
      if (result) row.swing_ratio = std::max(row.swing_ratio, std::abs(*result - base) / base);
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const SensitivityRow& a, const SensitivityRow& b) {
    if (a.breaks != b.breaks) return a.breaks;
    return a.swing_ratio > b.swing_ratio;
  });
  return rows;
}

}  // namespace moe::planner
