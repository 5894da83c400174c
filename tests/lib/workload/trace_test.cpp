#include "lib/workload/trace.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/workload/trace_parts.hpp"

namespace moe::workload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Seen {
  TraceInfo info;
  std::vector<double> times;
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> outputs;
  std::vector<std::vector<std::uint64_t>> blocks;
};

Seen read(const std::string& text, TraceOptions options = {}) {
  Seen seen;
  seen.info = visit_trace_text(text, "trace", options, [&](const Request& request) {
    seen.times.push_back(request.arrival_s.value_or(-1.0));
    seen.inputs.push_back(request.input_tokens);
    seen.outputs.push_back(request.output_tokens);
    seen.blocks.emplace_back(request.prefix_blocks.begin(), request.prefix_blocks.end());
  });
  return seen;
}

std::string failure(const std::string& text, TraceOptions options = {}) {
  try {
    (void)read(text, std::move(options));
  } catch (const Error& error) {
    return error.what();
  }
  return "no failure";
}

// Seconds since 1970 by the date command of GNU coreutils.
TEST(ParseTimestamp, AgreesWithTheCalendar) {
  EXPECT_DOUBLE_EQ(*parse_timestamp_s("1970-01-01 00:00:00"), 0.0);
  EXPECT_DOUBLE_EQ(*parse_timestamp_s("2024-02-29T12:00:00Z"), 1709208000.0);
  EXPECT_NEAR(*parse_timestamp_s("2023-11-16 18:17:03.9799600"), 1700158623.97996, 1e-5);
  EXPECT_NEAR(*parse_timestamp_s("2024-05-10 00:00:00.009930+00:00"), 1715299200.00993, 1e-5);
  EXPECT_FALSE(parse_timestamp_s("2024-13-01 00:00:00"));
  EXPECT_FALSE(parse_timestamp_s("2024-01-01 00:00"));
  EXPECT_FALSE(parse_timestamp_s("2024-01-01 00:00:00 tomorrow"));
  EXPECT_FALSE(parse_timestamp_s("20x4-01-01 00:00:00"));
}

TEST(Trace, ReadsAzure) {
  const Seen seen = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 18:17:03.9799600,4808,10\r\n"
      "2023-11-16 18:17:04.0319569,3180,8\r\n"
      "2023-11-17 18:17:03.9799600,110,27\r\n");
  EXPECT_EQ(seen.info.format, TraceFormat::kAzure);
  EXPECT_THAT(seen.inputs, ElementsAre(4808, 3180, 110));
  EXPECT_THAT(seen.outputs, ElementsAre(10, 8, 27));
  EXPECT_DOUBLE_EQ(seen.times[0], 0.0);
  EXPECT_NEAR(seen.times[1], 0.0519969, 1e-6);
  EXPECT_NEAR(seen.times[2], 86400.0, 1e-6);
}

TEST(Trace, ReadsBurstGptByColumnNameAndLeavesFailuresOut) {
  const Seen seen = read(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,ChatGPT,472,18,490,Conversation log\n"
      "45,ChatGPT,1087,0,1087,Conversation log\n"
      "118,GPT-4,417,276,693,API log\n");
  EXPECT_EQ(seen.info.format, TraceFormat::kBurstGpt);
  EXPECT_EQ(seen.info.failed, 1);
  EXPECT_THAT(seen.inputs, ElementsAre(472, 417));
  EXPECT_THAT(seen.times, ElementsAre(0.0, 113.0));
  // The later release has its columns in another order.
  const Seen newer = read(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\n"
      "5.5,12,1.5,ChatGPT,472.0,18.0,490,Conversation log\n");
  EXPECT_THAT(newer.inputs, ElementsAre(472));
}

TEST(Trace, ReadsMooncakeInMillisecondsWithPrefixBlocks) {
  const Seen seen = read(
      "{\"timestamp\": 0, \"input_length\": 655, \"output_length\": 52, \"hash_ids\": [46, 47]}\n"
      "\n"
      "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 1, \"hash_ids\": []}\n");
  EXPECT_EQ(seen.info.format, TraceFormat::kMooncake);
  EXPECT_THAT(seen.times, ElementsAre(0.0, 27.482));
  EXPECT_THAT(seen.blocks[0], ElementsAre(46U, 47U));
}

