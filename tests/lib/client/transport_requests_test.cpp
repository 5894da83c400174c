// Requests on connections that stand ready.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/lib/client/transport_support.hpp"

namespace moe::client {
namespace {

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

}  // namespace
}  // namespace moe::client
