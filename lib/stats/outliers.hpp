#pragma once

// Samples far from the rest: modified z-score on the median absolute deviation (Iglewicz and
// Hoaglin, How to Detect and Handle Outliers, 1993). Outliers are reported, never removed.

#include <cstdint>
#include <span>
#include <vector>

namespace moe::stats {

// Ten standard deviations of a normal distribution with the same MAD. Latencies are skewed, so the
// textbook's 3.5 would flag ordinary tails.
inline constexpr double kOutlierThreshold = 10.0;

struct Outliers {
  std::vector<std::int64_t> indices;  // into the samples, ascending
  std::int64_t num_low = 0;
  std::int64_t num_high = 0;
  bool first_is_outlier = false;  // the first sample is one: warm-up was too short
};

// z = (x - median) / (1.4826 MAD); where more than half of the samples are equal (MAD is zero) the
// mean absolute deviation takes its place: z = (x - median) / (1.2533 mean |x - median|).
[[nodiscard]] std::vector<double> modified_z_scores(std::span<const double> samples);

[[nodiscard]] Outliers find_outliers(std::span<const double> samples,
                                     double threshold = kOutlierThreshold);

}  // namespace moe::stats
