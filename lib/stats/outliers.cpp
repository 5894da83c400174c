#include "lib/stats/outliers.hpp"

#include <cmath>

#include "lib/base/check.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::stats {

std::vector<double> modified_z_scores(std::span<const double> samples) {
  // Ratios of the standard deviation of a normal distribution to its MAD and to its mean absolute
  // deviation (sqrt(pi / 2)).
  constexpr double kSigmaPerMad = 1.4826022185056018;
  constexpr double kSigmaPerMeanDeviation = 1.2533141373155003;
  std::vector<double> scores(samples.size(), 0.0);
  if (samples.empty()) return scores;
  const double center = median(samples);
  std::vector<double> deviations;
  deviations.reserve(samples.size());
  double sum = 0.0;
  for (const double value : samples) {
    deviations.push_back(std::abs(value - center));
    sum += deviations.back();
  }
  double sigma = kSigmaPerMad * median(deviations);
  if (sigma == 0.0) sigma = kSigmaPerMeanDeviation * sum / static_cast<double>(samples.size());
  if (sigma == 0.0) return scores;
  for (std::size_t i = 0; i < samples.size(); ++i) scores[i] = (samples[i] - center) / sigma;
  return scores;
}

Outliers find_outliers(std::span<const double> samples, double threshold) {
  MOE_CHECK(threshold > 0.0);
  Outliers found;
  const std::vector<double> scores = modified_z_scores(samples);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::abs(scores[i]) <= threshold) continue;
    found.indices.push_back(static_cast<std::int64_t>(i));
    (scores[i] < 0.0 ? found.num_low : found.num_high) += 1;
    if (i == 0) found.first_is_outlier = true;
  }
  return found;
}

}  // namespace moe::stats
