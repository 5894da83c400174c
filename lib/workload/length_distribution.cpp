#include "lib/workload/length_distribution.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::workload {
namespace {

// Points of a continuous distribution: the middles of as many equally likely slices.
constexpr int kSlices = 1024;
constexpr double kZ99 = 2.3263478740408408;  // standard normal quantile of 0.99

// Standard normal quantile by bisection on erfc: a few microseconds, exact to the last digits.
double normal_quantile(double p) {
  double low = -9.0;
  double high = 9.0;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

void require_tokens(double tokens, const char* what) {
  if (!(tokens >= 1.0 && tokens <= static_cast<double>(kMaxTokens))) {
    throw Error(ErrorCode::kInput,
                fmt::format("expected {} from 1 to {} tokens, found {}", what, kMaxTokens, tokens));
  }
}

}  // namespace

LengthDistribution::LengthDistribution(std::vector<Point> points, std::string description)
    : points_(std::move(points)), description_(std::move(description)) {
  MOE_CHECK(!points_.empty());
  points_.back().cumulative = 1.0;
  double before = 0.0;
  double second = 0.0;
  for (const Point& point : points_) {
    const double share = point.cumulative - before;
    const auto tokens = static_cast<double>(point.tokens);
    mean_ += share * tokens;
    second += share * tokens * tokens;
    before = point.cumulative;
  }
  cv_ = mean_ > 0.0 ? std::sqrt(std::max(0.0, second - mean_ * mean_)) / mean_ : 0.0;
}

LengthDistribution LengthDistribution::fixed(std::int64_t tokens) {
  require_tokens(static_cast<double>(tokens), "a length");
  return {{{tokens, 1.0}}, fmt::format("always {}", tokens)};
}

LengthDistribution LengthDistribution::uniform(std::int64_t min, std::int64_t max) {
  require_tokens(static_cast<double>(min), "the smallest length");
  require_tokens(static_cast<double>(max), "the largest length");
  if (min > max) {
    throw Error(ErrorCode::kInput,
                fmt::format("a uniform length from {} to {}: the first is larger", min, max));
  }
  const std::int64_t values = max - min + 1;
  const std::int64_t slices = std::min<std::int64_t>(values, kSlices);
  std::vector<Point> points;
  for (std::int64_t i = 0; i < slices; ++i) {
    // The middle of the slice; with one value a slice, that value.
    const double middle =
        (static_cast<double>(i) + 0.5) * static_cast<double>(values) / static_cast<double>(slices);
    points.push_back({min + static_cast<std::int64_t>(middle),
                      static_cast<double>(i + 1) / static_cast<double>(slices)});
  }
  return {std::move(points), fmt::format("uniform from {} to {}", min, max)};
}

LengthDistribution LengthDistribution::lognormal(double mean, double cv, std::int64_t max) {
  require_tokens(mean, "a mean length");
  if (!(cv >= 0.0 && cv <= 100.0)) {
    throw Error(ErrorCode::kInput,
                fmt::format("expected a coefficient of variation from 0 to 100, found {}", cv));
  }
  const double sigma = std::sqrt(std::log1p(cv * cv));
  const double median = mean / std::sqrt(1.0 + cv * cv);
  LengthDistribution made = lognormal_from_percentiles(
      std::max(1.0, median), std::max(1.0, median) * std::exp(sigma * kZ99), max);
  made.description_ = fmt::format("log-normal, mean {:g}, cv {:g}, at most {}", mean, cv, max);
  return made;
}

LengthDistribution LengthDistribution::lognormal_from_percentiles(double p50, double p99,
                                                                  std::int64_t max) {
  require_tokens(p50, "a median length");
  require_tokens(static_cast<double>(max), "the largest length");
  if (!(p99 >= p50) || !std::isfinite(p99)) {
    throw Error(ErrorCode::kInput,
                fmt::format("expected a p99 of at least the p50 of {}, found {}", p50, p99));
  }
  const double sigma = std::log(p99 / p50) / kZ99;
  std::vector<Point> points;
  for (int i = 0; i < kSlices; ++i) {
    const double z = normal_quantile((i + 0.5) / kSlices);
    const double tokens =
        std::clamp(std::round(p50 * std::exp(sigma * z)), 1.0, static_cast<double>(max));
    const auto value = static_cast<std::int64_t>(tokens);
    const double cumulative = (i + 1.0) / kSlices;
    if (!points.empty() && points.back().tokens == value) {
      points.back().cumulative = cumulative;
    } else {
      points.push_back({value, cumulative});
    }
  }
  return {std::move(points),
          fmt::format("log-normal, p50 {:g}, p99 {:g}, at most {}", p50, p99, max)};
}

LengthDistribution LengthDistribution::empirical(const std::map<std::int64_t, std::int64_t>& of) {
  double total = 0.0;
  for (const auto& [tokens, count] : of) {
    MOE_CHECK(count >= 0 && tokens >= 0 && tokens <= kMaxTokens);
    total += static_cast<double>(count);
  }
  MOE_CHECK(total > 0.0);
  std::vector<Point> points;
  double seen = 0.0;
  for (const auto& [tokens, count] : of) {
    if (count == 0) continue;
    seen += static_cast<double>(count);
    points.push_back({tokens, seen / total});
  }
  return {std::move(points), fmt::format("as seen in {:.0f} requests", total)};
}

std::int64_t LengthDistribution::quantile(double p) const {
  MOE_CHECK(p > 0.0 && p <= 1.0);
  // The shares are sums of fractions: without the slack 1000 of 1000 slices could miss p by 1e-16.
  const auto at =
      std::lower_bound(points_.begin(), points_.end(), p - 1e-12,
                       [](const Point& point, double share) { return point.cumulative < share; });
  return at == points_.end() ? points_.back().tokens : at->tokens;
}

std::int64_t LengthDistribution::sample(Rng& rng) const {
  const double u = rng.next_uniform();
  const auto at =
      std::upper_bound(points_.begin(), points_.end(), u,
                       [](double share, const Point& point) { return share < point.cumulative; });
  return at == points_.end() ? points_.back().tokens : at->tokens;
}

LengthDistribution LengthDistribution::scaled(double factor) const {
  MOE_CHECK(factor > 0.0);
  std::vector<Point> points;
  for (const Point& point : points_) {
    const double tokens = std::clamp(std::round(static_cast<double>(point.tokens) * factor), 1.0,
                                     static_cast<double>(kMaxTokens));
    points.push_back({static_cast<std::int64_t>(tokens), point.cumulative});
  }
  return {std::move(points), fmt::format("{}, times {:g}", description_, factor)};
}

}  // namespace moe::workload
