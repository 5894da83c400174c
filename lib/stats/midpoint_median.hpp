#pragma once

// The other median: of an even number of values the mean of the two in the middle. For errors and
// constants of fits, as the literature gives them; samples of a measurement are summarized by
// lib/stats/distribution.hpp, whose median is always a value that was seen.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lib/base/check.hpp"

namespace moe::stats {

[[nodiscard]] inline double midpoint_median(std::vector<double> values) {
  MOE_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2.0;
}

}  // namespace moe::stats
