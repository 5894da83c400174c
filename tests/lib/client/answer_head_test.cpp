#include "lib/client/answer_head.hpp"

#include <initializer_list>

#include <gtest/gtest.h>

namespace moe::client {
namespace {

AnswerHead head_of(std::initializer_list<std::string_view> lines) {
  AnswerHead head;
  for (const std::string_view line : lines) head.take_line(line);
  return head;
}

TEST(AnswerHead, SaysHowTheBodyIsFramed) {
  const std::string_view ok = "HTTP/1.1 200 OK";
  EXPECT_EQ(head_of({ok, "TRANSFER-ENCODING:chunked", ""}).framing(), BodyFraming::kChunks);
  EXPECT_EQ(head_of({ok, "Transfer-Encoding: chunked;x=y ", ""}).framing(), BodyFraming::kChunks);
  // Chunks count more than a length.
  EXPECT_EQ(head_of({ok, "Content-Length: 5", "Transfer-Encoding: chunked", ""}).framing(),
            BodyFraming::kChunks);
  const AnswerHead with_length = head_of({ok, "Content-Length:  12 ", ""});
  EXPECT_EQ(with_length.framing(), BodyFraming::kLength);
  EXPECT_EQ(with_length.content_length(), 12U);
  EXPECT_EQ(head_of({ok, "Content-Length: 0", ""}).framing(), BodyFraming::kEmpty);
  EXPECT_EQ(head_of({ok, "X-Content-Length: 5", ""}).framing(), BodyFraming::kUntilClose);
  EXPECT_EQ(head_of({ok, "Transfer-Encoding: identity", ""}).framing(), BodyFraming::kUntilClose);
  EXPECT_EQ(head_of({"HTTP/1.1 304 Not Modified", "Content-Length: 5", ""}).framing(),
            BodyFraming::kEmpty);
}

TEST(AnswerHead, SaysWhetherTheConnectionEnds) {
  const std::string_view length = "Content-Length: 1";
  EXPECT_FALSE(head_of({"HTTP/1.1 200 OK", length, ""}).closes());
  EXPECT_FALSE(head_of({"HTTP/1.1 200 OK", length, "Connection: closed", ""}).closes());
  EXPECT_TRUE(head_of({"HTTP/1.1 200 OK", length, "connection: x,CLOSE", ""}).closes());
  EXPECT_TRUE(head_of({"HTTP/1.1 200 OK", ""}).closes());
  EXPECT_TRUE(head_of({"HTTP/1.0 200 OK", length, ""}).closes());
}

TEST(AnswerHead, PassesOverInterimHeads) {
  const AnswerHead head =
      head_of({"HTTP/1.1 103 Early Hints", "Connection: close", "", "HTTP/1.1 404 Not Found",
               "Content-Length: 2", "", "A: trailer"});
  EXPECT_EQ(head.status(), 404);
  EXPECT_TRUE(head.is_ended());
  EXPECT_FALSE(head.closes());
  EXPECT_FALSE(head_of({"HTTP/1.1 100 Continue", ""}).is_ended());
}

TEST(AnswerHead, WhatIsNoHeadIsMalformed) {
  EXPECT_TRUE(head_of({""}).is_malformed());
  EXPECT_TRUE(head_of({"HTTP/2 200"}).is_malformed());
  EXPECT_TRUE(head_of({"HTTP/1.1 x00 OK"}).is_malformed());
  EXPECT_TRUE(head_of({"HTTP/1.1 099 OK"}).is_malformed());
  for (const std::string_view line :
       {"Content-Length: -1", "Content-Length: 1 2", "Content-Length:", "Content-Length: 0x5",
        "Content-Length: 1000000000000000000"}) {
    EXPECT_TRUE(head_of({"HTTP/1.1 200 OK", line}).is_malformed()) << line;
  }
  EXPECT_FALSE(
      head_of({"HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5"}).is_malformed());
  EXPECT_TRUE(head_of({"HTTP/1.1 200 OK", "Transfer-Encoding: gzip", ""}).is_malformed());
}

}  // namespace
}  // namespace moe::client
