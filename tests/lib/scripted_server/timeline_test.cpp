// Goal: every reply has the times and the bytes that its script means. The times of the table were
// measured on another implementation of the same behaviours and kept as the truth that four
// published clients were judged by.

#include "lib/scripted_server/timeline.hpp"

#include <cmath>
#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"
#include "tests/lib/scripted_server/raw_client.hpp"

namespace moe::scripted_server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Script scenario(const std::string& name) {
  return read_script(std::filesystem::path(MOE_SOURCE_DIR) / "scenarios/scripted-servers" /
                     (name + ".json"));
}

GenerationRequest streamed(bool is_chat, std::int64_t max_tokens = 50) {
  GenerationRequest request;
  request.is_chat = is_chat;
  request.stream = true;
  request.include_usage = true;
  request.max_tokens = max_tokens;
  request.prompt_tokens = 3;
  return request;
}

Timeline make(const Script& script, const GenerationRequest& request, bool is_http_10 = false) {
  return make_timeline(script, script.replies[0], request, true, is_http_10);
}

// The data of each event of a body with LF line ends and one data line an event.
std::vector<std::string> data_of(const std::string& body) {
  std::vector<std::string> data;
  std::size_t at = 0;
  while ((at = body.find("data: ", at)) != std::string::npos) {
    const std::size_t end = body.find("\n\n", at);
    data.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return data;
}

struct Truth {
  const char* script;
  bool is_chat;
  double ttft_s;
  double last_s;
  std::int64_t tokens;
};

TEST(Timeline, TimesAreThoseOfTheTruth) {
  const std::vector<Truth> truths = {
      {"steady", false, 0.2, 1.18, 50},
      {"steady", true, 0.2, 1.18, 50},
      {"slow", false, 0.5, 2.4, 20},
      {"role-first", true, 0.2, 1.18, 50},
      {"two-tokens-an-event", false, 0.2, 1.16, 50},
      {"bursts", false, 0.28, 1.18, 50},
      {"crlf-bursts", false, 0.28, 1.18, 50},
      {"reasoning", true, 0.2, 1.18, 50},
      {"no-blank", false, 0.2, 1.18, 50},
      {"comments", false, 0.2, 1.18, 50},
      {"cut", false, 0.2, 0.68, 25},
      {"clean-cut", false, 0.2, 0.68, 25},
      {"error-event", false, 0.2, 0.68, 25},
      {"no-done", false, 0.2, 1.18, 50},
      {"short", false, 0.2, 0.38, 10},
      {"stall", false, 0.2, 1.68, 50},
      {"no-usage", false, 0.2, 1.16, 50},
  };
  for (const Truth& truth : truths) {
    const Timeline timeline = make(scenario(truth.script), streamed(truth.is_chat));
    double first_s = -1.0;
    double last_s = -1.0;
    std::int64_t tokens = 0;
    for (const Piece& piece : timeline.pieces) {
      if (piece.kind != PieceKind::kTokens) continue;
      if (first_s < 0.0) first_s = piece.at_s;
      last_s = piece.at_s;
      tokens = piece.tokens;
    }
    EXPECT_NEAR(first_s, truth.ttft_s, 1e-9) << truth.script;
    EXPECT_NEAR(last_s, truth.last_s, 1e-9) << truth.script;
    EXPECT_EQ(tokens, truth.tokens) << truth.script;
  }
}

TEST(Timeline, NeverGoesBackAndEndsWithItsBytes) {
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(MOE_SOURCE_DIR) / "scenarios/scripted-servers")) {
    if (entry.path().extension() != ".json") continue;
    const Script script = read_script(entry.path());
    for (const Reply& reply : script.replies) {
      for (const bool is_stream : {true, false}) {
        GenerationRequest request = streamed(true);
        request.stream = is_stream;
        request.include_usage = is_stream;
        const Timeline timeline = make_timeline(script, reply, request, true, false);
        double at_s = 0.0;
        std::uint32_t end = 0;
        for (const Piece& piece : timeline.pieces) {
          EXPECT_GE(piece.at_s, at_s) << entry.path();
          EXPECT_GE(piece.end, end) << entry.path();
          at_s = piece.at_s;
          end = piece.end;
        }
        EXPECT_EQ(end, timeline.bytes.size()) << entry.path();
        EXPECT_GE(timeline.ends_at_s, at_s) << entry.path();
      }
    }
  }
}

