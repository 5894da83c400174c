#include "lib/client/transport.hpp"

#include <memory>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/lib/client/transport_support.hpp"

namespace moe::client {
namespace {

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
