#include "lib/workload/arrivals.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/units.hpp"

namespace moe::workload {
namespace {

constexpr int kHoursOfDay = 24;

// Gamma with this shape and mean 1 (Marsaglia and Tsang 2000, with the boost for shapes below 1).
double next_gamma(Rng& rng, double shape) {
  const double boosted = shape < 1.0 ? shape + 1.0 : shape;
  const double d = boosted - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  double value = 0.0;
  while (true) {
    const double x = rng.next_normal();
    const double v = std::pow(1.0 + c * x, 3);
    if (v <= 0.0) continue;
    const double u = 1.0 - rng.next_uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      value = d * v;
      break;
    }
  }
  if (shape < 1.0) value *= std::pow(1.0 - rng.next_uniform(), 1.0 / shape);
  return value / shape;
}

}  // namespace

RateCurve::RateCurve(std::vector<double> requests_per_s, double step_s)
    : requests_per_s_(std::move(requests_per_s)), step_s_(step_s) {
  if (requests_per_s_.empty() || !(step_s_ > 0.0) || !std::isfinite(step_s_)) {
    throw Error(ErrorCode::kInput, "an arrival curve needs at least one step of positive length");
  }
  for (const double rate : requests_per_s_) {
    if (!(rate >= 0.0) || !std::isfinite(rate)) {
      throw Error(ErrorCode::kInput,
                  fmt::format("expected rates of 0 or more requests/s, found {}", rate));
    }
    mean_ += rate / static_cast<double>(requests_per_s_.size());
    peak_ = std::max(peak_, rate);
  }
  if (!(mean_ > 0.0)) throw Error(ErrorCode::kInput, "an arrival curve of zeros has no requests");
}

RateCurve RateCurve::constant(double requests_per_s) {
  return {{requests_per_s}, kHour_s};
}

RateCurve RateCurve::steps(std::vector<double> requests_per_s, double step_s) {
  return {std::move(requests_per_s), step_s};
}

RateCurve RateCurve::diurnal(double mean_requests_per_s, double peak_over_mean) {
  if (!(peak_over_mean >= 1.0 && peak_over_mean <= 2.0)) {
    throw Error(ErrorCode::kInput,
                fmt::format("a diurnal curve has a peak of 1 to 2 times its mean, found {}; write "
                            "steeper days as hourly rates",
                            peak_over_mean));
  }
  std::vector<double> rates;
  for (int hour = 0; hour < kHoursOfDay; ++hour) {
    // The lowest hour is 0, the busiest 12.
    const double swing = -std::cos(2.0 * std::numbers::pi * hour / kHoursOfDay);
    rates.push_back(mean_requests_per_s * (1.0 + (peak_over_mean - 1.0) * swing));
  }
  return {std::move(rates), kHour_s};
}

double RateCurve::at(double time_s) const {
  MOE_CHECK(time_s >= 0.0);
  const double in_period = std::fmod(time_s, period_s());
  const auto step = static_cast<std::size_t>(in_period / step_s_);
  return requests_per_s_[std::min(step, requests_per_s_.size() - 1)];
}

RateCurve RateCurve::scaled(double factor) const {
  std::vector<double> rates = requests_per_s_;
  for (double& rate : rates) rate *= factor;
  return {std::move(rates), step_s_};
}

const char* name_of(ArrivalKind kind) {
  switch (kind) {
    case ArrivalKind::kEven:
      return "even";
    case ArrivalKind::kPoisson:
      return "poisson";
    case ArrivalKind::kGamma:
      return "gamma";
  }
  return "";
}

std::optional<ArrivalKind> parse_arrival_kind(const std::string& name) {
  for (const ArrivalKind kind : {ArrivalKind::kEven, ArrivalKind::kPoisson, ArrivalKind::kGamma}) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

ArrivalGenerator::ArrivalGenerator(RateCurve curve, ArrivalProcess process, std::uint64_t seed)
    : curve_(std::move(curve)), process_(process), rng_(seed, 0x61727276) {
  if (process_.kind == ArrivalKind::kGamma && !(process_.gap_cv > 0.0 && process_.gap_cv <= 50.0)) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("gamma gaps need a cv above 0 and up to 50, found {}", process_.gap_cv));
  }
}

double ArrivalGenerator::next_unit_gap() {
  switch (process_.kind) {
    case ArrivalKind::kEven:
      return 1.0;
    case ArrivalKind::kPoisson:
      return -std::log(1.0 - rng_.next_uniform());
    case ArrivalKind::kGamma:
      return next_gamma(rng_, 1.0 / (process_.gap_cv * process_.gap_cv));
  }
  return 1.0;
}

double ArrivalGenerator::next_s() {
  double area = next_unit_gap();
  // Whole periods at once, so that a low rate in short steps costs no more than a high one.
  const double period_area = curve_.mean_requests_per_s() * curve_.period_s();
  if (area > period_area) {
    const double periods = std::floor(area / period_area);
    step_begin_s_ += periods * curve_.period_s();
    area -= periods * period_area;
  }
  // Walks the steps until the area under the curve since the last arrival is the gap.
  while (true) {
    const double rate = curve_.rates()[step_];
    const double left_s = curve_.step_s() - in_step_s_;
    if (rate > 0.0 && area <= rate * left_s) {
      in_step_s_ += area / rate;
      return step_begin_s_ + in_step_s_;
    }
    area -= rate * left_s;
    step_begin_s_ += curve_.step_s();
    in_step_s_ = 0.0;
    step_ = (step_ + 1) % curve_.rates().size();
  }
}

}  // namespace moe::workload
