#include "lib/base/thread_pool.hpp"

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunCallsEveryThreadOnce) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.num_threads(), GetParam());
  for (int round = 0; round < 50; ++round) {
    std::vector<int> num_calls(static_cast<std::size_t>(GetParam()));
    pool.run([&](int thread_idx) { ++num_calls.at(static_cast<std::size_t>(thread_idx)); });
    EXPECT_EQ(num_calls, std::vector<int>(num_calls.size(), 1));
  }
}

TEST_P(ThreadPoolTest, ForEachVisitsEveryIndexOnce) {
  ThreadPool pool(GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 1000}) {
    std::vector<int> num_visits(static_cast<std::size_t>(count));
    pool.for_each(count, [&](std::int64_t index, int thread_idx) {
      ++num_visits.at(static_cast<std::size_t>(index));
      if (thread_idx < 0 || thread_idx >= GetParam()) throw std::logic_error("bad thread index");
    });
    EXPECT_EQ(num_visits, std::vector<int>(num_visits.size(), 1));
  }
}

TEST_P(ThreadPoolTest, ExceptionOfAnyThreadReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  for (int thrower = 0; thrower < GetParam(); ++thrower) {
    try {
      pool.run([&](int thread_idx) {
        if (thread_idx == thrower) throw std::runtime_error("thread " + std::to_string(thrower));
      });
      FAIL() << "the exception was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "thread " + std::to_string(thrower));
    }
    std::atomic<int> num_calls{0};
    pool.run([&](int) { num_calls.fetch_add(1); });
    EXPECT_EQ(num_calls.load(), GetParam());
  }
}

TEST_P(ThreadPoolTest, OneOfManyExceptionsIsRethrown) {
  ThreadPool pool(GetParam());
  EXPECT_THROW(pool.run([](int) { throw std::runtime_error("all"); }), std::runtime_error);
  EXPECT_THROW(
      pool.for_each(100, [](std::int64_t, int) { throw std::runtime_error("every index"); }),
      std::runtime_error);
  EXPECT_NO_THROW(pool.run([](int) {}));
}

TEST_P(ThreadPoolTest, WritesOfOneRegionAreSeenInTheNext) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(64, 0);
  for (int round = 0; round < 200; ++round) {
    // Each element goes to another thread each round.
    pool.for_each(64, [&](std::int64_t index, int) { ++values[static_cast<std::size_t>(index)]; });
  }
  EXPECT_EQ(values, std::vector<std::int64_t>(64, 200));
}

INSTANTIATE_TEST_SUITE_P(ThreadCounts, ThreadPoolTest, ::testing::Values(1, 2, 3, 16));

TEST(ThreadPool, WorkersThatFellAsleepWakeUp) {
  ThreadPool pool(4);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> num_calls{0};
    pool.run([&](int) { num_calls.fetch_add(1); });
    EXPECT_EQ(num_calls.load(), 4);
  }
}

TEST(ThreadPool, CallerWaitsForASlowWorker) {
  ThreadPool pool(3);
  std::atomic<bool> is_done{false};
  pool.run([&](int thread_idx) {
    if (thread_idx != 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_done.store(true);
  });
  EXPECT_TRUE(is_done.load());
}

TEST(ThreadPool, CanBeMadeAndDroppedWithoutWork) {
  for (int round = 0; round < 20; ++round) const ThreadPool pool(5);
}

TEST(ThreadPool, ConstBodyCanBeRun) {
  ThreadPool pool(2);
  std::atomic<int> num_calls{0};
  const auto body = [&](int) { num_calls.fetch_add(1); };
  pool.run(body);
  EXPECT_EQ(num_calls.load(), 2);
}

TEST(ThreadPoolDeathTest, NestedRunIsABugNotADeadlock) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.run([&](int) { pool.run([](int) {}); });
      },
      "check failed");
}

TEST(ThreadPool, MoreThreadsThanTheLimitIsAnError) {
  EXPECT_THROW(ThreadPool(ThreadPool::kMaxThreads + 1), Error);
}

}  // namespace
}  // namespace moe
