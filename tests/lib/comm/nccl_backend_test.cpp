// The whole NCCL backend over the stand-in.

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/comm/agreement.hpp"
#include "lib/comm/nccl_job.hpp"
#include "lib/comm/tcp_store.hpp"
#include "tests/lib/comm/fake_nccl.hpp"

namespace moe::comm {
namespace {

using test::FakeBehaviour;
using test::FakeNccl;
using ::testing::Contains;
using ::testing::HasSubstr;

// Far more than any test takes: who gives up before did not wait for it.
constexpr double kNever_s = 600.0;

BackendOptions options_for(int num_ranks, double time_limit_s = kNever_s) {
  BackendOptions options;
  options.num_ranks = num_ranks;
  options.time_limit_s = time_limit_s;
  return options;
}

void run(const FakeNccl& fake, const BackendOptions& options,
         const std::function<void(Communicator&)>& body) {
  open_nccl_job_over(fake.libraries(), options)->run(body);
}

std::byte pattern(int sender, int receiver, std::int64_t at) {
  return static_cast<std::byte>((sender * 131 + receiver * 31 + at * 7 + 3) & 0xff);
}

// An exchange of counts[sender][receiver] bytes as one rank sees it; fills and checks its data.
class Traffic {
 public:
  using Counts = std::vector<std::vector<std::int64_t>>;

  Traffic(Communicator& communicator, Counts counts)
      : communicator_(communicator), counts_(std::move(counts)) {
    const std::size_t me = static_cast<std::size_t>(communicator_.rank());
    std::int64_t sent = 0;
    std::int64_t received = 0;
    for (std::size_t peer = 0; peer < counts_.size(); ++peer) {
      send_bytes_.push_back(counts_[me][peer]);
      recv_bytes_.push_back(counts_[peer][me]);
      send_offsets_.push_back(sent);
      recv_offsets_.push_back(received);
      sent += counts_[me][peer];
      received += counts_[peer][me];
    }
    send_ = communicator_.allocate(sent);
    recv_ = communicator_.allocate(received);
    std::vector<std::byte> host;
    for (std::size_t peer = 0; peer < counts_.size(); ++peer) {
      for (std::int64_t at = 0; at < send_bytes_[peer]; ++at) {
        host.push_back(pattern(communicator_.rank(), static_cast<int>(peer), at));
      }
    }
    communicator_.copy_in(send_.data, host.data(), sent);
  }

  [[nodiscard]] Exchange exchange() const {
    Exchange exchange;
    exchange.send = send_.data;
    exchange.recv = recv_.data;
    exchange.send_bytes = send_bytes_;
    exchange.send_offsets = send_offsets_;
    exchange.recv_bytes = recv_bytes_;
    exchange.recv_offsets = recv_offsets_;
    return exchange;
  }

  // Senders whose bytes are not what they should be.
  [[nodiscard]] std::vector<int> wrong_senders() const {
    std::vector<int> wrong;
    std::vector<std::byte> host(static_cast<std::size_t>(recv_.size_bytes));
    communicator_.copy_out(host.data(), recv_.data, recv_.size_bytes);
    for (std::size_t peer = 0; peer < counts_.size(); ++peer) {
      bool is_right = true;
      for (std::int64_t at = 0; at < recv_bytes_[peer]; ++at) {
        is_right = is_right && host[static_cast<std::size_t>(recv_offsets_[peer] + at)] ==
                                   pattern(static_cast<int>(peer), communicator_.rank(), at);
      }
      if (!is_right) wrong.push_back(static_cast<int>(peer));
    }
    return wrong;
  }

