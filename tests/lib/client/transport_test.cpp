// Exchanges against a server in the same thread, so that what has arrived when is known.

#include "lib/client/transport.hpp"

#include <cerrno>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/client/receive_time.hpp"

namespace moe::client {
namespace {

constexpr std::string_view kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

struct Heard final : ExchangeListener {
  void on_sent(double) override { ++num_sent; }
  void on_status(int value, double) override { status = value; }
  bool on_bytes(std::string_view bytes, double time_s) override {
    body.append(bytes);
    last_s = time_s;
    if (on_first) std::exchange(on_first, nullptr)();
    return body.find(stop_word) == std::string::npos;
  }
  void on_end(const ExchangeEnd& given, double) override {
    end = given;
    has_ended = true;
  }

  int num_sent = 0;
  int status = 0;
  std::string body;
  std::function<void()> on_first;
  std::string stop_word = "give up";
  double last_s = 0.0;
  bool has_ended = false;
  ExchangeEnd end;
};

// Sockets of the server's side; no thread.
class Peer {
 public:
  Peer() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener_, 256) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no socket to listen on");
    }
    port_ = ntohs(address.sin_port);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    for (const int fd : sockets) (void)close(fd);
    (void)close(listener_);
  }

  [[nodiscard]] Endpoint endpoint() const {
    return parse_endpoint("http://127.0.0.1:" + std::to_string(port_));
  }
  // Takes in what has connected.
  void accept_all() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int one = 1;
      (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      sockets.push_back(fd);
    }
  }
  static void say(int fd, std::string_view bytes) {
    ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads and forgets; true when there was something.
  static bool has_heard(int fd) {
    char buffer[4096];
    return recv(fd, buffer, sizeof buffer, 0) > 0;
  }

  std::vector<int> sockets;

 private:
  int listener_ = -1;
  int port_ = 0;
};

// Passes until `is_done` holds; gives up after many.
template <typename Predicate>
bool run_until(Transport& transport, Predicate&& is_done) {
  for (int pass = 0; pass < 500; ++pass) {
    if (is_done()) return true;
    transport.run_pass(monotonic_s() + 0.01);
  }
  return is_done();
}

// One stream whose first event has come.
struct Stream {
  explicit Stream(bool takes_bodies, double timeout_s = 600.0)
      : transport(peer.endpoint(), options_of(takes_bodies, timeout_s)) {
    exchange = transport.prepare("/v1/completions", "{}", "id", &heard);
    transport.start(exchange);
    run_until(transport, [&] {
      peer.accept_all();
      return peer.sockets.size() == 1 && Peer::has_heard(peer.sockets[0]);
    });
    Peer::say(peer.sockets.at(0), std::string(kHead) + "4\r\none \r\n");
    run_until(transport, [&] { return heard.body == "one "; });
  }
  static TransportOptions options_of(bool takes_bodies, double timeout_s) {
    TransportOptions options;
    options.takes_bodies = takes_bodies;
    options.timeout_s = timeout_s;
    return options;
  }
  void say(std::string_view bytes) const { Peer::say(peer.sockets[0], bytes); }
  bool ends() {
    return run_until(transport, [&] { return heard.has_ended; });
  }

  Peer peer;
  Heard heard;
  Transport transport;
  Transport::Exchange* exchange = nullptr;
};

// Whoever reads the chunks: libcurl alone, or this client while libcurl pauses.
class ChunkReading : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(BothWays, ChunkReading, testing::Bool());

TEST_P(ChunkReading, EndsWithTheBodyAndKeepsTheConnection) {
  Stream stream(GetParam());
  EXPECT_EQ(stream.heard.status, 200);
  stream.say("4\r\ntwo \r\n");
  EXPECT_TRUE(run_until(stream.transport, [&] { return stream.heard.body == "one two "; }));
  stream.say("5\r\nthree\r\n0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.body, "one two three");
  EXPECT_EQ(stream.heard.end.failure, Failure::kNone);
  // The next request goes over the same connection.
  Heard next;
  stream.transport.start(stream.transport.prepare("/v1/completions", "{}", "id", &next));
  EXPECT_TRUE(run_until(stream.transport, [&] { return Peer::has_heard(stream.peer.sockets[0]); }));
  stream.peer.accept_all();
  EXPECT_EQ(stream.peer.sockets.size(), 1U);
}

TEST_P(ChunkReading, AnySplitComesToTheSame) {
  const std::string rest = "4;x=y\r\ntwo \r\n5\r\nthree\r\n0\r\nA: b\r\n\r\n";
  for (std::size_t at = 1; at < rest.size(); ++at) {
    Stream stream(GetParam());
    stream.say(rest.substr(0, at));
    stream.transport.run_pass(monotonic_s() + 0.01);
    stream.say(rest.substr(at));
    ASSERT_TRUE(stream.ends()) << at;
    EXPECT_EQ(stream.heard.body, "one two three") << at;
    EXPECT_EQ(stream.heard.end.failure, Failure::kNone) << at;
  }
}

TEST_P(ChunkReading, AConnectionThatEndsInsideTheBodyIsAFailure) {
  Stream stream(GetParam());
  stream.say("4\r\ntw");
  (void)shutdown(stream.peer.sockets[0], SHUT_WR);
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.body, "one tw");
  EXPECT_EQ(stream.heard.end.failure, Failure::kReset);
  EXPECT_FALSE(stream.heard.end.error.empty());
}

