#pragma once

// The one definition of a percentile, of its confidence interval and of what a set of samples can
// support. Every tool summarizes through this file.
//
// Percentile: nearest rank. The p-quantile of n samples is the sample of rank ceil(p n) in
// ascending order; it is always a value that was seen, never an interpolation.
//
// Refusal: a percentile is given only when the samples reach beyond it with 99 % confidence, which
// is 1 - max(p, 1 - p)^n >= 0.99: n >= 7 for p50, 44 for p90, 90 for p95, 459 for p99 (the query
// count rule of MLPerf LoadGen, solved for n). Below that the value is absent with a reason.
//
// Confidence interval: distribution-free, from order statistics. With B ~ Binomial(n, p), the lower
// end is the sample of the largest rank l with P(B <= l - 1) <= 0.025, the upper end that of the
// smallest rank u with P(B <= u - 1) >= 0.975 (David and Nagaraja, Order Statistics, 7.1). The
// binomial sums are exact, no normal approximation. Where a percentile is given, both ranks exist.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moe::stats {

inline constexpr const char* kPercentileMethod = "nearest_rank";
inline constexpr double kSupportConfidence = 0.99;
inline constexpr double kIntervalConfidence = 0.95;

// A closed interval of sample values.
struct Interval {
  double low = 0.0;
  double high = 0.0;
};

// A percentile and its 95 % confidence interval, or neither with a reason.
struct Percentile {
  std::optional<double> value;
  std::optional<Interval> ci95;
  std::string absent_reason;  // not empty exactly when value is absent
};

struct Distribution {
  std::int64_t count = 0;
  // Absent when there are no samples; stdev also when there is only one.
  std::optional<double> mean;
  std::optional<double> stdev;  // of the sample, divisor count - 1
  std::optional<double> mad;    // median of |x - median|, not scaled to a standard deviation
  std::optional<double> min;
  std::optional<double> max;
  Percentile p50;
  Percentile p90;
  Percentile p95;
  Percentile p99;
  std::string percentile_method = kPercentileMethod;
  std::string absent_reason;  // why mean, stdev, mad, min or max is absent; empty when none is
};

// 1-based ranks of the order statistics that enclose a quantile.
struct RankInterval {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

// The smallest count that supports the p-quantile, 0 < p < 1.
[[nodiscard]] std::int64_t min_samples_for(double p);

// 1-based nearest rank ceil(p n). n >= 1, 0 <= p <= 1 (p = 0 gives rank 1).
[[nodiscard]] std::int64_t nearest_rank(std::int64_t n, double p);

// Ranks of the confidence interval of the p-quantile, or nullopt when n is too small for one.
// O(sqrt(n)).
[[nodiscard]] std::optional<RankInterval> ci_ranks(std::int64_t n, double p,
                                                   double confidence = kIntervalConfidence);

// The sample of nearest rank, without the refusal rule. `sorted` ascending, not empty.
[[nodiscard]] double percentile_of_sorted(std::span<const double> sorted, double p);

// The percentile with its interval under the refusal rule. `sorted` ascending.
[[nodiscard]] Percentile percentile(std::span<const double> sorted, double p);

// Nearest-rank median of unsorted samples, without the refusal rule; not empty.
[[nodiscard]] double median(std::span<const double> samples);

// Summarizes samples in any order. Every sample must be finite (a check, not an input error).
[[nodiscard]] Distribution summarize(std::span<const double> samples);

}  // namespace moe::stats