TEST(Timeline, EventsAreJsonAndAddUpToTheText) {
  const Timeline timeline = make(scenario("steady"), streamed(true, 4));
  const std::vector<std::string> data = data_of(test::body_of(timeline.bytes));
  ASSERT_EQ(data.size(), 8U);  // role, 4 tokens, finish, usage, [DONE]
  std::string text;
  for (std::size_t i = 0; i + 1 < data.size(); ++i) {
    const auto event = nlohmann::json::parse(data[i]);
    if (event["choices"].empty()) continue;
    text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, " one two three four");
  EXPECT_EQ(nlohmann::json::parse(data[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(nlohmann::json::parse(data[5])["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(nlohmann::json::parse(data[6])["usage"]["completion_tokens"], 4);
  EXPECT_EQ(nlohmann::json::parse(data[6])["usage"]["total_tokens"], 7);
  EXPECT_EQ(data[7], "[DONE]");
}

TEST(Timeline, TokenIdsAndRunningCountsCoverEveryToken) {
  GenerationRequest request = streamed(false, 20);
  request.return_token_ids = true;
  request.continuous_usage = true;
  const Timeline timeline = make(scenario("hidden-tokens"), request);
  std::int64_t ids = 0;
  std::int64_t counted = 0;
  int empty = 0;
  for (const std::string& one : data_of(test::body_of(timeline.bytes))) {
    if (one == "[DONE]") continue;
    const auto event = nlohmann::json::parse(one);
    if (event["choices"].empty()) continue;
    ids += static_cast<std::int64_t>(event["choices"][0]["token_ids"].size());
    EXPECT_GE(event["usage"]["completion_tokens"], counted);
    counted = event["usage"]["completion_tokens"];
    EXPECT_EQ(counted, ids);
    if (event["choices"][0]["text"] == "" && event["choices"][0]["finish_reason"].is_null())
      ++empty;
  }
  EXPECT_EQ(ids, 20);
  EXPECT_EQ(empty, 4);  // tokens 3, 9, 12, 18; the event of 6 has the text of 5
}

TEST(Timeline, TheEndOfSequenceIsATokenWithoutText) {
  const Timeline timeline = make(scenario("eos-event"), streamed(false, 100));
  const std::vector<std::string> data = data_of(test::body_of(timeline.bytes));
  ASSERT_EQ(data.size(), 52U);  // 49 with text, the last token, usage, [DONE]
  const auto last = nlohmann::json::parse(data[49]);
  EXPECT_EQ(last["choices"][0]["text"], "");
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(nlohmann::json::parse(data[50])["usage"]["completion_tokens"], 50);
}

TEST(Timeline, UsageIsWhereTheScriptPutsIt) {
  const auto usages = [](const std::string& name, bool asks) {
    GenerationRequest request = streamed(false, 6);
    request.include_usage = asks;
    std::string places;
    for (const std::string& one : data_of(test::body_of(make(scenario(name), request).bytes))) {
      if (one == "[DONE]") continue;
      const auto event = nlohmann::json::parse(one);
      const bool has_usage = event.contains("usage") && !event["usage"].is_null();
      places += !has_usage ? '-' : event["choices"].empty() ? 'u' : 'c';
    }
    return places;
  };
  EXPECT_EQ(usages("steady", true), "-------u");
  EXPECT_EQ(usages("steady", false), "-------");
  EXPECT_EQ(usages("usage-null", true), "-------u");
  EXPECT_EQ(usages("late-usage", false), "-------u");
  EXPECT_EQ(usages("usage-on-last-choice", false), "--c");
  EXPECT_EQ(usages("usage-everywhere", false), "cccc");
  EXPECT_EQ(usages("no-usage", true), "----");
}

TEST(Timeline, ReasoningAndToolCallsHaveTheirOwnFields) {
  Script script = scenario("tool-call");
  script.replies[0].tokens.reasoning = 2;
  script.replies[0].tokens.tool = 2;
  const std::string body = test::body_of(make(script, streamed(true, 6)).bytes);
  const std::vector<std::string> data = data_of(body);
  const auto delta = [&](std::size_t i) {
    return nlohmann::json::parse(data[i])["choices"][0]["delta"];
  };
  EXPECT_TRUE(delta(1).contains("reasoning") && delta(2).contains("reasoning"));
  EXPECT_TRUE(delta(3).contains("content") && delta(4).contains("content"));
  EXPECT_EQ(delta(5)["tool_calls"][0]["function"]["name"], "scripted");
  EXPECT_FALSE(delta(6)["tool_calls"][0]["function"].contains("name"));
}

TEST(Timeline, FramingIsAsOddAsTheScriptSays) {
  const auto body = [](const std::string& name) {
    return test::body_of(make(scenario(name), streamed(false, 3)).bytes);
  };
  EXPECT_THAT(body("crlf-bursts"), HasSubstr("\r\n\r\ndata: {"));
  EXPECT_THAT(body("cr"), HasSubstr("\r\rdata: {"));
  EXPECT_THAT(body("cr"), Not(HasSubstr("\n")));
  EXPECT_THAT(body("no-blank"), HasSubstr("data:{"));
  EXPECT_THAT(body("comments"), HasSubstr("\n: scripted\ndata: "));
  EXPECT_THAT(body("comments"), HasSubstr(": keep-alive\n"));
  EXPECT_EQ(body("odd-framing").substr(0, 8),
            "\xEF\xBB\xBF"
            "event");
  EXPECT_THAT(body("odd-framing"), HasSubstr("\xE2\x80\xA8"));
}

TEST(Timeline, SplitsCutWhereTheyShould) {
  const Timeline inside = make(scenario("split-characters"), streamed(false, 3));
  std::set<std::uint32_t> ends;
  for (const Piece& piece : inside.pieces) ends.insert(piece.end);
  int broken = 0;
  for (const std::uint32_t end : ends) {
    if (!is_utf8(std::string_view(inside.bytes).substr(0, end))) ++broken;
  }
  EXPECT_EQ(broken, 3);
  const Timeline everywhere = make(scenario("split-everywhere"), streamed(false, 1));
  std::uint32_t before = everywhere.pieces.front().end;
  for (const Piece& piece : everywhere.pieces) {
    if (piece.kind != PieceKind::kHeaders && piece.kind != PieceKind::kEnd) {
      EXPECT_LE(piece.end - before, 7U);
    }
    before = piece.end;
  }
}

TEST(Timeline, FaultsEndAsTheyShould) {
  const auto of = [](const std::string& name) { return make(scenario(name), streamed(false)); };
  EXPECT_TRUE(of("steady").is_complete);
  const Timeline cut = of("cut");
  EXPECT_EQ(cut.ending, Ending::kClose);
  EXPECT_FALSE(cut.is_complete);
  EXPECT_THAT(cut.bytes, Not(HasSubstr("\r\n0\r\n\r\n")));
  EXPECT_NEAR(cut.ends_at_s, 0.7, 1e-9);  // when the next token would have been due
  const Timeline clean = of("clean-cut");
  EXPECT_FALSE(clean.is_complete);
  EXPECT_THAT(clean.bytes, HasSubstr("\r\n0\r\n\r\n"));
  EXPECT_THAT(clean.bytes, Not(HasSubstr("[DONE]")));
  EXPECT_THAT(clean.bytes, Not(HasSubstr("\"finish_reason\":\"")));
  EXPECT_EQ(of("reset").ending, Ending::kReset);
  EXPECT_EQ(of("hang").ending, Ending::kHang);
  const Timeline error = of("error-event");
  EXPECT_FALSE(error.is_complete);
  EXPECT_THAT(error.bytes, HasSubstr("data: {\"error\":{"));
  EXPECT_THAT(error.bytes, HasSubstr("data: [DONE]"));
  EXPECT_THAT(of("bad-json").bytes, HasSubstr("data: {\"choices\":[\n"));
  EXPECT_EQ(of("no-done").bytes.find("[DONE]"), std::string::npos);
}

TEST(Timeline, AnAnswerThatIsNotStreamedLeavesWithItsLastToken) {
  GenerationRequest request = streamed(true, 10);
  request.stream = request.include_usage = false;
  const Timeline timeline = make(scenario("steady"), request);
  ASSERT_EQ(timeline.pieces.size(), 1U);
  EXPECT_NEAR(timeline.pieces[0].at_s, 0.38, 1e-9);
  const auto body = nlohmann::json::parse(test::body_of(timeline.bytes));
  EXPECT_EQ(body["usage"]["completion_tokens"], 10);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["message"]["content"],
            " one two three four five six seven eight one two");
}

TEST(Timeline, AnOldClientGetsNoChunks) {
  const Timeline timeline = make(scenario("steady"), streamed(false, 2), true);
  EXPECT_THAT(timeline.bytes, Not(HasSubstr("chunked")));
  EXPECT_EQ(timeline.ending, Ending::kClose);
}

}  // namespace
}  // namespace moe::scripted_server
