#include "lib/balance/capacity_law.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::balance {
namespace {

constexpr std::array<CapacityLaw, 6> kLaws = {
    CapacityLaw::kStatic,  CapacityLaw::kLiteralRate, CapacityLaw::kLiteralCount,
    CapacityLaw::kFlipped, CapacityLaw::kBounded,     CapacityLaw::kFeedForward};

struct WindowOverflow {
  Overflow sum;
  std::int64_t capacity = 0;  // largest of the layers
  double num_slots = 0.0;     // capacity x experts over the layers
};

WindowOverflow window_overflow(const CapacityRule& rule, double factor,
                               std::span<const std::int64_t> counts, std::int64_t num_experts,
                               std::int64_t num_tokens, std::int64_t top_k) {
  WindowOverflow result;
  for (std::size_t begin = 0; begin < counts.size();
       begin += static_cast<std::size_t>(num_experts)) {
    const auto layer = counts.subspan(begin, static_cast<std::size_t>(num_experts));
    const std::int64_t max_count = *std::max_element(layer.begin(), layer.end());
    const std::int64_t capacity =
        expert_capacity(rule, factor, num_tokens, top_k, num_experts, max_count);
    const Overflow of_layer = overflow(layer, capacity);
    result.sum.num_assignments += of_layer.num_assignments;
    result.sum.num_dropped += of_layer.num_dropped;
    result.capacity = std::max(result.capacity, capacity);
    result.num_slots += static_cast<double>(capacity) * static_cast<double>(num_experts);
  }
  return result;
}

}  // namespace

const char* capacity_law_name(CapacityLaw law) {
  switch (law) {
    case CapacityLaw::kStatic:
      return "static";
    case CapacityLaw::kLiteralRate:
      return "literal_rate";
    case CapacityLaw::kLiteralCount:
      return "literal_count";
    case CapacityLaw::kFlipped:
      return "signs_flipped";
    case CapacityLaw::kBounded:
      return "bounded";
    case CapacityLaw::kFeedForward:
      return "feed_forward";
  }
  return "";
}

std::optional<CapacityLaw> capacity_law_of(std::string_view name) {
  for (const CapacityLaw law : kLaws) {
    if (name == capacity_law_name(law)) return law;
  }
  return std::nullopt;
}

void check_law(const LawOptions& options) {
  const auto fail = [](const std::string& message) { throw Error(ErrorCode::kUsage, message); };
  if (!(options.min_factor > 0.0 && options.min_factor <= options.max_factor)) {
    fail(fmt::format("capacity factor: expected 0 < lower bound <= upper bound, found {} and {}",
                     options.min_factor, options.max_factor));
  }
  if (!(options.start >= options.min_factor && options.start <= options.max_factor)) {
    fail(fmt::format("capacity factor: the start {} is outside its bounds {} to {}", options.start,
                     options.min_factor, options.max_factor));
  }
  if (!(options.target_drop_rate >= 0.0 && options.target_drop_rate < 1.0)) {
    fail(
        fmt::format("target drop rate: expected 0 to below 1, found {}", options.target_drop_rate));
  }
  if (options.memory_windows < 1) fail("expected a memory of at least one window");
  for (const double gain :
       {options.fill_gain, options.drop_gain, options.attack_gain, options.max_attack,
        options.release_gain, options.max_release, options.dead_band, options.headroom}) {
    if (!(std::isfinite(gain) && gain >= 0.0)) {
      fail(fmt::format("a gain or band of a capacity law: expected 0 or more, found {}", gain));
    }
  }
}

CapacityController::CapacityController(const LawOptions& options, std::int64_t top_k)
    : options_(options), top_k_(top_k), factor_(options.start) {
  check_law(options);
  MOE_CHECK(top_k > 0);
}

double needed_factor(const CapacityRule& rule, double target_drop_rate,
                     std::span<const std::int64_t> counts, std::int64_t num_experts,
                     std::int64_t num_tokens, std::int64_t top_k) {
  const auto meets = [&](std::int64_t hundredths) {
    const WindowOverflow result = window_overflow(rule, static_cast<double>(hundredths) / 100.0,
                                                  counts, num_experts, num_tokens, top_k);
    return result.sum.rate().value_or(0.0) <= target_drop_rate;
  };
  // At this factor every formula gives an expert all tokens.
  std::int64_t high = 100 * num_experts * top_k * std::max<std::int64_t>(1, rule.num_ranks);
  std::int64_t low = 0;  // never meets, but for an empty window
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (meets(middle) ? high : low) = middle;
  }
  return static_cast<double>(high) / 100.0;
}

LawWindow CapacityController::step(std::span<const std::int64_t> counts, std::int64_t num_experts,
                                   std::int64_t num_tokens) {
  MOE_CHECK(num_experts > 0 && counts.size() % static_cast<std::size_t>(num_experts) == 0);
  const WindowOverflow result =
      window_overflow(options_.rule, factor_, counts, num_experts, num_tokens, top_k_);
  LawWindow window;
  window.factor = factor_;
  window.capacity = result.capacity;
  window.num_assignments = result.sum.num_assignments;
  window.num_dropped = result.sum.num_dropped;
  window.drop_rate = result.sum.rate();
  if (result.num_slots > 0.0) {
    window.fill =
        static_cast<double>(window.num_assignments - window.num_dropped) / result.num_slots;
  }
  window.at_min = factor_ <= options_.min_factor;
  window.at_max = factor_ >= options_.max_factor;
  const std::int64_t min_assignments =
      options_.min_assignments > 0 ? options_.min_assignments : 4 * num_experts;
  if (window.num_assignments < min_assignments) return window;  // too little to learn from: hold
  window.need = needed_factor(options_.rule, options_.target_drop_rate, counts, num_experts,
                              num_tokens, top_k_);
  needs_.push_back(window.need);
  if (static_cast<std::int64_t>(needs_.size()) > options_.memory_windows) needs_.pop_front();
  factor_ = std::clamp(next_factor(window), options_.min_factor, options_.max_factor);
  return window;
}

double CapacityController::next_factor(const LawWindow& window) const {
  const double drop_rate = window.drop_rate.value_or(0.0);
  const double fill = window.fill.value_or(0.0);
  const double peak = *std::max_element(needs_.begin(), needs_.end());
  switch (options_.law) {
    case CapacityLaw::kStatic:
      return factor_;
    case CapacityLaw::kLiteralRate:
      return factor_ + options_.fill_gain * fill - options_.drop_gain * drop_rate;
    case CapacityLaw::kLiteralCount:
      return factor_ + options_.fill_gain * fill -
             options_.drop_gain * static_cast<double>(window.num_dropped);
    case CapacityLaw::kFlipped:
      return factor_ - options_.fill_gain * fill + options_.drop_gain * drop_rate;
    case CapacityLaw::kBounded:
      if (drop_rate > options_.target_drop_rate) {
        return factor_ + std::min(options_.max_attack,
                                  options_.attack_gain * (drop_rate - options_.target_drop_rate));
      }
      if (factor_ - peak > options_.dead_band) {
        return factor_ - std::min(options_.max_release, options_.release_gain * (factor_ - peak));
      }
      return factor_;
    case CapacityLaw::kFeedForward:
      return options_.headroom * peak;
  }
  return factor_;
}

double literal_rest_drop_rate(const LawOptions& options, double factor) {
  return options.fill_gain / (options.fill_gain + options.drop_gain * factor);
}

}  // namespace moe::balance
