#include "lib/comm/tcp_store.hpp"

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/base/clock.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/comm/tcp_message.hpp"

namespace moe::comm {
namespace {

using ::testing::HasSubstr;

constexpr double kMeetLimit_s = 60.0;  // of tests in which all ranks come

StoreOptions options_of(int rank, int num_ranks, int port) {
  StoreOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.rank = rank;
  options.num_ranks = num_ranks;
  options.who = "host-" + std::to_string(rank);
  options.must_agree = "NCCL 2.28.9";
  options.meet_limit_s = kMeetLimit_s;
  options.time_limit_s = kMeetLimit_s;
  return options;
}

// Runs body(rank, port) on a thread for each rank but 0, which runs here with the listener.
class Ranks {
 public:
  explicit Ranks(int num_ranks) : num_ranks_(num_ranks), listener_(listen_for_ranks(0)) {}
  ~Ranks() { join(); }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] int port() const { return listener_.port; }
  [[nodiscard]] StoreOptions options(int rank) const {
    return options_of(rank, num_ranks_, port());
  }
  void start(std::function<void()> body) { threads_.emplace_back(std::move(body)); }
  [[nodiscard]] StoreListener take_listener() { return std::move(listener_); }

 private:
  int num_ranks_;
  StoreListener listener_;
  std::vector<std::thread> threads_;
};

// What an operation threw; empty when it did not.
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A stranger's connection to the port.
Socket connect_to(int port) {
  Socket stranger(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return stranger;
}

void send_bytes(const Socket& socket, const std::string& bytes) {
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(TcpStore, GivesAllTextsToAllInTheirOrder) {
  constexpr int kRanks = 5;
  Ranks ranks(kRanks);
  std::atomic<int> num_right{0};
  const auto body = [&](TcpStore& store, int rank) {
    for (int round = 0; round < 20; ++round) {
      // Larger than a socket buffer now and then.
      const std::size_t size = round == 7 ? 3000000 : static_cast<std::size_t>(rank + round);
      const auto texts = store.exchange_texts(std::string(size, static_cast<char>('a' + rank)));
      bool is_right = texts.size() == kRanks;
      for (std::size_t r = 0; r < texts.size(); ++r) {
        const std::size_t expected = round == 7 ? 3000000 : r + static_cast<std::size_t>(round);
        is_right = is_right && texts[r] == std::string(expected, static_cast<char>('a' + r));
      }
      num_right += is_right ? 1 : 0;
    }
  };
  for (int rank = 1; rank < kRanks; ++rank) {
    ranks.start([&, rank, options = ranks.options(rank)] {
      TcpStore store(options);
      body(store, rank);
    });
  }
  TcpStore first(ranks.options(0), ranks.take_listener());
  body(first, 0);
  ranks.join();
  EXPECT_EQ(num_right, kRanks * 20);
}

TEST(TcpStore, StrangersDoNotEndTheRun) {
  Ranks ranks(2);
  std::vector<Socket> strangers;
  const std::vector<std::string> greetings = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(4096, '\xff'),
      encode_message({StoreMessageKind::kHello, 1, 0, "no list of texts"}),
      encode_message({StoreMessageKind::kShare, 1, 0, encode_texts({"a", "b", "c"})}),
      encode_message({StoreMessageKind::kHello, 9, 0, encode_texts({"2", "NCCL 2.28.9", "x"})}),
      encode_message({StoreMessageKind::kHello, 0, 0, encode_texts({"2", "NCCL 2.28.9", "x"})}),
      encode_message({StoreMessageKind::kHello, 1, 0, ""}).substr(0, 9),
      ""};
  for (const std::string& greeting : greetings) {
    strangers.push_back(connect_to(ranks.port()));
    if (!greeting.empty()) send_bytes(strangers.back(), greeting);
  }
  ranks.start([options = ranks.options(1)] {
    TcpStore store(options);
    EXPECT_EQ(store.exchange_texts("one").front(), "zero");
  });
  TcpStore first(ranks.options(0), ranks.take_listener());
  EXPECT_EQ(first.exchange_texts("zero").back(), "one");
}

TEST(TcpStore, RanksThatDisagreeAreNamedAtBothSides) {
  Ranks ranks(2);
  StoreOptions other = ranks.options(1);
  other.num_ranks = 4;
  other.must_agree = "NCCL 2.27.3";
  std::string at_other;
  {
    std::thread thread([&] { at_other = error_of([&] { TcpStore store(other); }); });
    const std::string at_first =
        error_of([&] { TcpStore store(ranks.options(0), ranks.take_listener()); });
    thread.join();
    EXPECT_THAT(at_first, HasSubstr("2 ranks, NCCL 2.28.9 at rank 0 (host-0)"));
    EXPECT_THAT(at_first, HasSubstr("4 ranks, NCCL 2.27.3 at rank 1 (host-1)"));
  }
  EXPECT_THAT(at_other, HasSubstr("NCCL 2.27.3 at rank 1"));
}

TEST(TcpStore, NamesTheRanksThatDidNotCome) {
  Ranks ranks(4);
  StoreOptions options = ranks.options(0);
  options.meet_limit_s = 0.3;
  try {
    TcpStore store(options, ranks.take_listener());
    FAIL() << "nobody came";
  } catch (const StuckError& error) {
    EXPECT_THAT(error.what(), HasSubstr("3 did not come"));
    ASSERT_EQ(error.reports().size(), 1U);
    EXPECT_EQ(error.reports()[0].pairs.size(), 3U);
    EXPECT_EQ(error.reports()[0].pairs[1], (StuckPair{2, 0}));
  }
  options = ranks.options(1);
  options.port = 1;
  options.meet_limit_s = 0.3;
  EXPECT_THAT(error_of([&] { TcpStore store(options); }), HasSubstr("did not meet rank 0"));
}

TEST(TcpStore, ASecondProcessOfOneRankIsRefused) {
  std::string refusals[2];
  {
    Ranks ranks(3);
    std::atomic<int> num_refused{0};
    const auto join = [&ranks](int rank) {
      return error_of([options = ranks.options(rank)] {
        TcpStore store(options);
        (void)store.exchange_texts("here");
      });
    };
    for (std::string& refusal : refusals) {
      ranks.start([&] {
        refusal = join(1);
        num_refused += refusal.empty() ? 0 : 1;
      });
    }
    // Rank 2 comes when one of the two was refused: until then nobody is let in.
    ranks.start([&] {
      while (num_refused == 0) std::this_thread::yield();
      EXPECT_EQ(join(2), "");
    });
    EXPECT_EQ(error_of([&] {
                TcpStore first(ranks.options(0), ranks.take_listener());
                (void)first.exchange_texts("here");
              }),
              "");
    ranks.join();
  }
  EXPECT_THAT(refusals[0] + refusals[1], HasSubstr("rank 1 is there already: host-1"));
}

TEST(TcpStore, ALostRankAndOneThatGivesUpAreNamed) {
  Ranks ranks(3);
  std::atomic<bool> has_left{false};
  ranks.start([&, options = ranks.options(1)] {
    TcpStore store(options);
    EXPECT_THAT(error_of([&] { (void)store.exchange_texts("one"); }), HasSubstr("rank 2"));
  });
  ranks.start([&, options = ranks.options(2)] {
    {
      TcpStore store(options);
      store.give_up("stuck in an all-to-all");
    }
    has_left = true;
  });
  TcpStore first(ranks.options(0), ranks.take_listener());
  while (!has_left) std::this_thread::yield();
  EXPECT_THAT(error_of([&] { (void)first.exchange_texts("zero"); }),
              HasSubstr("rank 2 gave up: stuck in an all-to-all"));
}

TEST(TcpStore, ASilentRankIsNamedAtTheLimit) {
  Ranks ranks(2);
  std::atomic<bool> may_leave{false};
  ranks.start([&, options = ranks.options(1)] {
    TcpStore store(options);
    while (!may_leave) std::this_thread::yield();
  });
  StoreOptions options = ranks.options(0);
  options.time_limit_s = 0.2;
  TcpStore first(options, ranks.take_listener());
  try {
    (void)first.exchange_texts("zero");
    ADD_FAILURE() << "rank 1 sent nothing";
  } catch (const StuckError& error) {
    EXPECT_THAT(error.what(), HasSubstr("first rank 1"));
    EXPECT_EQ(error.reports().front().pairs.front(), (StuckPair{1, 0}));
    EXPECT_GE(error.reports().front().waited_s, 0.2);
  }
  may_leave = true;
}

TEST(TcpStore, AnInterruptEndsTheMeeting) {
  Interrupt interrupt;
  interrupt.request();
  StoreOptions options = options_of(0, 2, 0);
  options.interrupt = &interrupt;
  try {
    TcpStore store(options, listen_for_ranks(0));
    FAIL() << "nobody came";
  } catch (const StuckError& error) {
    EXPECT_TRUE(error.reports().front().was_interrupted);
  }
}

}  // namespace
}  // namespace moe::comm
