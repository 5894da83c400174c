// Goal: the server on a real socket says what the script says, never early, and logs it.

#include <cmath>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/scripted_server/server_thread.hpp"
#include "tests/lib/scripted_server/raw_client.hpp"

namespace moe::scripted_server {
namespace {

using test::body_of;
using test::get;
using test::post_chat;
using test::post_completion;
using test::RawAnswer;
using test::RawClient;
using test::script_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const char* const kQuick =
    R"({"timing":{"first_token_s":0.02,"token_interval_s":0.005},"tokens":{"limit":5}})";

TEST(ScriptedServer, StreamsOnScheduleAndLogsEverySend) {
  ServerThread server(script_of(kQuick));
  const double before_s = SteadyClock().now_s();
  RawClient client(server.port());
  client.send(post_completion(R"("stream":true,"max_tokens":50)", "X-Request-Id: r-7\r\n"));
  const RawAnswer answer = client.read_until("0\r\n\r\n");
  const double after_s = SteadyClock().now_s();
  EXPECT_THAT(answer.bytes, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(body_of(answer.bytes), HasSubstr("data: [DONE]\n\n"));
  const ServerLog& log = server.stop();
  ASSERT_EQ(log.requests.size(), 1U);
  const RequestRecord& record = log.requests[0];
  EXPECT_EQ(record.request_id, "r-7");
  EXPECT_EQ(record.prompt_tokens, 3);
  EXPECT_EQ(record.asked_tokens, 50);
  EXPECT_EQ(record.tokens, 5);
  EXPECT_EQ(record.end, ReplyEnd::kComplete);
  EXPECT_GE(record.arrived_s, before_s);
  EXPECT_LE(record.ended_s, after_s + 1.0);
  EXPECT_GE(after_s - before_s, 0.04);
  int sends = 0;
  for (const SendRecord& send : record.sends) {
    EXPECT_GE(send.left_s, send.due_s);
    if (send.kind != PieceKind::kTokens) continue;
    EXPECT_NEAR(send.due_s, 0.02 + 0.005 * sends, 1e-9);
    ++sends;
    EXPECT_EQ(send.tokens, sends);
  }
  EXPECT_EQ(sends, 5);
  const auto line = nlohmann::json::parse(log_line(record));
  EXPECT_EQ(line["end"], "complete");
  EXPECT_EQ(line["sends"].size(), record.sends.size());
}

TEST(ScriptedServer, KeepsAConnectionAndAnswersPipelinedRequestsInOrder) {
  ServerThread server(script_of(kQuick));
  RawClient client(server.port());
  client.send(post_chat(R"("max_tokens":2)") + get("/v1/models") + get("/health"));
  const RawAnswer answer = client.read_until("Content-Length: 0\r\n\r\n");
  const std::size_t chat = answer.bytes.find("chat.completion");
  const std::size_t models = answer.bytes.find("\"object\":\"list\"");
  ASSERT_NE(chat, std::string::npos);
  ASSERT_NE(models, std::string::npos);
  EXPECT_LT(chat, models);
  client.send(post_completion(R"("stream":true)"));
  EXPECT_THAT(client.read_until("0\r\n\r\n").bytes, HasSubstr("[DONE]"));
  EXPECT_EQ(server.stop().connections, 1);
}

TEST(ScriptedServer, ManyStreamsAtOnceAreAllComplete) {
  ServerThread server(script_of(kQuick));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    clients.back()->send(post_completion(R"("stream":true)"));
  }
  for (const auto& client : clients) {
    EXPECT_THAT(client->read_until("0\r\n\r\n").bytes, HasSubstr("[DONE]"));
  }
  const ServerLog& log = server.stop();
  ASSERT_EQ(log.requests.size(), 100U);
  for (const RequestRecord& record : log.requests) EXPECT_EQ(record.tokens, 5);
  EXPECT_EQ(send_lags_s(log.requests).size(), 100U * 9U);  // headers, 5 tokens, finish, done, end
}

TEST(ScriptedServer, SlotsMakeAQueueAndTheMetricsShowIt) {
  ServerThread server(
      script_of(R"({"timing":{"first_token_s":0.2},"tokens":{"limit":1}})", R"({"slots":1})"));
  RawClient first(server.port());
  RawClient second(server.port());
  RawClient observer(server.port());
  first.send(post_completion(R"("stream":true)"));
  (void)first.read_until("\r\n\r\n");
  second.send(post_completion(R"("stream":true)"));
  // The server takes requests in order, so this one sees the second in line.
  std::string page;
  for (int tries = 0; tries < 20 && page.find("waiting{engine=\"0\",model_name=\"scripted\"} 1") ==
                                        std::string::npos;
       ++tries) {
    observer.send(get("/metrics"));
    page = observer.read_until("cache_config_info{").bytes;
  }
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"scripted\"} 1"));
  EXPECT_THAT(page, HasSubstr("vllm:num_requests_waiting{engine=\"0\",model_name=\"scripted\"} 1"));
  EXPECT_THAT(second.read_until("0\r\n\r\n").bytes, HasSubstr("[DONE]"));
  const ServerLog& log = server.stop();
  ASSERT_EQ(log.requests.size(), 2U);
  EXPECT_GE(log.requests[1].started_s, log.requests[0].ended_s - 1e-3);
  EXPECT_GT(log.requests[1].started_s, log.requests[1].arrived_s);
}

