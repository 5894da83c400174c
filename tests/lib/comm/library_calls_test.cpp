// Goal: a thread that was left inside a library touches nothing any more; one that is outside
// cannot be left. Method: a call that blocks until told.

#include "lib/comm/library_calls.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace moe::comm {
namespace {

TEST(LibraryCalls, GiveTheResultOfACallThatComesBack) {
  LibraryCalls calls;
  EXPECT_EQ(calls.inside([] { return 7; }), 7);
  EXPECT_EQ(calls.inside([] { return 8; }), 8);
  EXPECT_EQ(calls.num_calls(), 2);
  EXPECT_FALSE(calls.abandon());
}

// What the left thread uses outlives the test: it ends with the process only.
struct LeftThread {
  LibraryCalls calls;
  std::promise<void> is_inside;
  std::promise<void> may_leave;
  std::promise<void> has_left;
};

TEST(LibraryCalls, NeverReturnOnceAbandoned) {
  const auto shared = std::make_shared<LeftThread>();
  std::thread([shared] {
    shared->calls.inside([&] {
      shared->is_inside.set_value();
      shared->may_leave.get_future().wait();
      return 0;
    });
    shared->has_left.set_value();
  }).detach();
  shared->is_inside.get_future().wait();
  EXPECT_TRUE(shared->calls.abandon());
  EXPECT_FALSE(shared->calls.abandon());
  shared->may_leave.set_value();
  EXPECT_EQ(shared->has_left.get_future().wait_for(std::chrono::milliseconds(50)),
            std::future_status::timeout);
}

}  // namespace
}  // namespace moe::comm
