#include "lib/base/clock.hpp"

#include <gtest/gtest.h>

namespace moe {
namespace {

TEST(Clock, SteadyNeverGoesBack) {
  const SteadyClock clock;
  double last_s = clock.now_s();
  for (int reading = 0; reading < 1000; ++reading) {
    const double now_s = clock.now_s();
    ASSERT_GE(now_s, last_s);
    last_s = now_s;
  }
}

TEST(Clock, FakeMovesOnlyByHand) {
  FakeClock clock;
  EXPECT_EQ(clock.now_s(), 0.0);
  clock.advance_s(1.5);
  clock.advance_s(0.25);
  EXPECT_EQ(clock.now_s(), 1.75);
}

}  // namespace
}  // namespace moe
