// Streamed answers, whoever reads them.

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "tests/lib/client/transport_support.hpp"

namespace moe::client {
namespace {

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

}  // namespace
}  // namespace moe::client