 private:
  Communicator& communicator_;
  Counts counts_;
  std::vector<std::int64_t> send_bytes_;
  std::vector<std::int64_t> recv_bytes_;
  std::vector<std::int64_t> send_offsets_;
  std::vector<std::int64_t> recv_offsets_;
  Buffer send_;
  Buffer recv_;
};

// Zero counts, and rank 2 neither sends nor receives.
Traffic::Counts uneven_counts(int num_ranks) {
  Traffic::Counts counts(static_cast<std::size_t>(num_ranks));
  for (int sender = 0; sender < num_ranks; ++sender) {
    for (int receiver = 0; receiver < num_ranks; ++receiver) {
      const bool is_empty = sender == 2 || receiver == 2 || (sender + 2 * receiver) % 5 == 0;
      counts[static_cast<std::size_t>(sender)].push_back(
          is_empty ? 0 : 100 * sender + 17 * receiver + 1);
    }
  }
  return counts;
}

Traffic::Counts uniform_counts(int num_ranks, std::int64_t bytes) {
  const std::size_t n = static_cast<std::size_t>(num_ranks);
  return Traffic::Counts(n, std::vector<std::int64_t>(n, bytes));
}

std::int64_t num_pairs(const Traffic::Counts& counts) {
  std::int64_t pairs = 0;
  for (std::size_t a = 0; a < counts.size(); ++a) {
    for (std::size_t b = 0; b < counts.size(); ++b) pairs += a != b && counts[a][b] > 0 ? 1 : 0;
  }
  return pairs;
}

template <typename Body>
std::string error_of(const Body& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(NcclBackend, MovesUnevenPartsWithEmptyRanksByteForByte) {
  for (const int num_ranks : {1, 2, 3, 4, 8}) {
    FakeNccl fake;
    std::atomic<int> num_checked{0};
    run(fake, options_for(num_ranks), [&](Communicator& communicator) {
      EXPECT_EQ(communicator.num_ranks(), num_ranks);
      for (int round = 0; round < 3; ++round) {
        Traffic traffic(communicator, uneven_counts(num_ranks));
        communicator.all_to_all(traffic.exchange());
        EXPECT_TRUE(traffic.wrong_senders().empty()) << communicator.rank();
        ++num_checked;
      }
    });
    EXPECT_EQ(num_checked, 3 * num_ranks);
    // One group an exchange and rank; a pair that moves nothing posts nothing.
    EXPECT_EQ(fake.num_calls("ncclGroupStart"), 3 * num_ranks);
    EXPECT_EQ(fake.num_calls("ncclSend"), 3 * num_pairs(uneven_counts(num_ranks)));
    EXPECT_EQ(fake.num_calls("ncclRecv"), 3 * num_pairs(uneven_counts(num_ranks)));
    EXPECT_EQ(fake.num_aborted(), 0);
    EXPECT_EQ(fake.num_left(), 0);
  }
}

TEST(NcclBackend, GathersSumsAndMeets) {
  FakeNccl fake;
  constexpr int kRanks = 4;
  run(fake, options_for(kRanks), [](Communicator& communicator) {
    const float mine = static_cast<float>(communicator.rank() + 1);
    std::vector<float> values(kRanks * 3, mine);
    const std::int64_t bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
    const Buffer send = communicator.allocate(bytes);
    const Buffer recv = communicator.allocate(bytes * kRanks);
    communicator.copy_in(send.data, reinterpret_cast<const std::byte*>(values.data()), bytes);
    communicator.all_gather(send.data, recv.data, bytes);
    std::vector<float> all(values.size() * kRanks);
    communicator.copy_out(reinterpret_cast<std::byte*>(all.data()), recv.data, bytes * kRanks);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i], static_cast<float>(i / values.size() + 1));
    }
    communicator.barrier();
    communicator.reduce_scatter_sum(reinterpret_cast<const float*>(send.data),
                                    reinterpret_cast<float*>(recv.data), 3);
    communicator.copy_out(reinterpret_cast<std::byte*>(all.data()), recv.data, 12);
    EXPECT_EQ(all[2], 10.0F);
    EXPECT_EQ(communicator.exchange_texts(std::to_string(communicator.rank()))[3], "3");
    EXPECT_THAT(communicator.place().device, HasSubstr("0000:"));
  });
  EXPECT_EQ(fake.num_calls("ncclAllGather"), kRanks);
  EXPECT_EQ(fake.num_left(), 0);
}