TEST(ScriptedServer, RepliesTakeTurns) {
  const Script script = script_of(
      R"({"times":2,"timing":{"first_token_s":0.001},"tokens":{"limit":1}},
         {"fault":{"kind":"http_error","status":429,"message":"slow \"down\""}})");
  ServerThread server(script);
  std::string statuses;
  for (int i = 0; i < 6; ++i) {
    const RawClient client(server.port());
    client.send(post_completion(R"("max_tokens":1)"));
    const std::string bytes = client.read_until("}").bytes;
    statuses += bytes.substr(9, 3) + " ";
    if (statuses.ends_with("429 ")) {
      EXPECT_THAT(bytes, HasSubstr("slow \\\"down\\\""));
    }
  }
  EXPECT_EQ(statuses, "200 200 429 200 200 429 ");
}

TEST(ScriptedServer, InformationFollowsTheDialect) {
  const auto ask = [](const std::string& dialect, const std::string& path) {
    ServerThread server(script_of("{}", R"({"dialect":")" + dialect + R"(","version":"9.1"})"));
    RawClient client(server.port());
    client.send(get(path));
    return client.read_until("\r\n\r\n").bytes;
  };
  EXPECT_THAT(ask("vllm", "/version"), HasSubstr("9.1"));
  EXPECT_THAT(ask("sglang", "/get_server_info"), HasSubstr("9.1"));
  EXPECT_THAT(ask("llama.cpp", "/props"), HasSubstr("9.1"));
  EXPECT_THAT(ask("sglang", "/props"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("sglang", "/metrics"), HasSubstr("sglang:num_running_reqs"));
  EXPECT_THAT(ask("llama.cpp", "/metrics"), HasSubstr("llamacpp:requests_processing 0"));
}

TEST(ScriptedServer, RefusesWhatItDoesNotServe) {
  ServerThread server(script_of(kQuick, R"({"api_key":"k"})"));
  const auto status = [&](const std::string& request) {
    RawClient client(server.port());
    client.send(request);
    return client.read_until("\r\n\r\n").bytes.substr(9, 3);
  };
  const std::string key = "Authorization: Bearer k\r\n";
  EXPECT_EQ(status(post_completion("")), "401");
  EXPECT_EQ(status(post_completion("", "Authorization: Bearer x\r\n")), "401");
  EXPECT_EQ(status(post_completion("", key)), "200");
  EXPECT_EQ(status(post_completion(R"("n":3)", key)), "400");
  EXPECT_EQ(status("GET /v1/completions HTTP/1.1\r\n" + key + "\r\n"), "405");
  EXPECT_EQ(status("GET /nothing HTTP/1.1\r\n" + key + "\r\n"), "404");
  EXPECT_EQ(status("POST /v1/models HTTP/1.1\r\n" + key + "\r\n"), "405");
  EXPECT_EQ(status("rubbish\r\n\r\n"), "400");
  EXPECT_GT(server.stop().bad_requests, 5);
}

TEST(ScriptedServer, IsNotReadyBeforeItsTime) {
  ServerThread server(script_of(kQuick, R"({"ready_after_s":3600})"));
  RawClient client(server.port());
  client.send(get("/health"));
  EXPECT_THAT(client.read_until("\r\n\r\n").bytes, StartsWith("HTTP/1.1 503"));
  client.send(post_completion(""));
  EXPECT_THAT(client.read_until("loading").bytes, StartsWith("HTTP/1.1 503"));
}

TEST(ScriptedServer, APortThatIsTakenIsSaid) {
  ServerThread server(script_of(kQuick));
  ServerOptions options;
  options.port = server.port();
  try {
    const Server second(script_of(kQuick), options);
    FAIL() << "listened twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRuntime);
    EXPECT_THAT(error.what(), HasSubstr("cannot listen on 127.0.0.1:"));
  }
}

}  // namespace
}  // namespace moe::scripted_server
