#pragma once

// When requests arrive. A curve says how the rate moves over a period; a process says how the
// arrivals scatter around it. The scatter is applied in rescaled time (an inhomogeneous renewal
// process), so the expected number of arrivals in any stretch is the area under the curve.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/rng.hpp"

namespace moe::workload {

// Requests per second over a period that repeats, in equal steps.
class RateCurve {
 public:
  [[nodiscard]] static RateCurve constant(double requests_per_s);
  // One rate a step; the period is steps.size() * step_s.
  [[nodiscard]] static RateCurve steps(std::vector<double> requests_per_s, double step_s);
  // A day of 24 hours that swings as a sine around the mean, 1 <= peak_over_mean <= 2.
  [[nodiscard]] static RateCurve diurnal(double mean_requests_per_s, double peak_over_mean);

  [[nodiscard]] double mean_requests_per_s() const { return mean_; }
  // The busiest step.
  [[nodiscard]] double peak_requests_per_s() const { return peak_; }
  [[nodiscard]] double period_s() const {
    return step_s_ * static_cast<double>(requests_per_s_.size());
  }
  [[nodiscard]] double at(double time_s) const;
  [[nodiscard]] const std::vector<double>& rates() const { return requests_per_s_; }
  [[nodiscard]] double step_s() const { return step_s_; }
  [[nodiscard]] RateCurve scaled(double factor) const;

 private:
  RateCurve(std::vector<double> requests_per_s, double step_s);

  std::vector<double> requests_per_s_;
  double step_s_ = 1.0;
  double mean_ = 0.0;
  double peak_ = 0.0;
};

enum class ArrivalKind : std::uint8_t {
  kEven,     // equal gaps
  kPoisson,  // independent requests
  kGamma,    // gaps of a gamma distribution: burstier (cv > 1) or more even (cv < 1) than Poisson
};

struct ArrivalProcess {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double gap_cv = 1.0;  // standard deviation of the gaps over their mean; 0 even, 1 Poisson
};

[[nodiscard]] const char* name_of(ArrivalKind kind);
[[nodiscard]] std::optional<ArrivalKind> parse_arrival_kind(const std::string& name);

// Arrival times in ascending order, without end: the curve repeats. Same seed, same times.
class ArrivalGenerator {
 public:
  // The curve must have a positive mean.
  ArrivalGenerator(RateCurve curve, ArrivalProcess process, std::uint64_t seed);

  [[nodiscard]] double next_s();

 private:
  [[nodiscard]] double next_unit_gap();

  RateCurve curve_;
  ArrivalProcess process_;
  Rng rng_;
  std::size_t step_ = 0;
  double step_begin_s_ = 0.0;
  double in_step_s_ = 0.0;  // how far into the step the last arrival is
};

}  // namespace moe::workload
