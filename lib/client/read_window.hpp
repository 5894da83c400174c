#pragma once

// How long a loop may let bytes lie before it looks at its sockets again. Arrivals come from the
// kernel's receive time stamps, so a later look changes no time, and one wake-up, dearer than a
// read, serves many sockets. What it could change is which events are read together: two events of
// one stream in one read are one arrival. So a window is open only while events come fast, over so
// many streams that each is slow against it.

#include <cstdint>

namespace moe::client {

class ReadWindow {
 public:
  static constexpr double kWindow_s = 0.4e-3;
  // Slower than this there is time to look at each event when it comes.
  static constexpr double kMinRate_per_s = 4000.0;
  // Events of one stream are close when they come sooner one after the other...
  static constexpr double kClose_s = 15.0 * kWindow_s;
  // ...and that may happen once in so many. Otherwise the window stays shut for a while.
  static constexpr std::int64_t kMinGapsBetweenClose = 1000;
  static constexpr double kBar_s = 1.0;
  // It opens after so many events in a row, at the rate and none of them close, until some time has
  // passed without as many: streams that go in step come in bursts.
  static constexpr std::int64_t kRun = 100;
  static constexpr double kHold_s = 0.25;

  // An event with tokens came at `time_s`, `gap_s` after the one before it in its stream.
  void note(double gap_s, double time_s);
  // 0: look as soon as there is something.
  [[nodiscard]] double window_s(double now_s) const {
    return now_s < open_until_s_ ? kWindow_s : 0.0;
  }

 private:
  double open_until_s_ = -1.0;
  double barred_until_s_ = -1.0;
  double run_begin_s_ = 0.0;
  std::int64_t run_length_ = 0;
  std::int64_t num_since_close_ = 0;
};

}  // namespace moe::client
