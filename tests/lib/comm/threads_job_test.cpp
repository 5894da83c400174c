// Threads that play ranks: what they exchange, and what happens when one does not come.

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/comm/agreement.hpp"
#include "lib/comm/faults.hpp"
#include "lib/comm/measure.hpp"
#include "tests/lib/comm/jobs.hpp"

namespace moe::comm {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ThreadsJob, ExchangesTextsInTheOrderOfRanks) {
  const std::unique_ptr<Job> job = threads_job(4);
  std::atomic<int> num_right{0};
  job->run([&](Communicator& communicator) {
    for (int round = 0; round < 50; ++round) {
      const std::string mine = std::to_string(communicator.rank() + round);
      const std::vector<std::string> texts = communicator.exchange_texts(mine);
      const bool is_right =
          texts == std::vector<std::string>{std::to_string(round), std::to_string(round + 1),
                                            std::to_string(round + 2), std::to_string(round + 3)};
      num_right += is_right ? 1 : 0;
    }
  });
  EXPECT_EQ(num_right, 4 * 50);
}

TEST(ThreadsJob, GathersAndSums) {
  const std::unique_ptr<Job> job = threads_job(3);
  std::atomic<int> num_wrong{0};
  job->run([&](Communicator& communicator) {
    const int rank = communicator.rank();
    std::vector<std::byte> mine(10, static_cast<std::byte>(rank + 1));
    std::vector<std::byte> all(30);
    communicator.all_gather(mine.data(), all.data(), 10);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<std::byte>(i / 10 + 1)) ++num_wrong;
    }
    // Block b of rank r holds 100 r + b everywhere; the sum over r is 300 + 3 b.
    constexpr std::int64_t kCount = 5000;
    std::vector<float> send(3 * kCount);
    for (std::size_t i = 0; i < send.size(); ++i) {
      send[i] = static_cast<float>(100 * rank) + static_cast<float>(i / kCount);
    }
    std::vector<float> sum(kCount);
    communicator.reduce_scatter_sum(send.data(), sum.data(), kCount);
    for (const float value : sum) {
      if (value != 300.0F + 3.0F * static_cast<float>(rank)) ++num_wrong;
    }
  });
  EXPECT_EQ(num_wrong, 0);
}

TEST(ThreadsJob, NamesTheRankThatDoesNotCome) {
  const std::unique_ptr<Job> job = threads_job(3, 0.3);
  try {
    job->run([&](Communicator& communicator) {
      Fault fault;
      fault.kind = FaultKind::kHang;
      fault.rank = 2;
      fault.delay_s = 1.0;
      const std::unique_ptr<Communicator> faulty = make_faulty(communicator, fault);
      MeasureOptions options;
      options.num_iterations = 3;
      (void)measure_exchange(*faulty, uniform_traffic(3, 4096), options);
    });
    FAIL() << "no error";
  } catch (const StuckError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    EXPECT_THAT(error.pairs(), Contains(StuckPair{2, 0}));
    EXPECT_THAT(error.pairs(), Contains(StuckPair{2, 1}));
    EXPECT_TRUE(error.pairs().front().sender == 2 || error.pairs().front().receiver == 2);
    EXPECT_FALSE(error.is_interruption());
  }
}

TEST(ThreadsJob, ThrowsTheFirstCauseAndReleasesTheOthers) {
  const std::unique_ptr<Job> job = threads_job(4);
  try {
    job->run([](Communicator& communicator) {
      if (communicator.rank() == 1) throw Error(ErrorCode::kInput, "the cause");
      communicator.barrier();
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_STREQ(error.what(), "the cause");
  }
}

TEST(ThreadsJob, RefusesCountsThatDifferInsteadOfWritingTooFar) {
  const std::unique_ptr<Job> job = threads_job(2);
  EXPECT_THROW(job->run([](Communicator& communicator) {
    const std::vector<std::int64_t> send{64, 64};
    const std::vector<std::int64_t> recv{64, communicator.rank() == 0 ? 32 : 64};
    const std::vector<std::int64_t> offsets{0, 64};
    std::vector<std::byte> out(128);
    std::vector<std::byte> in(128);
    communicator.all_to_all({out.data(), in.data(), send, offsets, recv, offsets});
  }),
               Error);
}

TEST(ThreadsJob, EndsItsWaitsWhenTheRunIsStopped) {
  Interrupt interrupt;
  BackendOptions options;
  options.num_ranks = 2;
  options.interrupt = &interrupt;
  const std::unique_ptr<Job> job = open_threads_job(options);
  try {
    job->run([&](Communicator& communicator) {
      if (communicator.rank() == 1) return;
      interrupt.request();
      communicator.barrier();
    });
    FAIL() << "no error";
  } catch (const StuckError& error) {
    EXPECT_TRUE(error.is_interruption());
  }
}

TEST(Agreement, FindsCountsThatDiffer) {
  const std::unique_ptr<Job> job = threads_job(2);
  std::atomic<int> num_found{0};
  job->run([&](Communicator& communicator) {
    const int rank = communicator.rank();
    const std::vector<std::int64_t> send{8, rank == 0 ? 100 : 8};
    const std::vector<std::int64_t> recv{8, 8};
    const std::vector<std::int64_t> offsets{0, 0};
    const Exchange exchange{nullptr, nullptr, send, offsets, recv, offsets};
    const std::vector<CountMismatch> mismatches = find_mismatches(communicator, exchange);
    if (mismatches.size() == 1 && mismatches[0].sender == 0 && mismatches[0].receiver == 1 &&
        mismatches[0].sent_bytes == 100 && mismatches[0].expected_bytes == 8) {
      ++num_found;
    }
    EXPECT_THROW(require_agreement(communicator, exchange), Error);
  });
  EXPECT_EQ(num_found, 2);
}

TEST(MergeStuck, PutsThePairThatBothEndsNameFirst) {
  const StuckError error = merge_stuck({{0, "barrier", 5.0, {{3, 0}}, false},
                                        {1, "all-to-all of 64 bytes", 5.0, {{1, 2}}, false},
                                        {2, "all-to-all of 64 bytes", 5.0, {{1, 2}}, false}},
                                       {});
  EXPECT_EQ(error.pairs().front(), (StuckPair{1, 2}));
  EXPECT_THAT(std::string(error.what()), HasSubstr("rank 1 -> rank 2"));
}

TEST(MergeStuck, SuspectsSilentRanksFirst) {
  const StuckError error = merge_stuck(
      {{0, "barrier", 5.0, {{1, 0}, {3, 0}}, false}, {1, "barrier", 5.0, {{0, 1}}, false}}, {3});
  EXPECT_EQ(error.pairs().front(), (StuckPair{3, 0}));
  EXPECT_THAT(std::string(error.what()), HasSubstr("nothing was heard of rank 3"));
}

}  // namespace
}  // namespace moe::comm
