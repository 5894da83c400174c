#include "lib/client/sse_reader.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "tests/lib/client/captures.hpp"

namespace moe::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> events_of(const std::vector<std::string>& reads) {
  SseReader reader;
  std::vector<std::string> events;
  const auto sink = [&](const SseEvent& event) { events.emplace_back(event.data); };
  for (const std::string& read : reads) reader.feed(read, sink);
  reader.finish(sink);
  return events;
}

std::vector<std::string> events_of_text(const std::string& text) {
  return events_of({text});
}

TEST(SseReader, TakesEveryLineEnd) {
  EXPECT_THAT(events_of_text("data: a\n\ndata: b\n\n"), ElementsAre("a", "b"));
  EXPECT_THAT(events_of_text("data: a\r\n\r\ndata: b\r\n\r\n"), ElementsAre("a", "b"));
  EXPECT_THAT(events_of_text("data: a\r\rdata: b\r\r"), ElementsAre("a", "b"));
  EXPECT_THAT(events_of_text("data: a\r\n\ndata: b\n\r\n"), ElementsAre("a", "b"));
}

TEST(SseReader, BlankAfterTheColonIsOptionalAndOnlyOneIsTaken) {
  EXPECT_THAT(events_of_text("data:{\"a\":1}\n\n"), ElementsAre("{\"a\":1}"));
  EXPECT_THAT(events_of_text("data:  two\n\n"), ElementsAre(" two"));
}

TEST(SseReader, CommentsAndOtherFieldsAreNoEvents) {
  EXPECT_THAT(events_of_text(": keep-alive\n\n:\n\nretry: 5\n\n"), IsEmpty());
  EXPECT_THAT(events_of_text(": c\ndata: a\n: c\nevent: message\nid: 3\n\n"), ElementsAre("a"));
}

TEST(SseReader, JoinsDataLines) {
  EXPECT_THAT(events_of_text("data: {\"a\":\ndata: 1}\n\n"), ElementsAre("{\"a\":\n1}"));
  EXPECT_THAT(events_of_text("data\ndata\n\n"), ElementsAre("\n"));
}

TEST(SseReader, OtherLineEndsOfUnicodeAreText) {
  // U+2028, U+0085 and U+000B inside a string.
  const std::string text = "\"\xE2\x80\xA8\xC2\x85\x0B\"";
  EXPECT_THAT(events_of_text("data: " + text + "\n\n"), ElementsAre(text));
}

TEST(SseReader, DropsAByteOrderMarkAtTheStartOnly) {
  EXPECT_THAT(events_of_text("\xEF\xBB\xBF"
                             "data: a\n\n\xEF\xBB\xBF"
                             "data: b\n\n"),
              ElementsAre("a"));
}

TEST(SseReader, EndOfTheBody) {
  EXPECT_THAT(events_of_text("data: a\n\ndata: whole line\n"), ElementsAre("a", "whole line"));
  EXPECT_THAT(events_of_text("data: a\n\ndata: {\"half\":"), ElementsAre("a"));
  EXPECT_THAT(events_of_text("data: a\n\ndata: [DONE]"), ElementsAre("a", "[DONE]"));
}

TEST(SseReader, BlanksAtTheEdgesOfReadsStay) {
  EXPECT_THAT(events_of({"data:", " hello", " ", "world\n", "\n"}), ElementsAre("hello world"));
  EXPECT_THAT(events_of({"data: x ", "\n\n"}), ElementsAre("x "));
}

TEST(SseReader, StopsAtAnEventWithoutEnd) {
  SseReader reader;
  int num_events = 0;
  const std::string piece(1U << 20U, 'x');
  for (int i = 0; i < 40; ++i) {
    reader.feed("data: " + piece + "\n", [&](const SseEvent&) { ++num_events; });
  }
  EXPECT_TRUE(reader.is_overflown());
  EXPECT_EQ(num_events, 0);
}

// Splitting a stream at a byte can change only the event around that byte: the reader's state at
// the next boundary is that of the unsplit stream, so everything behind it is equal too. This
// covers every single split of a stream in time that grows with its length, not with its square.
void expect_equal_at_every_split(const std::string& name, const std::string& body) {
  const std::vector<std::string> whole = events_of_text(body);
  std::vector<std::string> events;
  const auto sink = [&](const SseEvent& event) { events.emplace_back(event.data); };
  // Boundaries: behind each byte that completes an event, found byte by byte.
  SseReader bytewise;
  std::vector<std::size_t> boundaries;
  for (std::size_t at = 0; at < body.size(); ++at) {
    const std::size_t before = events.size();
    bytewise.feed(std::string_view(body).substr(at, 1), sink);
    if (events.size() > before) boundaries.push_back(at + 1);
  }
  bytewise.finish(sink);
  ASSERT_EQ(events, whole) << name << " byte by byte";
  boundaries.push_back(body.size());

  SseReader at_boundary;
  std::size_t from = 0;
  for (const std::size_t end : boundaries) {
    const std::string_view part = std::string_view(body).substr(from, end - from);
    SseReader unsplit = at_boundary;
    events.clear();
    unsplit.feed(part, sink);
    const std::vector<std::string> expected = events;
    for (std::size_t split = 0; split <= part.size(); ++split) {
      SseReader reader = at_boundary;
      events.clear();
      reader.feed(part.substr(0, split), sink);
      reader.feed(part.substr(split), sink);
      ASSERT_EQ(events, expected) << name << " split at byte " << from + split;
      ASSERT_TRUE(reader == unsplit) << name << " split at byte " << from + split;
    }
    at_boundary = unsplit;
    from = end;
  }
}

TEST(SseReader, EveryCaptureIsTheSameAtEverySplit) {
  int num_streams = 0;
  for (const Capture& capture : all_captures()) {
    if (!capture.facts.contains("event_sequence") || capture.facts["event_sequence"].is_null()) {
      continue;
    }
    ++num_streams;
    expect_equal_at_every_split(capture.name, capture.last_answer().body);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(num_streams, 80);
}

TEST(SseReader, OtherFramingsAreTheSameAtEverySplit) {
  for (const std::string body :
       {"\xEF\xBB\xBF"
        "data: a\r\n\r\n: x\r\n\r\ndata:b\r\n\r\ndata: [DONE]\r\n\r\n",
        "data: a\r\rdata: b\r: c\rdata: c\r\rdata: [DONE]\r\r",
        "event: message\ndata: {\"x\":\ndata: 1}\n\n\n\ndata:\xC3\xA9\n\n"}) {
    expect_equal_at_every_split("framing", body);
  }
}

TEST(SseReader, EveryCaptureIsTheSameAtRandomSplits) {
  Rng rng(7);
  for (const Capture& capture : all_captures()) {
    if (!capture.facts.contains("event_sequence")) continue;
    const std::string body = capture.last_answer().body;
    const std::vector<std::string> whole = events_of_text(body);
    const int num_rounds = body.size() < 16384 ? 50 : 4;
    for (int round = 0; round < num_rounds; ++round) {
      std::vector<std::string> reads;
      const std::uint64_t longest = 1 + rng.next_below(200);
      for (std::size_t at = 0; at < body.size();) {
        const std::size_t size = 1 + rng.next_below(longest);
        reads.push_back(body.substr(at, size));
        at += size;
      }
      ASSERT_EQ(events_of(reads), whole) << capture.name << " round " << round;
    }
  }
}

}  // namespace
}  // namespace moe::client
