#include "lib/routing/windows.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/units.hpp"
#include "lib/routing/token_tally.hpp"

namespace moe::routing {
namespace {

// A gap of more windows than this between two time stamps is a damaged clock, not idle traffic.
constexpr double kMaxEmptyWindows = 1e6;

[[noreturn]] void fail_input(const InputInfo& info, const std::string& message) {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}", info.name, message));
}

// Cuts token blocks into windows.
class TokenCutter {
 public:
  TokenCutter(const InputInfo& info, const WindowSpec& spec, const WindowSink& sink)
      : spec_(spec), sink_(sink), info_(info), tally_(info) {}

  void add(const TokenBlock& block) {
    std::int64_t begin = 0;
    for (std::int64_t t = 0; t < block.num_tokens; ++t) {
      if (!starts_window(block, t)) continue;
      add_part(block, begin, t);
      close(false);
      begin = t;
      start(block, t);
    }
    add_part(block, begin, block.num_tokens);
  }

  void finish() {
    if (is_open_) close(true);
  }

 private:
  // True when token t cannot join the open window. Passes empty windows on the way.
  bool starts_window(const TokenBlock& block, std::int64_t t) {
    const auto i = static_cast<std::size_t>(t);
    if (!is_open_) {
      start(block, t);
      return false;
    }
    switch (spec_.unit) {
      case WindowUnit::kWhole:
        return false;
      case WindowUnit::kTokens:
        return num_in_window_++ >= static_cast<std::int64_t>(spec_.length);
      case WindowUnit::kSteps:
        if (block.step[i] == last_step_) return false;
        last_step_ = block.step[i];
        return ++num_in_window_ > static_cast<std::int64_t>(spec_.length);
      case WindowUnit::kSeconds:
        return block.time_s[i] >= window_end_s_;
    }
    return false;
  }

  void start(const TokenBlock& block, std::int64_t t) {
    const auto i = static_cast<std::size_t>(t);
    if (spec_.unit == WindowUnit::kSeconds) {
      if (!has_begun_) {
        window_begin_s_ = block.time_s[i];
        has_begun_ = true;
      } else {
        pass_empty_windows(block.time_s[i]);
      }
      window_end_s_ = window_begin_s_ + spec_.length;
    }
    is_open_ = true;
    num_in_window_ = 1;
    last_step_ = block.step[i];
    window_ = Window{};
    window_.first_step = block.step[i];
  }

  void pass_empty_windows(double time_s) {
    window_begin_s_ = window_end_s_;
    const double skipped = std::floor((time_s - window_begin_s_) / spec_.length);
    if (skipped > kMaxEmptyWindows) {
      fail_input(info_, fmt::format("time_s jumps from {} to {}, which is {} windows of {} s",
                                    window_begin_s_, time_s, skipped, spec_.length));
    }
    tally_.clear();
    for (; time_s >= window_begin_s_ + spec_.length; window_begin_s_ += spec_.length) {
      Window empty;
      empty.begin_s = window_begin_s_;
      empty.end_s = window_begin_s_ + spec_.length;
      sink_(empty, tally_.counts());
    }
  }

  void add_part(const TokenBlock& block, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    tally_.add(block, begin, end);
    window_.num_tokens += end - begin;
    const auto last = static_cast<std::size_t>(end - 1);
    window_.last_step = block.step[last];
    if (info_.has_time) {
      if (!window_.begin_s.has_value()) {
        window_.begin_s = block.time_s[static_cast<std::size_t>(begin)];
      }
      window_.end_s = block.time_s[last];
    }
  }

  void close(bool is_last) {
    const bool is_full = spec_.unit == WindowUnit::kTokens
                             ? window_.num_tokens >= static_cast<std::int64_t>(spec_.length)
                             : spec_.unit != WindowUnit::kSteps ||
                                   num_in_window_ >= static_cast<std::int64_t>(spec_.length);
    if (spec_.unit == WindowUnit::kSeconds) {
      window_.begin_s = window_begin_s_;
      window_.end_s = window_begin_s_ + spec_.length;
    }
    if (!is_last || is_full || !spec_.drop_partial) sink_(window_, tally_.counts());
    tally_.clear();
    is_open_ = false;
  }

  const WindowSpec& spec_;
  const WindowSink& sink_;
  const InputInfo& info_;
  TokenTally tally_;
  Window window_;
  bool is_open_ = false;
  bool has_begun_ = false;
  std::int64_t num_in_window_ = 0;
  std::int64_t last_step_ = -1;
  double window_begin_s_ = 0.0;
  double window_end_s_ = 0.0;
};

void add_counts(const InputInfo& info, std::span<const std::int64_t> from,
                std::vector<std::int64_t>& sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto next = checked_add(sum[i], from[i]);
    if (!next.has_value()) fail_input(info, "the counts of one expert pass 2^63");
    sum[i] = *next;
  }
}

