// The recorded bytes of real servers through real sockets and libcurl, in random pieces: what the
// whole client makes of them must be what the readers alone make of the decoded body.

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/progress.hpp"
#include "lib/base/rng.hpp"
#include "lib/client/load.hpp"
#include "tests/lib/client/captures.hpp"

namespace moe::client {
namespace {

// Answers request after request with recorded bytes, then closes the connection.
class ReplayServer {
 public:
  explicit ReplayServer(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no socket to listen on");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ReplayServer(const ReplayServer&) = delete;
  ReplayServer& operator=(const ReplayServer&) = delete;
  ~ReplayServer() {
    (void)shutdown(listener_, SHUT_RDWR);
    thread_.join();
    (void)close(listener_);
  }

  [[nodiscard]] int port() const { return port_; }

 private:
  void serve() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const int one = 1;
      (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      if (read_request(fd)) send_pieces(fd, answers_[next_++ % answers_.size()]);
      (void)close(fd);
    }
  }

  static bool read_request(int fd) {
    std::string request;
    char buffer[4096];
    for (;;) {
      const std::size_t head = request.find("\r\n\r\n");
      const std::size_t length = request.find("Content-Length: ");
      if (head != std::string::npos && length != std::string::npos &&
          request.size() >= head + 4 + std::stoul(request.substr(length + 16))) {
        return true;
      }
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) return false;
      request.append(buffer, static_cast<std::size_t>(got));
    }
  }

  void send_pieces(int fd, const std::string& bytes) {
    const std::uint64_t longest = bytes.size() < 10'000 ? 1 + rng_.next_below(120) : 4000;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + rng_.next_below(longest);
      const std::string piece = bytes.substr(at, size);
      if (send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) < 0) return;
      at += piece.size();
    }
  }

  std::vector<std::string> answers_;
  std::size_t next_ = 0;
  int listener_ = -1;
  int port_ = 0;
  Rng rng_{5};
  std::thread thread_;
};

RequestRecord read_alone(const HttpAnswer& answer) {
  EventReader events;
  AnswerReader reader(true);
  reader.set_status(answer.status);
  RequestRecord record;
  record.sent_s = 0.0;
  reader.feed(answer.body, 1.0, events);
  reader.finish({answer.is_whole ? Failure::kNone : Failure::kReset, "cut", 2.0}, events, nullptr,
                record);
  return record;
}

// With chunks read by this client or by libcurl alone.
class Replay : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(BothWays, Replay, testing::Bool());

TEST_P(Replay, RealServersThroughRealSocketsInRandomPieces) {
  std::vector<std::string> answers;
  std::vector<RequestRecord> expected;
  std::vector<std::string> names;
  for (const Capture& capture : all_captures()) {
    if (capture.path != "/v1/completions" && capture.path != "/v1/chat/completions") continue;
    const HttpAnswer answer = capture.last_answer();
    answers.push_back(answer.bytes);
    expected.push_back(read_alone(answer));
    names.push_back(capture.name);
  }
  ASSERT_GT(answers.size(), 90U);
  const ReplayServer server(answers);
  NullProgress progress;
  RandomIdsOptions ids;
  ids.end_id = 10;
  const RandomIdsSource source(ids, BodyOptions{});
  LoadTools tools;
  tools.source = &source;
  tools.progress = &progress;
  LoadPlan plan;
  plan.num_conversations = static_cast<std::int64_t>(answers.size());
  plan.keeps_texts = true;
  plan.transport.takes_bodies = GetParam();
  plan.stops_when_server_is_gone = false;
  const LoadResult result =
      run_load(parse_endpoint("127.0.0.1:" + std::to_string(server.port())), plan, tools);
  ASSERT_EQ(result.records.size(), answers.size());
  for (const RequestRecord& record : result.records) {
    const auto number = static_cast<std::size_t>(record.conversation);
    SCOPED_TRACE(names[number]);
    EXPECT_STREQ(name_of(record.failure), name_of(expected[number].failure)) << record.error;
    EXPECT_EQ(record.http_status, expected[number].http_status);
    EXPECT_EQ(record.text, expected[number].text);
    EXPECT_EQ(record.output_tokens, expected[number].output_tokens);
    EXPECT_EQ(record.finish_reason, expected[number].finish_reason);
  }
}

}  // namespace
}  // namespace moe::client
