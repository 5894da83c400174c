#include "lib/client/answer_reader.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::client {
namespace {

using ::testing::HasSubstr;

using Timed = std::pair<double, std::string>;

std::string event(const std::string& json) {
  return "data: " + json + "\n\n";
}
std::string delta(const std::string& members, const std::string& rest = "") {
  return event("{\"choices\":[{\"index\":0,\"delta\":{" + members + "}" + rest + "}]}");
}
std::string text_event(const std::string& text) {
  return event("{\"choices\":[{\"index\":0,\"text\":\"" + text + "\"}]}");
}
const char* const kFinish = "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";
const char* const kDone = "data: [DONE]\n\n";

RequestRecord read(const std::vector<Timed>& reads, const BodyEnd& end = {}, int status = 200,
                   const CountTokens& count_tokens = nullptr) {
  EventReader events;
  AnswerReader reader(true);
  reader.set_status(status);
  RequestRecord record;
  record.sent_s = 0.0;
  for (const auto& [time_s, bytes] : reads) reader.feed(bytes, time_s, events);
  reader.finish(end, events, count_tokens, record);
  return record;
}

TEST(AnswerReader, RoleAndEmptyEventsAreNoFirstToken) {
  const RequestRecord record = read(
      {{0.005, delta("\"role\":\"assistant\",\"content\":\"\"")},
       {0.006, delta("\"content\":\"\"")},
       {0.2, delta("\"content\":\"Hello\"")},
       {0.3, delta("", ",\"finish_reason\":\"stop\"")},
       {0.8, event("{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}")},
       {0.8, kDone}});
  EXPECT_EQ(record.failure, Failure::kNone);
  EXPECT_EQ(record.first_token_s, 0.2);
  EXPECT_EQ(record.last_token_s, 0.2);  // a late usage event does not prolong the answer
  EXPECT_EQ(record.output_tokens, 1);
}

TEST(AnswerReader, ReasoningIsATokenButNotVisible) {
  for (const char* field : {"reasoning", "reasoning_content"}) {
    const RequestRecord record =
        read({{0.2, delta("\"" + std::string(field) + "\":\"hm\"")},
              {0.4, delta("\"content\":\"yes\"", ",\"finish_reason\":\"stop\"")}});
    EXPECT_EQ(record.first_token_s, 0.2);
    EXPECT_EQ(record.first_visible_s, 0.4);
  }
}

TEST(AnswerReader, ToolCallsAreOutput) {
  const RequestRecord record = read(
      {{0.1, delta("\"content\":null,\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\","
                   "\"arguments\":\"{}\"}}]")},
       {0.2, delta("", ",\"finish_reason\":\"tool_calls\"")}});
  EXPECT_EQ(record.first_token_s, 0.1);
  EXPECT_EQ(record.first_visible_s, 0.1);
  EXPECT_EQ(record.text, "f{}");
}

TEST(AnswerReader, BundlesAreCountedByTheRunningUsage) {
  std::vector<Timed> reads;
  for (int i = 1; i <= 4; ++i) {
    reads.emplace_back(0.08 * i,
                       event("{\"choices\":[{\"text\":\"x\"}],\"usage\":{\"prompt_tokens\""
                             ":1,\"completion_tokens\":" +
                             std::to_string(8 * i) + "}}"));
  }
  reads.emplace_back(0.32, kFinish);
  reads.emplace_back(0.32, kDone);
  const RequestRecord record = read(reads);
  EXPECT_EQ(record.output_tokens, 32);
  ASSERT_EQ(record.arrivals.size(), 4U);
  EXPECT_FLOAT_EQ(record.arrivals[1].num_tokens, 8.0F);
  EXPECT_TRUE(record.has_exact_arrivals);
}

TEST(AnswerReader, IdsAreKeptOnlyWhenEveryTokenHasOne) {
  const auto with_ids = [](const std::string& text, const std::string& ids) {
    return event("{\"choices\":[{\"index\":0,\"text\":\"" + text + "\",\"token_ids\":" + ids +
                 "}]}");
  };
  const std::vector<Timed> whole = {{0.1, with_ids("a", "[7]")},
                                    {0.2, with_ids("bc", "[11,13]")},
                                    {0.3, with_ids("", "[2]")},
                                    {0.3, kFinish}};
  EXPECT_EQ(read(whole).token_ids, (std::vector<std::int32_t>{7, 11, 13, 2}));
  std::vector<Timed> partial = whole;
  partial[1].second = text_event("bc");
  EXPECT_EQ(read(partial).token_ids, std::vector<std::int32_t>{});
  EXPECT_EQ(read(partial).text, "abc");
}

TEST(AnswerReader, AnswersThatEndEarlyAreTruncated) {
  EXPECT_EQ(read({{0.1, text_event("a")}}).failure, Failure::kTruncated);
  EXPECT_EQ(read({}).failure, Failure::kTruncated);
  EXPECT_EQ(read({{0.1, text_event("a")}}, {Failure::kReset, "cut", 1.0}).failure,
            Failure::kTruncated);
  EXPECT_EQ(read({{0.1, text_event("a")}}, {Failure::kTimeout, "late", 1.0}).failure,
            Failure::kTimeout);
}

TEST(AnswerReader, AFinishReasonOrDoneIsAnEnd) {
  EXPECT_EQ(read({{0.1, text_event("a")}, {0.1, kFinish}}).failure, Failure::kNone);
  EXPECT_EQ(read({{0.1, text_event("a")}, {0.1, kDone}}).failure, Failure::kNone);
  EXPECT_EQ(read({{0.1, text_event("a")}, {0.1, "data:[DONE]\n\n"}}).failure, Failure::kNone);
  // The connection broke behind the end.
  EXPECT_EQ(read({{0.1, text_event("a")}, {0.1, kFinish}}, {Failure::kReset, "cut", 1.0}).failure,
            Failure::kNone);
}

TEST(AnswerReader, OneOfTwoChoicesIsNotTheEnd) {
  EXPECT_EQ(read({{0.1, event("{\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":"
                              "\"stop\"},{\"index\":1,\"text\":\"b\"}]}")}})
                .failure,
            Failure::kTruncated);
}

TEST(AnswerReader, AnErrorInsideAStreamIsAFailureEvenBeforeDone) {
  const RequestRecord record =
      read({{0.1, text_event("a")},
            {0.2, event("{\"error\":{\"message\":\"engine died\",\"type\":\"T\",\"code\":500}}")},
            {0.2, kDone}});
  EXPECT_EQ(record.failure, Failure::kErrorEvent);
  EXPECT_THAT(record.error, HasSubstr("engine died"));
  EXPECT_EQ(read({{0.1, "error: {\"code\":500,\"message\":\"x\"}\n\n"}, {0.2, kDone}}).failure,
            Failure::kErrorEvent);
}

TEST(AnswerReader, ErrorsOfEveryShapeAreQuoted) {
  struct Case {
    int status;
    const char* body;
    Failure failure;
    const char* words;
  };
  for (const Case& one : std::vector<Case>{
           {400, "{\"error\":{\"message\":\"no such field\"}}", Failure::kHttpStatus, "no such"},
           {404, "{\"detail\":\"Not Found\"}", Failure::kHttpStatus, "Not Found"},
           {422, "{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"bad type\"}]}", Failure::kHttpStatus,
            "bad type"},
           {400, "{\"object\":\"error\",\"message\":\"This model's maximum context length is 8\"}",
            Failure::kTooLong, "maximum context"},
           {502, "<html>Bad Gateway</html>", Failure::kHttpStatus, "Bad Gateway"},
           {503, "", Failure::kHttpStatus, "no body"},
           {200, "{\"error\":\"plain words\"}", Failure::kErrorEvent, "plain words"}}) {
    const RequestRecord record = read({{0.1, one.body}}, {}, one.status);
    EXPECT_STREQ(name_of(record.failure), name_of(one.failure)) << one.body;
    EXPECT_THAT(record.error, HasSubstr(one.words));
  }
}

TEST(AnswerReader, NotJsonIsMalformed) {
  EXPECT_EQ(read({{0.1, text_event("a")}, {0.1, "data: {\"x\n\n"}, {0.2, kDone}}).failure,
            Failure::kMalformed);
}

TEST(AnswerReader, APlainAnswerHasTokensButNoFirstOne) {
  const RequestRecord record =
      read({{0.5,
             "{\"choices\":[{\"index\":0,\"text\":\"a b\",\"finish_reason\":\"stop\"}],"
             "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2}}"}});
  EXPECT_EQ(record.failure, Failure::kNone);
  EXPECT_EQ(record.output_tokens, 2);
  EXPECT_FALSE(record.first_token_s.has_value());
  EXPECT_TRUE(record.arrivals.empty());
}

TEST(AnswerReader, APlainBodyWithoutAnAnswerIsMalformed) {
  EXPECT_EQ(read({{0.5, "{\"status\":\"ok\"}"}}).failure, Failure::kMalformed);
  EXPECT_EQ(read({{0.5, "{\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}"}}).failure,
            Failure::kNone);
}

TEST(AnswerReader, AnOwnTokenizerIsTheLastResort) {
  const CountTokens count = [](std::string_view text) {
    return static_cast<std::int64_t>(text.size());
  };
  const RequestRecord none = read({{0.1, text_event("abc")}, {0.2, kFinish}}, {}, 200, count);
  EXPECT_EQ(none.token_source, TokenSource::kTokenizer);
  EXPECT_EQ(none.output_tokens, 3);
  const RequestRecord usage = read(
      {{0.1, text_event("abc")},
       {0.2, kFinish},
       {0.2, event("{\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}")}},
      {}, 200, count);
  EXPECT_EQ(usage.token_source, TokenSource::kFinalUsage);
  EXPECT_EQ(usage.output_tokens, 1);
  EXPECT_EQ(usage.tokenizer_output_tokens, 3);  // both are reported
}

TEST(AnswerReader, NullUsageAndPromptProgressAreHarmless) {
  const RequestRecord record =
      read({{0.01, event("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}],"
                         "\"prompt_progress\":{\"total\":10}}")},
            {0.2, event("{\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}")},
            {0.2, event("null")},
            {0.3, kDone}});
  EXPECT_EQ(record.first_token_s, 0.2);
  EXPECT_EQ(record.failure, Failure::kNone);
}

}  // namespace
}  // namespace moe::client
