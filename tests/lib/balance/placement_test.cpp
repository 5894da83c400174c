#include "lib/balance/placement.hpp"

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/balance/support.hpp"

namespace moe::balance {
namespace {

TEST(Placement, CountsMovedSlotsWithoutRegardToTheirOrderOnAGpu) {
  const Cluster cluster = uniform_cluster(2, 4, 1);
  Placement from = linear_placement(cluster, 1, 4);
  Placement to = from;
  to.slot_expert = {1, 0, 3, 2};
  EXPECT_EQ(moved_slots(from, to), 0);
  to.slot_expert = {2, 0, 3, 1};
  EXPECT_EQ(moved_slots(from, to), 2);
}

}  // namespace
}  // namespace moe::balance