TEST(NcclBackend, TakesTheLibrarysAllToAllWhereItExists) {
  for (const bool has_it : {true, false}) {
    FakeBehaviour behaviour;
    behaviour.has_all_to_all = has_it;
    FakeNccl fake(behaviour);
    BackendOptions options = options_for(4);
    options.uses_own_all_to_all = true;
    run(fake, options, [&](Communicator& communicator) {
      Traffic traffic(communicator, uniform_counts(4, 64));
      Exchange exchange = traffic.exchange();
      exchange.uniform_bytes = 64;
      communicator.all_to_all(exchange);
      EXPECT_TRUE(traffic.wrong_senders().empty());
      Traffic uneven(communicator, uneven_counts(4));
      communicator.all_to_all(uneven.exchange());
      EXPECT_TRUE(uneven.wrong_senders().empty());
    });
    EXPECT_EQ(fake.num_calls("ncclAlltoAll"), has_it ? 4 : 0);
    EXPECT_EQ(fake.num_calls("ncclGroupStart"), has_it ? 4 : 8);
  }
}

TEST(NcclBackend, RegistersBuffersOfOneSizeAtAllRanks) {
  for (const bool has_windows : {true, false}) {
    FakeBehaviour behaviour;
    behaviour.has_windows = has_windows;
    FakeNccl fake(behaviour);
    BackendOptions options = options_for(4);
    options.registers_buffers = true;
    const std::unique_ptr<Job> job = open_nccl_job_over(fake.libraries(), options);
    job->run([&](Communicator& communicator) {
      Traffic traffic(communicator, uneven_counts(4));
      communicator.all_to_all(traffic.exchange());
      EXPECT_TRUE(traffic.wrong_senders().empty());
    });
    EXPECT_EQ(fake.num_calls("ncclCommWindowRegister"), has_windows ? 8 : 0);
    EXPECT_FALSE(fake.has_uneven_windows());
    EXPECT_EQ(fake.num_left(), 0);
    const std::string text = has_windows ? "registered as symmetric windows"
                                         : "not registered: this version of NCCL has no windows";
    EXPECT_THAT(job->facts(), Contains(std::pair<std::string, std::string>("buffers", text)));
  }
}

TEST(NcclBackend, APairThatHangsIsNamed) {
  FakeBehaviour behaviour;
  behaviour.hangs = {{1, 3}};
  FakeNccl fake(behaviour);
  try {
    run(fake, options_for(4, 0.3), [](Communicator& communicator) {
      Traffic traffic(communicator, uniform_counts(4, 128));
      communicator.all_to_all(traffic.exchange());
      communicator.barrier();
    });
    FAIL() << "the pair hangs";
  } catch (const StuckError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 -> rank 3"));
  }
  EXPECT_EQ(fake.num_left(), 0);
}

TEST(NcclBackend, ARankThatNeverJoinsEndsTheStart) {
  FakeBehaviour behaviour;
  behaviour.init_hangs_at = 2;
  FakeNccl fake(behaviour);
  EXPECT_THAT(
      error_of([&] { run(fake, options_for(3, 0.2), [](Communicator&) {}); }, ErrorCode::kRuntime),
      HasSubstr("start of NCCL"));
  EXPECT_EQ(fake.num_left(), 0);
}

TEST(NcclBackend, CorruptBytesArriveAsTheyAre) {
  FakeBehaviour behaviour;
  behaviour.corrupts = {{0, 1}};
  FakeNccl fake(behaviour);
  run(fake, options_for(3), [](Communicator& communicator) {
    Traffic traffic(communicator, uniform_counts(3, 1000));
    communicator.all_to_all(traffic.exchange());
    const std::vector<int> expected =
        communicator.rank() == 1 ? std::vector{0} : std::vector<int>{};
    EXPECT_EQ(traffic.wrong_senders(), expected);
  });
}

TEST(NcclBackend, CountsThatDifferAreReportedAtOnce) {
  const auto body = [](bool is_checked, Communicator& communicator) {
    // Rank 2 believes that rank 0 sends it 64 bytes; it sends 32.
    Traffic::Counts counts = uniform_counts(4, 32);
    if (communicator.rank() == 2) counts[0][2] = 64;
    Traffic traffic(communicator, counts);
    if (is_checked) require_agreement(communicator, traffic.exchange());
    communicator.all_to_all(traffic.exchange());
  };
  FakeNccl fake;
  // By the exchange of counts: before a byte moves.
  const std::string agreed =
      error_of([&] { run(fake, options_for(4), [&](Communicator& c) { body(true, c); }); },
               ErrorCode::kUsage);
  EXPECT_THAT(agreed, HasSubstr("32"));
  EXPECT_THAT(agreed, HasSubstr("64"));
  EXPECT_EQ(fake.num_calls("ncclSend"), 0);
  // By the library, where nobody asked before.
  const std::string late =
      error_of([&] { run(fake, options_for(4), [&](Communicator& c) { body(false, c); }); },
               ErrorCode::kRuntime);
  EXPECT_THAT(late, HasSubstr("rank 2"));
  EXPECT_THAT(late, HasSubstr("invalid usage"));
  EXPECT_EQ(fake.num_left(), 0);
}