TEST(Trace, ReadsShareGptFirstTurnsAndSaysThatTokensAreEstimated) {
  const std::string text =
      "[{\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"12345678\"},"
      "{\"from\": \"gpt\", \"value\": \"a [bracket] \\\" }\"}]},\n"
      " {\"id\": \"b\", \"conversations\": [{\"from\": \"gpt\", \"value\": \"alone\"}]},\n"
      " {\"id\": \"c\", \"conversations\": []}]\n";
  const Seen seen = read(text);
  EXPECT_EQ(seen.info.format, TraceFormat::kShareGpt);
  EXPECT_TRUE(seen.info.is_token_estimate);
  EXPECT_FALSE(seen.info.has_times);
  EXPECT_EQ(seen.info.incomplete, 2);
  EXPECT_THAT(seen.inputs, ElementsAre(2));
  EXPECT_THAT(seen.outputs, ElementsAre(4));
  TraceOptions options;
  options.count_tokens = [](std::string_view words) {
    return static_cast<std::int64_t>(words.size());
  };
  const Seen counted = read(text, options);
  EXPECT_FALSE(counted.info.is_token_estimate);
  EXPECT_THAT(counted.inputs, ElementsAre(8));
}

TEST(Trace, ReadsPlainAndStopsWhereAsked) {
  TraceOptions options;
  options.max_requests = 2;
  const Seen seen = read("arrival_s,input_tokens,output_tokens\n1,10,1\n2,20,2\n3,30,3\n", options);
  EXPECT_THAT(seen.inputs, ElementsAre(10, 20));
}

TEST(Trace, CountsWhatIsOutOfOrder) {
  const Seen seen = read("arrival_s,input_tokens,output_tokens\n5,1,1\n3,1,1\n9,1,1\n");
  EXPECT_EQ(seen.info.out_of_order, 1);
  EXPECT_THAT(seen.times, ElementsAre(0.0, 0.0, 4.0));
}

TEST(Trace, NamesTheLineOfWhatItRefuses) {
  EXPECT_THAT(
      failure("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,12,x\n"),
      HasSubstr("trace:2: expected a number of tokens in \"GeneratedTokens\", found \"x\""));
  EXPECT_THAT(failure("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,12,1\n"),
              HasSubstr("trace:2: expected a date and time"));
  EXPECT_THAT(failure("TIMESTAMP,ContextTokens\n1,2\n"),
              HasSubstr("expected a column \"GeneratedTokens\""));
  EXPECT_THAT(failure("arrival_s,input_tokens,output_tokens\n1,-5,1\n"), HasSubstr("\"-5\""));
  EXPECT_THAT(failure("arrival_s,input_tokens,output_tokens\n1,2\n"), HasSubstr("trace:2"));
  EXPECT_THAT(failure("arrival_s,input_tokens,output_tokens\nnan,2,3\n"), HasSubstr("seconds"));
  EXPECT_THAT(failure("arrival_s,input_tokens,output_tokens\n0,2,3\n1e300,2,3\n"),
              HasSubstr("100 years"));
  EXPECT_THAT(failure("{\"timestamp\": 0, \"input_length\": \"5\", \"output_length\": 1}\n"),
              HasSubstr("trace:1: expected \"input_length\" as a number of tokens, found \"5\""));
  EXPECT_THAT(failure("{\"timestamp\": 0, \"input_length\": 5}\n"), HasSubstr("output_length"));
  EXPECT_THAT(failure("{\"timestamp\": 0, \"input_l"), HasSubstr("trace:1"));
  EXPECT_THAT(failure("[{\"conversations\": []}"), HasSubstr("ends before the array does"));
  EXPECT_THAT(failure("[{\"conversations\": ["), HasSubstr("conversation 1"));
  EXPECT_THAT(failure("[1]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(failure("hello\n"), HasSubstr("none of the trace formats"));
  EXPECT_THAT(failure(""), HasSubstr("none of the trace formats"));
  EXPECT_THAT(failure("arrival_s,input_tokens,output_tokens\n"), HasSubstr("no usable request"));
  EXPECT_THAT(failure("[]"), HasSubstr("no usable request"));
}

}  // namespace
}  // namespace moe::workload
