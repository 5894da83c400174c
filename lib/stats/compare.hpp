#pragma once

// Two sets of samples of the same quantity: by how much they differ, and whether chance alone would
// do that.

#include <cstdint>
#include <optional>
#include <span>

namespace moe::stats {

// Below this many samples on a side a Mann-Whitney test can hardly reach significance; the same
// bound as Google Benchmark's compare tool.
inline constexpr std::int64_t kMinSamplesToCompare = 9;

struct Comparison {
  std::int64_t num_baseline = 0;
  std::int64_t num_candidate = 0;
  // median of the candidate / median of the baseline; absent when a side is empty or the baseline's
  // median is zero.
  std::optional<double> median_ratio;
  // Two-sided p of the Mann-Whitney test (Mann and Whitney 1947); absent when a side is empty.
  std::optional<double> p_value;
  bool is_exact = false;        // p from the exact distribution, else from the normal approximation
  bool enough_samples = false;  // both sides have kMinSamplesToCompare
};

// Exact distribution when there are no ties and both sides have at most 50 samples; otherwise the
// normal approximation with tie and continuity correction.
[[nodiscard]] Comparison compare(std::span<const double> baseline,
                                 std::span<const double> candidate);

}  // namespace moe::stats
