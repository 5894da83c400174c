#include "lib/client/read_window.hpp"

#include <gtest/gtest.h>

namespace moe::client {
namespace {

constexpr double kSlow_s = 0.1;  // between two events of a stream

// Events one after the other, `interval_s` apart; the time of the last.
double note_events(ReadWindow& window, double begin_s, double interval_s, int count,
                   double gap_s = kSlow_s) {
  double time_s = begin_s;
  for (int i = 0; i < count; ++i) {
    time_s = begin_s + interval_s * i;
    window.note(gap_s, time_s);
  }
  return time_s;
}

TEST(ReadWindow, IsShutUntilEventsComeFast) {
  ReadWindow window;
  EXPECT_EQ(window.window_s(0.0), 0.0);
  double time_s = note_events(window, 1.0, 1.0 / 3000.0, 3000);
  EXPECT_EQ(window.window_s(time_s), 0.0);
  time_s = note_events(window, time_s, 1.0 / 6000.0, 300);
  EXPECT_EQ(window.window_s(time_s), ReadWindow::kWindow_s);
  // A burst of streams in step is followed by silence; a long one shuts it.
  EXPECT_EQ(window.window_s(time_s + 0.2), ReadWindow::kWindow_s);
  EXPECT_EQ(window.window_s(time_s + 0.3), 0.0);
}

TEST(ReadWindow, IsShutWhileStreamsAreFast) {
  ReadWindow window;
  // Ten streams of 1,000 tokens a second each.
  const double time_s = note_events(window, 0.0, 1e-4, 50'000, 1e-3);
  EXPECT_EQ(window.window_s(time_s), 0.0);
  // Two events in one read count as well.
  ReadWindow other;
  EXPECT_EQ(other.window_s(note_events(other, 0.0, 1e-4, 5000, 0.0)), 0.0);
}

TEST(ReadWindow, ShutsAtOnceAndStaysShutForAWhile) {
  ReadWindow window;
  double time_s = note_events(window, 0.0, 1e-4, 500);
  ASSERT_GT(window.window_s(time_s), 0.0);
  window.note(0.001, time_s);
  EXPECT_EQ(window.window_s(time_s), 0.0);
  time_s = note_events(window, time_s, 1e-4, 9000);
  EXPECT_EQ(window.window_s(time_s), 0.0);
  time_s = note_events(window, time_s, 1e-4, 2000);
  EXPECT_GT(window.window_s(time_s), 0.0);
}

TEST(ReadWindow, OneInAThousandMayBeClose) {
  ReadWindow window;
  double time_s = note_events(window, 0.0, 1e-4, 5000);
  for (int i = 0; i < 10; ++i) {
    window.note(0.001, time_s);
    EXPECT_GT(window.window_s(time_s), 0.0);
    time_s = note_events(window, time_s, 1e-4, 1000);
  }
  window.note(0.001, time_s);
  window.note(0.001, time_s);
  EXPECT_EQ(window.window_s(time_s), 0.0);
}

}  // namespace
}  // namespace moe::client
