#pragma once

// How many tokens a request brings or asks for. One representation for every kind, so that mean,
// percentiles and samples always agree: sorted values with their probability.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/base/rng.hpp"

namespace moe::workload {

// No request holds more tokens than this; larger numbers are refused as damaged input.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 31;

class LengthDistribution {
 public:
  // Always `tokens`.
  [[nodiscard]] static LengthDistribution fixed(std::int64_t tokens);
  // Every length from `min` to `max` equally often.
  [[nodiscard]] static LengthDistribution uniform(std::int64_t min, std::int64_t max);
  // Log-normal with this mean and coefficient of variation, cut to [1, max]. The cut lowers the
  // mean; mean() says by how much.
  [[nodiscard]] static LengthDistribution lognormal(double mean, double cv, std::int64_t max);
  // Log-normal through two percentiles, cut to [1, max]. 0 < p50 <= p99.
  [[nodiscard]] static LengthDistribution lognormal_from_percentiles(double p50, double p99,
                                                                     std::int64_t max);
  // Value -> how often it was seen. Not empty, at least one count positive.
  [[nodiscard]] static LengthDistribution empirical(const std::map<std::int64_t, std::int64_t>& of);

  [[nodiscard]] double mean() const { return mean_; }
  // Standard deviation over mean.
  [[nodiscard]] double cv() const { return cv_; }
  // The smallest value that a share p of the requests does not exceed, 0 < p <= 1.
  [[nodiscard]] std::int64_t quantile(double p) const;
  [[nodiscard]] std::int64_t min() const { return points_.front().tokens; }
  [[nodiscard]] std::int64_t max() const { return points_.back().tokens; }
  [[nodiscard]] std::int64_t sample(Rng& rng) const;
  // The same shape with every length times `factor` (at least one token).
  [[nodiscard]] LengthDistribution scaled(double factor) const;
  // "lognormal, mean 1024, cv 1.00, at most 8192".
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  struct Point {
    std::int64_t tokens = 0;
    double cumulative = 1.0;  // share of requests up to and with this value
  };
  LengthDistribution(std::vector<Point> points, std::string description);

  std::vector<Point> points_;  // ascending in both
  double mean_ = 0.0;
  double cv_ = 0.0;
  std::string description_;
};

}  // namespace moe::workload
