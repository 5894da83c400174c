// Goal: every fault looks on the wire as its name says, and no client can harm the server.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/lib/scripted_server/raw_client.hpp"

namespace moe::scripted_server {
namespace {

using test::get;
using test::post_completion;
using test::RawAnswer;
using test::RawClient;
using test::RawEnd;
using test::script_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string faulty(const std::string& fault, const std::string& more = "") {
  return R"({"timing":{"first_token_s":0.005,"token_interval_s":0.002},"tokens":{"limit":9},)" +
         more + R"("fault":)" + fault + "}";
}

struct Seen {
  RawAnswer answer;
  ServerLog log;
};

Seen ask(const std::string& reply) {
  ServerThread server(script_of(reply));
  RawClient client(server.port());
  client.send(post_completion(R"("stream":true)"));
  Seen seen;
  seen.answer = client.read_all();
  seen.log = server.stop();
  return seen;
}

TEST(ScriptedFaults, ACutEndsTheConnectionInsideTheBody) {
  const Seen seen = ask(faulty(R"({"kind":"cut","after_tokens":3})"));
  EXPECT_EQ(seen.answer.end, RawEnd::kClosed);
  EXPECT_THAT(seen.answer.bytes, HasSubstr(" three"));
  EXPECT_THAT(seen.answer.bytes, Not(HasSubstr(" four")));
  EXPECT_THAT(seen.answer.bytes, Not(HasSubstr("\r\n0\r\n")));
  ASSERT_EQ(seen.log.requests.size(), 1U);
  EXPECT_EQ(seen.log.requests[0].end, ReplyEnd::kFailed);
  EXPECT_EQ(seen.log.requests[0].tokens, 3);
}

TEST(ScriptedFaults, AResetIsAReset) {
  EXPECT_EQ(ask(faulty(R"({"kind":"reset","after_tokens":3})")).answer.end, RawEnd::kReset);
}

TEST(ScriptedFaults, BeforeTheHeadersNothingIsSaid) {
  const Seen cut = ask(faulty(R"({"kind":"cut","before_headers":true})"));
  EXPECT_THAT(cut.answer.bytes, IsEmpty());
  EXPECT_EQ(cut.answer.end, RawEnd::kClosed);
  const Seen reset = ask(faulty(R"({"kind":"reset","before_headers":true})"));
  EXPECT_THAT(reset.answer.bytes, IsEmpty());
  EXPECT_EQ(reset.answer.end, RawEnd::kReset);
}

TEST(ScriptedFaults, ACleanCutEndsTheBodyAndClosesNothing) {
  ServerThread server(script_of(faulty(R"({"kind":"clean_cut","after_tokens":3})")));
  RawClient client(server.port());
  client.send(post_completion(R"("stream":true)"));
  EXPECT_THAT(client.read_until("0\r\n\r\n").bytes, Not(HasSubstr("[DONE]")));
  client.send(get("/health"));
  EXPECT_THAT(client.read_until("\r\n\r\n").bytes, HasSubstr("200 OK"));
}

TEST(ScriptedFaults, AHangStaysOpenUntilTheClientLeaves) {
  ServerThread server(script_of(faulty(R"({"kind":"hang","after_tokens":2})")));
  {
    RawClient client(server.port());
    client.send(post_completion(R"("stream":true)"));
    EXPECT_THAT(client.read_until(" two").bytes, Not(HasSubstr("[DONE]")));
  }
  const ServerLog& log = server.stop();
  ASSERT_EQ(log.requests.size(), 1U);
  EXPECT_EQ(log.requests[0].tokens, 2);
  EXPECT_NE(log.requests[0].end, ReplyEnd::kComplete);
}

TEST(ScriptedFaults, AClientThatLeavesIsNoted) {
  ServerThread server(script_of(R"({"timing":{"first_token_s":3600}})"));
  {
    RawClient client(server.port());
    client.send(post_completion(R"("stream":true)"));
    (void)client.read_until("\r\n\r\n");
  }
  RawClient observer(server.port());
  std::string page;
  for (int tries = 0; tries < 100 && page.find("reason=\"abort\"} 1") == std::string::npos;
       ++tries) {
    observer.send(get("/metrics"));
    page = observer.read_until("cache_config_info{").bytes;
  }
  const ServerLog& log = server.stop();
  ASSERT_EQ(log.requests.size(), 1U);
  EXPECT_EQ(log.requests[0].end, ReplyEnd::kClientLeft);
}

TEST(ScriptedFaults, ClosingUnannouncedPromisesToStay) {
  const Seen seen = ask(R"({"timing":{"first_token_s":0.001},"tokens":{"limit":1},
                            "http":{"after_reply":"close_unannounced"}})");
  EXPECT_EQ(seen.answer.end, RawEnd::kClosed);
  EXPECT_THAT(seen.answer.bytes, HasSubstr("[DONE]"));
  EXPECT_THAT(seen.answer.bytes, Not(HasSubstr("Connection: close")));
  const Seen announced = ask(R"({"timing":{"first_token_s":0.001},"tokens":{"limit":1},
                                 "http":{"after_reply":"close"}})");
  EXPECT_THAT(announced.answer.bytes, HasSubstr("Connection: close"));
}

