#pragma once

// From any input to expert counts by window.

#include <cstdint>
#include <functional>
#include <string>

#include "lib/routing/expert_counts.hpp"
#include "lib/routing/open_input.hpp"
#include "lib/routing/token_source.hpp"

namespace moe::routing {

struct WindowSpec {
  WindowUnit unit = WindowUnit::kWhole;
  double length = 0.0;
  // The last window is left out when it is not full (tokens and steps).
  bool drop_partial = false;
};

// "whole", "256tokens", "10steps", "500ms", "5min". Throws Error(kUsage).
[[nodiscard]] WindowSpec parse_window(const std::string& text);

// Calls `sink` for every window in order, with its counts [layers, experts] of input.info; memory
// does not grow with the input. Rewinds first. Empty windows between two time stamps are passed,
// too. Throws Error(kInput) when the unit is not in the input: seconds without time stamps, tokens
// where there are only counts.
using WindowSink = std::function<void(const Window&, std::span<const std::int64_t> counts)>;
void for_each_window(RoutingInput& input, const WindowSpec& spec, const WindowSink& sink);

// All windows in memory; layers that are zero throughout move to empty_layers. Throws Error(kInput)
// when nothing was routed at all.
[[nodiscard]] ExpertCounts count_windows(RoutingInput& input, const WindowSpec& spec = {});

// The two steps in one: the whole input, or windows of it.
[[nodiscard]] ExpertCounts load_counts(const std::string& path, const OpenOptions& options = {},
                                       const WindowSpec& spec = {});

}  // namespace moe::routing