void cut_counts(RoutingInput& input, const WindowSpec& spec, const WindowSink& sink) {
  const InputInfo& info = input.info;
  const auto size = static_cast<std::size_t>(info.num_layers() * info.num_experts);
  std::vector<std::int64_t> sum(size, 0);
  const auto length = spec.unit == WindowUnit::kSteps ? static_cast<std::int64_t>(spec.length) : -1;
  std::int64_t num_in_window = 0;
  Window window;
  CountStep step;
  while (input.counts->next(step)) {
    if (num_in_window == 0) window.first_step = step.step;
    window.last_step = step.step;
    add_counts(info, step.counts, sum);
    if (++num_in_window != length) continue;
    sink(window, sum);
    std::fill(sum.begin(), sum.end(), 0);
    window = Window{};
    num_in_window = 0;
  }
  if (num_in_window > 0 && (length < 0 || !spec.drop_partial)) sink(window, sum);
}

}  // namespace

WindowSpec parse_window(const std::string& text) {
  WindowSpec spec;
  if (text == "whole") return spec;
  const auto fail = [&]() -> WindowSpec {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("window \"{}\": expected whole, 256tokens, 10steps, 500ms or 5m", text));
  };
  const std::size_t end = text.find_first_not_of("0123456789");
  for (const auto& [name, unit] :
       {std::pair{"tokens", WindowUnit::kTokens}, std::pair{"steps", WindowUnit::kSteps}}) {
    if (end == std::string::npos || end == 0 || end > 12 || text.substr(end) != name) continue;
    spec.unit = unit;
    spec.length = static_cast<double>(std::stoll(text.substr(0, end)));
    return spec.length >= 1.0 ? spec : fail();
  }
  if (end == std::string::npos) return fail();  // a bare number: of what?
  try {
    spec.length = parse_duration_s(text);
  } catch (const Error&) {
    return fail();
  }
  spec.unit = WindowUnit::kSeconds;
  return spec.length > 0.0 ? spec : fail();
}

void for_each_window(RoutingInput& input, const WindowSpec& spec, const WindowSink& sink) {
  const InputInfo& info = input.info;
  if (spec.unit == WindowUnit::kSeconds && !info.has_time) {
    fail_input(info, "windows in seconds need time stamps, and this input (" +
                         std::string(format_name(info.format)) +
                         ") has none; give the window in tokens or steps");
  }
  if (input.tokens != nullptr) {
    input.tokens->rewind();
    TokenCutter cutter(info, spec, sink);
    TokenBlock block;
    while (input.tokens->next(block)) cutter.add(block);
    cutter.finish();
    return;
  }
  if (spec.unit == WindowUnit::kTokens) {
    fail_input(info, "windows in tokens need token rows, and this input (" +
                         std::string(format_name(info.format)) +
                         ") has counts only; give the window in steps");
  }
  input.counts->rewind();
  cut_counts(input, spec, sink);
}

ExpertCounts count_windows(RoutingInput& input, const WindowSpec& spec) {
  ExpertCounts result;
  result.info = input.info;
  result.window_unit = spec.unit;
  result.window_length = spec.length;
  const auto num_layers = static_cast<std::size_t>(input.info.num_layers());
  const auto num_experts = static_cast<std::size_t>(input.info.num_experts);
  std::vector<bool> has_load(num_layers, false);
  for_each_window(input, spec, [&](const Window& window, std::span<const std::int64_t> counts) {
    result.windows.push_back(window);
    result.counts.insert(result.counts.end(), counts.begin(), counts.end());
    for (std::size_t l = 0; l < num_layers; ++l) {
      if (has_load[l]) continue;
      const auto layer = counts.subspan(l * num_experts, num_experts);
      has_load[l] = std::ranges::any_of(layer, [](std::int64_t count) { return count != 0; });
    }
  });
  std::vector<std::int32_t> layers;
  std::vector<std::int32_t> placement;
  const auto num_slots = static_cast<std::size_t>(result.info.num_slots);
  for (std::size_t l = 0; l < num_layers; ++l) {
    const std::int32_t number = result.info.layers[l];
    if (!has_load[l]) {
      result.empty_layers.push_back(number);
      continue;
    }
    layers.push_back(number);
    if (result.info.physical_to_logical.empty()) continue;
    const auto row =
        result.info.physical_to_logical.begin() + static_cast<std::ptrdiff_t>(l * num_slots);
    placement.insert(placement.end(), row, row + static_cast<std::ptrdiff_t>(num_slots));
  }
  if (layers.empty()) fail_input(input.info, "nothing was routed: every count is zero");
  if (layers.size() == num_layers) return result;
  std::vector<std::int64_t> kept;
  kept.reserve(result.windows.size() * layers.size() * num_experts);
  for (std::size_t row = 0; row < result.windows.size() * num_layers; ++row) {
    if (!has_load[row % num_layers]) continue;
    const auto from = result.counts.begin() + static_cast<std::ptrdiff_t>(row * num_experts);
    kept.insert(kept.end(), from, from + static_cast<std::ptrdiff_t>(num_experts));
  }
  result.counts = std::move(kept);
  result.info.layers = std::move(layers);
  result.info.physical_to_logical = std::move(placement);
  return result;
}

ExpertCounts load_counts(const std::string& path, const OpenOptions& options,
                         const WindowSpec& spec) {
  RoutingInput input = open_input(path, options);
  return count_windows(input, spec);
}

}  // namespace moe::routing