TEST_P(ChunkReading, WhatIsNoChunkIsAFailure) {
  Stream stream(GetParam());
  stream.say("no size\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.body, "one ");
  EXPECT_EQ(stream.heard.end.failure, Failure::kReset);
}

TEST_P(ChunkReading, SilenceTimesOut) {
  Stream stream(GetParam(), 0.2);
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.end.failure, Failure::kTimeout);
  EXPECT_EQ(stream.transport.num_running(), 0);
}

TEST_P(ChunkReading, AListenerCanGiveUp) {
  Stream stream(GetParam());
  stream.say("7\r\ngive up\r\n4\r\nmore\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.body, "one give up");
  EXPECT_EQ(stream.heard.end.failure, Failure::kMalformed);
}

TEST_P(ChunkReading, ADroppedExchangeIsHeardOfNoMore) {
  Stream stream(GetParam());
  stream.say("4\r\ntwo \r\n");
  stream.transport.drop(stream.exchange);
  EXPECT_EQ(stream.transport.num_running(), 0);
  stream.transport.run_pass(monotonic_s() + 0.01);
  EXPECT_EQ(stream.heard.body, "one ");
  EXPECT_FALSE(stream.heard.has_ended);
  // And its connection is closed.
  EXPECT_TRUE(run_until(stream.transport, [&] {
    char byte = 0;
    const ssize_t got = recv(stream.peer.sockets[0], &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }));
}

TEST_P(ChunkReading, WhatComesWhileAnotherIsReadStaysInTurn) {
  Peer peer;
  Transport transport(peer.endpoint(), Stream::options_of(GetParam(), 600.0));
  Heard heard[2];
  for (int i = 0; i < 2; ++i) {
    transport.start(transport.prepare("/v1/completions", "{}", "id", &heard[i]));
    // The first event of one stream makes the server send the second of the other.
    heard[i].on_first = [&peer, i] { Peer::say(peer.sockets[i == 0 ? 1U : 0U], "1\r\nb\r\n"); };
    ASSERT_TRUE(run_until(transport, [&] {
      peer.accept_all();
      return peer.sockets.size() == static_cast<std::size_t>(i) + 1 &&
             Peer::has_heard(peer.sockets[static_cast<std::size_t>(i)]);
    }));
  }
  for (const int fd : peer.sockets) Peer::say(fd, std::string(kHead) + "1\r\na\r\n");
  for (Heard& one : heard) {
    EXPECT_TRUE(run_until(transport, [&] { return one.body == "ab"; })) << one.body;
  }
  for (const int fd : peer.sockets) Peer::say(fd, "1\r\nc\r\n0\r\n\r\n");
  for (Heard& one : heard) {
    EXPECT_TRUE(run_until(transport, [&] { return one.has_ended; }));
    EXPECT_EQ(one.body, "abc");
    EXPECT_EQ(one.end.failure, Failure::kNone);
  }
}

TEST(Transport, ASendThatFallsDueDoesNotWaitForAllReads) {
  constexpr std::size_t kStreams = 100;
  Peer peer;
  Transport transport(peer.endpoint(), {});
  std::vector<std::unique_ptr<Heard>> heard;
  for (std::size_t i = 0; i < kStreams; ++i) {
    heard.push_back(std::make_unique<Heard>());
    transport.start(transport.prepare("/v1/completions", "{}", "id", heard.back().get()));
  }
  std::size_t num_answered = 0;
  ASSERT_TRUE(run_until(transport, [&] {
    peer.accept_all();
    for (const int fd : peer.sockets) {
      if (!Peer::has_heard(fd)) continue;
      Peer::say(fd, std::string(kHead) + "1\r\na\r\n");
      ++num_answered;
    }
    return num_answered == kStreams;
  }));
  const auto num_with = [&](std::string_view body) {
    std::size_t count = 0;
    for (const auto& one : heard) count += one->body == body ? 1U : 0U;
    return count;
  };
  ASSERT_TRUE(run_until(transport, [&] { return num_with("a") == kStreams; }));
  transport.connect_ahead(1, 1);
  ASSERT_TRUE(run_until(transport, [&] { return transport.num_connecting() == 0; }));
  // An event on each socket, and a time that has come.
  for (const int fd : peer.sockets) Peer::say(fd, "1\r\nb\r\n");
  transport.run_pass(0.0);
  EXPECT_GT(num_with("ab"), 0U);
  ASSERT_LT(num_with("ab"), kStreams / 2);
  Heard due;
  transport.start(transport.prepare("/v1/completions", "{}", "id", &due));
  transport.run_pass(0.0);
  EXPECT_EQ(due.num_sent, 1);
  EXPECT_LT(num_with("ab"), kStreams);
  // Nothing is lost by it.
  EXPECT_TRUE(run_until(transport, [&] { return num_with("ab") == kStreams; }));
}

}  // namespace
}  // namespace moe::client
