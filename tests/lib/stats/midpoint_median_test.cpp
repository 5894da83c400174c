#include "lib/stats/midpoint_median.hpp"

#include <gtest/gtest.h>

namespace moe::stats {
namespace {

TEST(MidpointMedian, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(midpoint_median({7.0}), 7.0);
  EXPECT_EQ(midpoint_median({9.0, 1.0, 4.0}), 4.0);
  EXPECT_EQ(midpoint_median({9.0, 1.0, 4.0, 2.0}), 3.0);
  EXPECT_EQ(midpoint_median({2.0, 2.0, 8.0, 2.0}), 2.0);
}

}  // namespace
}  // namespace moe::stats