TEST(NcclBackend, FailuresOfTheLibrariesNameCallRankAndReason) {
  const auto error_when = [](const char* call, int rank, int result) {
    FakeBehaviour behaviour;
    behaviour.fails[{call, rank}] = result;
    FakeNccl fake(behaviour);
    const std::string text = error_of(
        [&] {
          run(fake, options_for(3), [](Communicator& communicator) {
            Traffic traffic(communicator, uniform_counts(3, 64));
            communicator.all_to_all(traffic.exchange());
            communicator.barrier();
          });
        },
        ErrorCode::kRuntime);
    EXPECT_EQ(fake.num_left(), 0) << call;
    return text;
  };
  const std::string init = error_when("ncclCommInitRankConfig", 1, 2);
  EXPECT_THAT(init, HasSubstr("rank 1"));
  EXPECT_THAT(init, HasSubstr("ncclCommInitRankConfig: unhandled system error"));
  EXPECT_THAT(init, HasSubstr("last words of the library"));
  EXPECT_THAT(error_when("ncclSend", 2, 5), HasSubstr("ncclSend: invalid usage"));
  EXPECT_THAT(error_when("ncclRecv", 0, 6), HasSubstr("ncclRecv: remote process"));
  EXPECT_THAT(error_when("ncclAllReduce", 0, 2), HasSubstr("ncclAllReduce"));
  EXPECT_THAT(error_when("ncclGetUniqueId", -1, 2), HasSubstr("ncclGetUniqueId"));
  EXPECT_THAT(error_when("ncclGroupEnd", -1, 2), HasSubstr("ncclGroupEnd"));
}

TEST(NcclBackend, AnErrorThatComesLaterIsNoticedWhileWaiting) {
  FakeBehaviour behaviour;
  behaviour.async_errors = {{1, 6}};
  behaviour.hangs = {{0, 1}};
  FakeNccl fake(behaviour);
  EXPECT_THAT(error_of(
                  [&] {
                    run(fake, options_for(2), [](Communicator& communicator) {
                      Traffic traffic(communicator, uniform_counts(2, 64));
                      communicator.all_to_all(traffic.exchange());
                    });
                  },
                  ErrorCode::kRuntime),
              HasSubstr("all-to-all of 128 bytes: remote process exited"));
}

TEST(NcclBackend, OneRankThatFailsReleasesTheOthers) {
  FakeNccl fake;
  EXPECT_THAT(error_of(
                  [&] {
                    run(fake, options_for(4), [](Communicator& communicator) {
                      if (communicator.rank() == 2) throw Error(ErrorCode::kInput, "its own fault");
                      Traffic traffic(communicator, uniform_counts(4, 64));
                      communicator.all_to_all(traffic.exchange());
                    });
                  },
                  ErrorCode::kInput),
              HasSubstr("its own fault"));
  EXPECT_EQ(fake.num_left(), 0);
}

TEST(NcclBackend, RefusesTwoRanksOnOneGpu) {
  FakeBehaviour behaviour;
  behaviour.num_devices = 2;
  FakeNccl fake(behaviour);
  EXPECT_THAT(error_of([&] { run(fake, options_for(3), [](Communicator&) {}); }, ErrorCode::kUsage),
              HasSubstr("ranks 0 and 2 both have the GPU"));
  EXPECT_EQ(open_nccl_job_over(fake.libraries(), options_for(0))->num_ranks(), 2);
}

// A process of its own for each rank, as torchrun starts them, here a thread with a job of its own.
class UnderTorchrun : public ::testing::Test {
 protected:
  UnderTorchrun() { port_ = listen_for_ranks(0).port; }

  [[nodiscard]] BackendOptions options(int rank, int num_ranks) const {
    BackendOptions options = options_for(0);
    options.launcher.name = "torchrun";
    options.launcher.rank = rank;
    options.launcher.num_ranks = num_ranks;
    options.launcher.local_rank = rank;
    options.launcher.store_host = "localhost";
    options.launcher.store_port = port_;
    return options;
  }

