#pragma once

// Control of the capacity factor from window to window. The literal law of the article that started
// this (CF' = CF + a E - b D, E fill, D drops) has its signs against its text: with D as a count it
// falls to the lower bound in one window, with D as a rate it has an unstable rest point at
// D = a / (a + b CF), 14 to 25 % dropped. Flipping both signs keeps that rest point. The bounded
// law reacts to drops above a target at once and releases slowly towards the measured need; the
// feed-forward law follows the need alone.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/balance/capacity.hpp"

namespace moe::balance {

enum class CapacityLaw : std::uint8_t {
  kStatic,
  kLiteralRate,
  kLiteralCount,
  kFlipped,
  kBounded,
  kFeedForward,
};

// "static", "literal_rate", "literal_count", "signs_flipped", "bounded", "feed_forward".
[[nodiscard]] const char* capacity_law_name(CapacityLaw law);
[[nodiscard]] std::optional<CapacityLaw> capacity_law_of(std::string_view name);

struct LawOptions {
  CapacityLaw law = CapacityLaw::kBounded;
  CapacityRule rule;
  double start = 1.3;
  double min_factor = 1.0;
  double max_factor = 2.0;
  // Literal and flipped.
  double fill_gain = 0.1;
  double drop_gain = 0.3;
  // Bounded. The steepest slope of drops over CF seen in real routing is -0.46, so a gain of 1.5
  // does not overshoot (limit 2 / 0.46).
  double target_drop_rate = 0.0;
  double attack_gain = 1.5;
  double max_attack = 0.25;
  double release_gain = 0.25;
  double max_release = 0.02;
  double dead_band = 0.05;
  std::int64_t memory_windows = 20;
  std::int64_t min_assignments = 0;  // fewer in a window: hold; 0 means 4 x experts
  // Feed-forward: CF = headroom x peak need.
  double headroom = 1.05;
};

// Throws Error(kUsage) when an option makes no sense: bounds reversed, a start outside them, gains
// that are negative, a target outside [0, 1].
void check_law(const LawOptions& options);

// What one window did, all layers together, at the factor that was in force.
struct LawWindow {
  double factor = 0.0;
  std::int64_t capacity = 0;  // per expert and layer
  std::int64_t num_assignments = 0;
  std::int64_t num_dropped = 0;
  std::optional<double> drop_rate;  // absent in an empty window
  std::optional<double> fill;       // used slots / all slots
  double need = 0.0;                // factor that would have met the target, in steps of 0.01
  bool at_min = false;              // the factor in force stood on a bound
  bool at_max = false;
};

// One factor for the layers that it is given.
class CapacityController {
 public:
  CapacityController(const LawOptions& options, std::int64_t top_k);

  // counts[layers, experts] of a window of num_tokens; the factor moves for the next window.
  LawWindow step(std::span<const std::int64_t> counts, std::int64_t num_experts,
                 std::int64_t num_tokens);

  [[nodiscard]] double factor() const { return factor_; }

 private:
  [[nodiscard]] double next_factor(const LawWindow& window) const;

  LawOptions options_;
  std::int64_t top_k_;
  double factor_;
  std::deque<double> needs_;  // of the last memory_windows windows
};

// Smallest factor in steps of 0.01 at which at most `target_drop_rate` of the window is dropped.
[[nodiscard]] double needed_factor(const CapacityRule& rule, double target_drop_rate,
                                   std::span<const std::int64_t> counts, std::int64_t num_experts,
                                   std::int64_t num_tokens, std::int64_t top_k);

// Where the literal law rests with D as a rate: a / (a + b CF).
[[nodiscard]] double literal_rest_drop_rate(const LawOptions& options, double factor);

}  // namespace moe::balance
