#pragma once

// Progress on stderr: a bar with rate and remaining time on a terminal, a line every few seconds
// otherwise, nothing at all when quiet.

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/clock.hpp"
#include "lib/base/progress.hpp"

namespace moe::app {

struct ProgressStyle {
  bool is_quiet = false;
  bool is_terminal = false;
  double line_interval_s = 5.0;  // between lines when it is not a terminal
};

// What stderr is, found once.
[[nodiscard]] ProgressStyle progress_style(bool is_quiet);

class ProgressTerminal final : public Progress {
 public:
  ProgressTerminal(const ProgressStyle& style, const Clock& clock);
  ~ProgressTerminal() override;

  void begin(std::string_view stage, std::int64_t total, std::string_view unit) override;
  void update(std::int64_t done) override;
  void end() override;

 private:
  void show(std::int64_t done, double now_s);
  void clear();

  ProgressStyle style_;
  const Clock* clock_;  // outlives this
  std::string stage_;
  std::string unit_;
  std::int64_t total_ = 0;
  std::int64_t done_ = 0;
  double begin_s_ = 0.0;
  double shown_s_ = 0.0;
  bool is_running_ = false;
  bool has_bar_ = false;
};

// "experts  [#####.....]  52 %  1.2 GB/s  3.4 s left", without control characters. `elapsed_s` > 0.
[[nodiscard]] std::string progress_line(std::string_view stage, std::int64_t done,
                                        std::int64_t total, std::string_view unit,
                                        double elapsed_s);

}  // namespace moe::app