  // What each rank's body threw, or the exit code that the ranks agreed on.
  std::vector<std::string> run_all(const FakeNccl& fake, int num_ranks,
                                   const std::function<void(Communicator&)>& body) const {
    std::vector<std::string> outcomes(static_cast<std::size_t>(num_ranks));
    std::vector<std::thread> processes;
    for (int rank = 0; rank < num_ranks; ++rank) {
      processes.emplace_back([&, rank] {
        std::string& outcome = outcomes[static_cast<std::size_t>(rank)];
        try {
          const std::unique_ptr<Job> job =
              open_nccl_job_over(fake.libraries(), options(rank, num_ranks));
          EXPECT_EQ(job->has_rank_0(), rank == 0);
          job->run(body);
          outcome = std::to_string(job->agree_exit_code(rank == 0 ? 6 : 0));
        } catch (const Error& error) {
          outcome = error.what();
        }
      });
    }
    for (std::thread& process : processes) process.join();
    return outcomes;
  }

  int port_ = 0;
};

TEST_F(UnderTorchrun, RanksMeetOverTcp) {
  FakeNccl fake;
  const std::vector<std::string> outcomes = run_all(fake, 4, [](Communicator& communicator) {
    Traffic traffic(communicator, uneven_counts(4));
    require_agreement(communicator, traffic.exchange());
    communicator.all_to_all(traffic.exchange());
    EXPECT_TRUE(traffic.wrong_senders().empty());
  });
  EXPECT_THAT(outcomes, ::testing::Each(std::string("6")));
  EXPECT_EQ(fake.num_left(), 0);
}

TEST_F(UnderTorchrun, ARankThatFailsIsNamedByTheOthers) {
  FakeNccl fake;
  const std::vector<std::string> outcomes = run_all(fake, 3, [](Communicator& communicator) {
    if (communicator.rank() == 1) throw Error(ErrorCode::kInput, "its own fault");
    (void)communicator.exchange_texts("waiting");
  });
  EXPECT_EQ(outcomes[1], "its own fault");
  EXPECT_THAT(outcomes[0], HasSubstr("rank 1 gave up: its own fault"));
  EXPECT_THAT(outcomes[2], HasSubstr("rank 1"));
}

TEST_F(UnderTorchrun, NeedsAPlaceToMeet) {
  FakeNccl fake;
  BackendOptions lost = options(0, 2);
  lost.launcher.store_host.clear();
  EXPECT_THAT(
      error_of([&] { (void)open_nccl_job_over(fake.libraries(), lost); }, ErrorCode::kUsage),
      HasSubstr("MASTER_ADDR"));
}

TEST(NcclLibraries, WithoutADriverTheReasonIsGiven) {
  FakeBehaviour behaviour;
  behaviour.device_error = kCudaErrorInsufficientDriver;
  behaviour.driver_version = 0;
  FakeNccl fake(behaviour);
  NcclLibraries libraries = fake.libraries();
  EXPECT_THAT(error_of([&] { check_nccl(libraries); }, ErrorCode::kUnavailable),
              HasSubstr("no NVIDIA driver is loaded (cudaErrorInsufficientDriver)"));
}

TEST(NcclLibraries, WithoutAGpuTheReasonIsGiven) {
  FakeBehaviour behaviour;
  behaviour.num_devices = 0;
  FakeNccl fake(behaviour);
  NcclLibraries libraries = fake.libraries();
  EXPECT_THAT(error_of([&] { check_nccl(libraries); }, ErrorCode::kUnavailable),
              HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(NcclLibraries, AMissingLibraryIsNamed) {
  NcclSonames names;
  names.cuda = {"libno-such-cudart.so.1"};
  EXPECT_THAT(error_of([&] { (void)load_nccl(names); }, ErrorCode::kUnavailable),
              HasSubstr("libno-such-cudart.so.1"));
}

// Whatever this machine has, opening never crashes, and says why not.
TEST(NcclLibraries, OpenOrSayWhyNot) {
  try {
    EXPECT_GT(load_nccl().num_devices, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("--backend nccl"));
  }
}

}  // namespace
}  // namespace moe::comm