TEST(ScriptedFaults, AServerThatDiesResetsAndRefuses) {
  ServerThread server(
      script_of(R"({"timing":{"first_token_s":3600}})", R"({"dies_after_requests":2})"));
  RawClient first(server.port());
  first.send(post_completion(R"("stream":true)"));
  (void)first.read_until("\r\n\r\n");
  RawClient second(server.port());
  second.send(post_completion(R"("stream":true)"));
  EXPECT_EQ(first.read_all().end, RawEnd::kReset);
  EXPECT_EQ(second.read_all().end, RawEnd::kReset);
  EXPECT_THROW(RawClient(server.port()), std::runtime_error);
  const ServerLog& log = server.stop();
  ASSERT_EQ(log.requests.size(), 2U);
  EXPECT_EQ(log.requests[0].end, ReplyEnd::kServerDied);
}

TEST(ScriptedFaults, ASlowReaderGetsEverything) {
  // Far more than the buffers of a socket hold.
  const std::string text(4000, 'x');
  ServerThread server(
      script_of(R"({"timing":{"first_token_s":0,"token_interval_s":0},"tokens":{"texts":[")" +
                text + R"("]}})"));
  RawClient client(server.port());
  client.send(post_completion(R"("stream":true,"max_tokens":5000)"));
  const RawAnswer answer = client.read_until("0\r\n\r\n");
  EXPECT_GT(answer.bytes.size(), 5000U * 4000U);
  EXPECT_EQ(server.stop().requests.at(0).tokens, 5000);
}

TEST(ScriptedFaults, RubbishHarmsNobody) {
  ServerThread server(script_of(faulty(R"({"kind":"none"})")));
  Rng rng(7);
  for (int i = 0; i < 200; ++i) {
    RawClient client(server.port());
    std::string bytes = post_completion(R"("stream":true)");
    for (int change = 0; change < 4; ++change) {
      bytes[rng.next_below(bytes.size())] = static_cast<char>(rng.next_below(256));
    }
    client.send(std::string_view(bytes).substr(0, rng.next_below(bytes.size())));
  }
  std::string flood;
  for (int i = 0; i < 20000; ++i) flood += "GET /health HTTP/1.1\r\n\r\n";
  {
    RawClient client(server.port());
    client.send(std::string_view(flood).substr(0, 60000));  // and leaves without reading
  }
  RawClient client(server.port());
  client.send(get("/health"));
  EXPECT_THAT(client.read_until("\r\n\r\n").bytes, HasSubstr("200 OK"));
}

}  // namespace
}  // namespace moe::scripted_server
