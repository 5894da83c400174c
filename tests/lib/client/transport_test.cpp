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
  void on_status(int value, double) override {
    status = value;
    if (on_head) std::exchange(on_head, nullptr)();
  }
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
  std::function<void()> on_head;
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

// Who speaks: libcurl; libcurl to the head of an answer; or this client, on a connection that stood
// ready.
enum class Way { kLibcurl, kTakenOver, kOwn };

// A connection that stands ready.
void connect_one(Transport& transport, Peer& peer) {
  const std::size_t num_before = peer.sockets.size();
  transport.connect_ahead(1, 1);
  run_until(transport, [&] {
    peer.accept_all();
    return peer.sockets.size() > num_before && transport.num_connecting() == 0;
  });
}

// One stream whose first event has come.
struct Stream {
  explicit Stream(Way way, double timeout_s = 600.0, std::string_view fields = {})
      : transport(peer.endpoint(), options_of(way, timeout_s)) {
    if (way == Way::kOwn) connect_one(transport, peer);
    exchange = transport.prepare("/v1/completions", "{}", "id", &heard);
    transport.start(exchange);
    run_until(transport, [&] {
      peer.accept_all();
      return peer.sockets.size() == 1 && Peer::has_heard(peer.sockets[0]);
    });
    std::string head(kHead);
    head.insert(head.size() - 2, fields);
    Peer::say(peer.sockets.at(0), head + "4\r\none \r\n");
    run_until(transport, [&] { return heard.body == "one "; });
  }
  static TransportOptions options_of(Way way, double timeout_s) {
    TransportOptions options;
    options.takes_bodies = way != Way::kLibcurl;
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

// A request that the server has heard.
struct Asked {
  Asked(Transport& transport, const Peer& peer, std::size_t socket) {
    transport.start(transport.prepare("/v1/completions", "{}", "id", &heard));
    is_heard = run_until(transport, [&] { return Peer::has_heard(peer.sockets.at(socket)); });
  }
  Heard heard;
  bool is_heard = false;
};

class ChunkReading : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(AllWays, ChunkReading,
                         testing::Values(Way::kLibcurl, Way::kTakenOver, Way::kOwn));

TEST_P(ChunkReading, EndsWithTheBodyAndKeepsTheConnection) {
  Stream stream(GetParam());
  EXPECT_EQ(stream.heard.status, 200);
  stream.say("4\r\ntwo \r\n");
  EXPECT_TRUE(run_until(stream.transport, [&] { return stream.heard.body == "one two "; }));
  stream.say("5\r\nthree\r\n0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.body, "one two three");
  EXPECT_EQ(stream.heard.end.failure, Failure::kNone);
  EXPECT_EQ(stream.heard.end.connect_s > 0.0, GetParam() != Way::kOwn);
  // The next requests go over the same connection, which nobody waits for.
  for (int i = 0; i < 3; ++i) {
    Asked next(stream.transport, stream.peer, 0);
    ASSERT_TRUE(next.is_heard);
    stream.say(std::string(kHead) + "4\r\nnext\r\n");
    EXPECT_TRUE(run_until(stream.transport, [&] { return next.heard.body == "next"; }));
    stream.say("0\r\n\r\n");
    EXPECT_TRUE(run_until(stream.transport, [&] { return next.heard.has_ended; }));
    EXPECT_EQ(next.heard.end.failure, Failure::kNone);
    EXPECT_EQ(next.heard.end.connect_s, 0.0);
    EXPECT_EQ(next.heard.num_sent, 1);
  }
  stream.peer.accept_all();
  EXPECT_EQ(stream.peer.sockets.size(), 1U);
  EXPECT_EQ(stream.transport.num_running(), 0);
}

TEST_P(ChunkReading, AClosedIdleConnectionIsReplaced) {
  Stream stream(GetParam());
  stream.say("0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  (void)shutdown(stream.peer.sockets[0], SHUT_WR);
  Heard next;
  stream.transport.start(stream.transport.prepare("/v1/completions", "{}", "id", &next));
  ASSERT_TRUE(run_until(stream.transport, [&] {
    stream.peer.accept_all();
    return stream.peer.sockets.size() == 2 && Peer::has_heard(stream.peer.sockets[1]);
  }));
  Peer::say(stream.peer.sockets[1], std::string(kHead) + "1\r\na\r\n0\r\n\r\n");
  ASSERT_TRUE(run_until(stream.transport, [&] { return next.has_ended; }));
  EXPECT_EQ(next.end.failure, Failure::kNone);
  EXPECT_EQ(next.num_sent, 1);
}

TEST_P(ChunkReading, ARequestThatMeetsAClosingConnectionGoesOutAgain) {
  Stream stream(GetParam());
  stream.say("0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  Asked next(stream.transport, stream.peer, 0);
  ASSERT_TRUE(next.is_heard);
  (void)shutdown(stream.peer.sockets[0], SHUT_WR);
  ASSERT_TRUE(run_until(stream.transport, [&] {
    stream.peer.accept_all();
    return stream.peer.sockets.size() == 2 && Peer::has_heard(stream.peer.sockets[1]);
  }));
  EXPECT_FALSE(next.heard.has_ended);
  EXPECT_EQ(next.heard.num_sent, 2);
  // But not for ever: what breaks a new connection is the answer.
  (void)shutdown(stream.peer.sockets[1], SHUT_WR);
  ASSERT_TRUE(run_until(stream.transport, [&] { return next.heard.has_ended; }));
  EXPECT_EQ(next.heard.end.failure, Failure::kReset);
  EXPECT_EQ(next.heard.num_sent, 2);
}

TEST_P(ChunkReading, AConnectionThatEndsWithTheAnswerIsNotUsedAgain) {
  Stream stream(GetParam(), 600.0, "Connection: Close\r\n");
  stream.say("0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.end.failure, Failure::kNone);
  Heard next;
  stream.transport.start(stream.transport.prepare("/v1/completions", "{}", "id", &next));
  EXPECT_TRUE(run_until(stream.transport, [&] {
    stream.peer.accept_all();
    return stream.peer.sockets.size() == 2 && Peer::has_heard(stream.peer.sockets[1]);
  }));
}

// What comes between the moment in which libcurl reads and the one in which it is done with the
// socket belongs to the body, once and in its place.
TEST_P(ChunkReading, NothingIsLostWhereTheReaderChanges) {
  const std::string answer = std::string(kHead) + "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n";
  for (std::size_t at = 1; at < answer.size(); ++at) {
    Peer peer;
    Transport transport(peer.endpoint(), Stream::options_of(GetParam(), 600.0));
    if (GetParam() == Way::kOwn) connect_one(transport, peer);
    Heard heard;
    const auto say_rest = [&] { Peer::say(peer.sockets[0], answer.substr(at)); };
    if (at <= kHead.size()) {
      heard.on_head = say_rest;  // inside of libcurl's own reading
    } else {
      heard.on_first = say_rest;
    }
    transport.start(transport.prepare("/v1/completions", "{}", "id", &heard));
    ASSERT_TRUE(run_until(transport, [&] {
      peer.accept_all();
      return peer.sockets.size() == 1 && Peer::has_heard(peer.sockets[0]);
    }));
    Peer::say(peer.sockets[0], answer.substr(0, at));
    transport.run_pass(monotonic_s() + 0.01);
    if (heard.on_head) std::exchange(heard.on_head, nullptr)();
    if (heard.on_first && at > kHead.size()) std::exchange(heard.on_first, nullptr)();
    ASSERT_TRUE(run_until(transport, [&] { return heard.has_ended; })) << at;
    EXPECT_EQ(heard.body, "one two") << at;
    EXPECT_EQ(heard.end.failure, Failure::kNone) << at;
  }
}

TEST_P(ChunkReading, MoreThanOneReadIsOneBody) {
  Stream stream(GetParam());
  const std::string text(100'000, 'x');
  stream.say("186a0\r\n" + text + "\r\n0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.body, "one " + text);
  EXPECT_EQ(stream.heard.end.failure, Failure::kNone);
}

TEST_P(ChunkReading, EventsDoNotPutOffTheTimeOut) {
  Stream stream(GetParam(), 0.2);
  const double begin_s = monotonic_s();
  while (!stream.heard.has_ended && monotonic_s() < begin_s + 10.0) {
    stream.say("1\r\nx\r\n");
    stream.transport.run_pass(monotonic_s() + 0.02);
  }
  EXPECT_TRUE(stream.heard.has_ended);
  EXPECT_EQ(stream.heard.end.failure, Failure::kTimeout);
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

// Answers that are no streams, on a connection that stood ready.
struct OwnAnswer {
  explicit OwnAnswer(const std::string& answer, bool closes = false) {
    connect_one(transport, peer);
    Asked asked(transport, peer, 0);
    if (!asked.is_heard) return;
    // In two pieces at each place, so that lines and lengths are cut everywhere.
    static std::size_t at = 0;
    at = answer.empty() ? 0 : (at + 7) % answer.size();
    if (at > 0) {
      Peer::say(peer.sockets[0], answer.substr(0, at));
      transport.run_pass(monotonic_s() + 0.001);
    }
    if (at < answer.size()) Peer::say(peer.sockets[0], answer.substr(at));
    if (closes) (void)shutdown(peer.sockets[0], SHUT_WR);
    run_until(transport, [&] { return asked.heard.has_ended; });
    heard = asked.heard;
    // Whether the connection stands ready again.
    transport.connect_ahead(1, 1);
    is_kept = heard.has_ended && transport.num_connecting() == 0;
  }
  Peer peer;
  Transport transport{peer.endpoint(), {}};
  Heard heard;
  bool is_kept = false;
};

TEST(Transport, EveryFramingOfABodyIsRead) {
  struct Case {
    std::string answer;
    std::string body;
    bool closes;
    bool is_kept;
  };
  const std::vector<Case> cases = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", false, true},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", "", false, true},
      {"HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\n\n5\nhello\n0\n\n", "hello", false, true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive, Close\r\n\r\nhello",
       "hello", false, false},
      {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", false, false},
      {"HTTP/1.1 200 OK\r\n\r\nhello", "hello", true, false},
      {"HTTP/1.1 204 No Content\r\n\r\n", "", false, true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, more", "hello", false, false},
  };
  for (const Case& one : cases) {
    for (int i = 0; i < 10; ++i) {
      const OwnAnswer got(one.answer, one.closes);
      ASSERT_TRUE(got.heard.has_ended) << one.answer;
      EXPECT_EQ(got.heard.end.failure, Failure::kNone) << one.answer << got.heard.end.error;
      EXPECT_EQ(got.heard.body, one.body) << one.answer;
      EXPECT_EQ(got.heard.status / 100, 2) << one.answer;
      EXPECT_EQ(got.is_kept, one.is_kept) << one.answer;
    }
  }
}

TEST(Transport, WhatIsNoAnswerIsAFailure) {
  for (const char* answer :
       {"SSH-2.0-server\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"}) {
    const OwnAnswer got(answer);
    EXPECT_TRUE(got.heard.has_ended) << answer;
    EXPECT_EQ(got.heard.end.failure, Failure::kMalformed) << answer;
    EXPECT_FALSE(got.is_kept) << answer;
  }
  EXPECT_EQ(OwnAnswer("HTTP/1.1 200 OK\r\nX: " + std::string(300'000, 'x')).heard.end.failure,
            Failure::kMalformed);
  for (const char* answer :
       {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"}) {
    const OwnAnswer got(answer, true);
    EXPECT_EQ(got.heard.end.failure, Failure::kReset) << answer;
    EXPECT_EQ(got.heard.num_sent, 1) << answer;
    EXPECT_FALSE(got.heard.end.error.empty()) << answer;
  }
}

TEST(Transport, ALongRequestGoesOutAsTheServerTakesIt) {
  Peer peer;
  Transport transport(peer.endpoint(), {});
  connect_one(transport, peer);
  const std::string body(20'000'000, 'b');
  Heard heard;
  transport.start(transport.prepare("/v1/completions", body, "an-id", &heard));
  std::string request;
  std::vector<char> buffer(1 << 16);
  ASSERT_TRUE(run_until(transport, [&] {
    for (ssize_t got = 0; (got = recv(peer.sockets[0], buffer.data(), buffer.size(), 0)) > 0;) {
      request.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return request.size() > body.size() && request.ends_with(body);
  }));
  const std::string head = request.substr(0, request.size() - body.size());
  EXPECT_TRUE(head.starts_with("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:")) << head;
  EXPECT_NE(head.find("\r\nX-Request-Id: an-id\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("\r\nContent-Type: application/json\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\nContent-Length: 20000000\r\n\r\n")) << head;
  EXPECT_EQ(head.find("Expect"), std::string::npos) << head;
  Peer::say(peer.sockets[0], "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  ASSERT_TRUE(run_until(transport, [&] { return heard.has_ended; }));
  EXPECT_EQ(heard.body, "ok");
}

TEST(Transport, WhatAServerSaysUnaskedIsNoAnswer) {
  Stream stream(Way::kTakenOver);
  stream.say("0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  ASSERT_TRUE(stream.ends());
  EXPECT_EQ(stream.heard.end.failure, Failure::kNone);
  Heard next;
  stream.transport.start(stream.transport.prepare("/v1/completions", "{}", "id", &next));
  EXPECT_TRUE(run_until(stream.transport, [&] {
    stream.peer.accept_all();
    return stream.peer.sockets.size() == 2 && Peer::has_heard(stream.peer.sockets[1]);
  }));
  EXPECT_EQ(next.status, 0);
}

TEST(Transport, NoMoreConnectionsAreKeptThanAskedFor) {
  Peer peer;
  TransportOptions options;
  options.max_connections = 2;
  Transport transport(peer.endpoint(), options);
  Heard heard[4];
  for (std::size_t i = 0; i < 4; ++i) {
    transport.start(transport.prepare("/v1/completions", "{}", "id", &heard[i]));
    ASSERT_TRUE(run_until(transport, [&] {
      peer.accept_all();
      return peer.sockets.size() == i + 1 && Peer::has_heard(peer.sockets[i]);
    }));
    Peer::say(peer.sockets[i], std::string(kHead) + "1\r\na\r\n");
    ASSERT_TRUE(run_until(transport, [&] { return heard[i].body == "a"; }));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    Peer::say(peer.sockets[i], "0\r\n\r\n");
    ASSERT_TRUE(run_until(transport, [&] { return heard[i].has_ended; }));
  }
  const auto is_closed = [](int fd) {
    char byte = 0;
    return recv(fd, &byte, 1, MSG_PEEK) == 0;
  };
  // The last that were used.
  EXPECT_TRUE(is_closed(peer.sockets[0]));
  EXPECT_TRUE(is_closed(peer.sockets[1]));
  EXPECT_FALSE(is_closed(peer.sockets[2]));
  EXPECT_FALSE(is_closed(peer.sockets[3]));
}

TEST(Transport, AWindowPutsReadsOffAndNoArrival) {
  Stream stream(Way::kTakenOver);
  if (!stream.transport.stats().has_kernel_times) GTEST_SKIP() << "no receive time stamps";
  const double before_s = monotonic_s();
  stream.say("3\r\ntwo\r\n");
  const double said_s = monotonic_s();
  constexpr double kWindow_s = 0.02;
  stream.transport.run_pass(monotonic_s() + 10.0, kWindow_s);
  EXPECT_GE(monotonic_s(), said_s + kWindow_s);
  ASSERT_EQ(stream.heard.body, "one two");
  EXPECT_GE(stream.heard.last_s, before_s - 1e-4);
  EXPECT_LE(stream.heard.last_s, said_s + 1e-4);
  EXPECT_EQ(stream.transport.stats().read_window_s, kWindow_s);
  // Never beyond what is due.
  stream.say("3\r\nend\r\n");
  const double due_s = monotonic_s();
  stream.transport.run_pass(due_s + 0.001, 60.0);
  EXPECT_LT(monotonic_s(), due_s + 30.0);
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
  // The same where a listener says that something has fallen due.
  for (const auto& one : heard) one->on_first = [&transport] { transport.cut_pass(); };
  for (const int fd : peer.sockets) Peer::say(fd, "1\r\nc\r\n");
  transport.run_pass(monotonic_s() + 10.0);
  EXPECT_GT(num_with("abc"), 0U);
  EXPECT_LT(num_with("abc"), kStreams / 2);
  EXPECT_TRUE(run_until(transport, [&] { return num_with("abc") == kStreams; }));
}

}  // namespace
}  // namespace moe::client
