#include "lib/app/progress_terminal.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/units.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kBarWidth = 24;
constexpr double kBarIntervalS = 0.1;
// Work shorter than this shows nothing at all.
constexpr double kFirstShowS = 0.3;

std::string amount(std::int64_t count, std::string_view unit) {
  if (unit == "bytes") return format_bytes_binary(static_cast<double>(count));
  return fmt::format("{} {}", format_count(static_cast<double>(count)), unit);
}

std::string rate(double per_s, std::string_view unit) {
  if (unit == "bytes") return format_rate(per_s, "B/s");
  return fmt::format("{:.3g} {}/s", per_s, unit);
}

}  // namespace

ProgressStyle progress_style(bool is_quiet) {
  ProgressStyle style;
  style.is_quiet = is_quiet;
  style.is_terminal = ::isatty(STDERR_FILENO) == 1;
  return style;
}

std::string progress_line(std::string_view stage, std::int64_t done, std::int64_t total,
                          std::string_view unit, double elapsed_s) {
  const double per_s = elapsed_s > 0.0 ? static_cast<double>(done) / elapsed_s : 0.0;
  if (total <= 0) return fmt::format("{}  {}  {}", stage, amount(done, unit), rate(per_s, unit));
  done = std::clamp<std::int64_t>(done, 0, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<std::int64_t>(share * static_cast<double>(kBarWidth));
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kBarWidth - filled), '.');
  std::string line =
      fmt::format("{}  [{}] {:3.0f} %  {}", stage, bar, share * 100.0, rate(per_s, unit));
  if (per_s > 0.0 && done < total) {
    line += fmt::format("  {} left", format_duration(static_cast<double>(total - done) / per_s));
  }
  return line;
}

ProgressTerminal::ProgressTerminal(const ProgressStyle& style, const Clock& clock)
    : style_(style), clock_(&clock) {}

ProgressTerminal::~ProgressTerminal() {
  clear();
}

void ProgressTerminal::begin(std::string_view stage, std::int64_t total, std::string_view unit) {
  clear();
  stage_ = stage;
  unit_ = unit;
  total_ = total;
  done_ = 0;
  begin_s_ = clock_->now_s();
  shown_s_ = begin_s_ + kFirstShowS - kBarIntervalS;
  if (!style_.is_terminal) shown_s_ = begin_s_;
  is_running_ = true;
}

void ProgressTerminal::update(std::int64_t done) {
  if (style_.is_quiet || !is_running_) return;
  done_ = done;
  const double now_s = clock_->now_s();
  const double interval_s = style_.is_terminal ? kBarIntervalS : style_.line_interval_s;
  if (now_s - shown_s_ < interval_s) return;
  show(done, now_s);
}

void ProgressTerminal::end() {
  clear();
  is_running_ = false;
}

void ProgressTerminal::show(std::int64_t done, double now_s) {
  shown_s_ = now_s;
  const std::string line = progress_line(stage_, done, total_, unit_, now_s - begin_s_);
  if (style_.is_terminal) {
    // Return to the first column, write, clear the rest of the line.
    std::fprintf(stderr, "\r%s\033[K", line.c_str());
    has_bar_ = true;
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

void ProgressTerminal::clear() {
  if (!has_bar_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  has_bar_ = false;
}

}  // namespace moe::app
