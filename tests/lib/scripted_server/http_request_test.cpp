// Goal: requests are read the same in whatever pieces they come, and hostile ones end in a status.

#include "lib/scripted_server/http_request.hpp"

#include <gtest/gtest.h>

namespace moe::scripted_server {
namespace {

struct Read {
  ReadState state = ReadState::kNeedsMore;
  HttpRequest request;
  int status = 0;
};

Read read_in_pieces(const std::string& bytes, std::size_t piece) {
  RequestReader reader;
  Read read;
  for (std::size_t at = 0; at < bytes.size() && read.state == ReadState::kNeedsMore; at += piece) {
    reader.append(std::string_view(bytes).substr(at, piece));
    do {
      read.state = reader.next(read.request);
    } while (read.state == ReadState::kWantsContinue);
  }
  read.status = read.state == ReadState::kBad ? reader.status() : 0;
  return read;
}

TEST(HttpRequest, IsTheSameAtEverySizeOfPieces) {
  const std::string bytes =
      "\r\nPOST /v1/completions?x=1 HTTP/1.1\r\nHost: a\r\nX-Request-ID:  abc \r\n"
      "Authorization: Bearer k\r\ncontent-LENGTH: 5\r\n\r\nhello";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Read read = read_in_pieces(bytes, piece);
    ASSERT_EQ(read.state, ReadState::kComplete) << piece;
    EXPECT_EQ(read.request.method, "POST");
    EXPECT_EQ(read.request.path, "/v1/completions");
    EXPECT_EQ(read.request.request_id, "abc");
    EXPECT_EQ(read.request.authorization, "Bearer k");
    EXPECT_EQ(read.request.body, "hello");
    EXPECT_TRUE(read.request.keeps_alive);
  }
}

TEST(HttpRequest, ChunksAreJoinedAndTrailersPassedOver) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n"
      "0\r\nTrailer: 1\r\n\r\n";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Read read = read_in_pieces(bytes, piece);
    ASSERT_EQ(read.state, ReadState::kComplete) << piece;
    EXPECT_EQ(read.request.body, "abc0123456789");
  }
}

TEST(HttpRequest, OneBehindTheOtherAreTwo) {
  RequestReader reader;
  reader.append("GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.0\r\n\r\n");
  HttpRequest request;
  ASSERT_EQ(reader.next(request), ReadState::kComplete);
  EXPECT_EQ(request.path, "/a");
  ASSERT_EQ(reader.next(request), ReadState::kComplete);
  EXPECT_EQ(request.path, "/b");
  EXPECT_TRUE(request.is_http_10);
  EXPECT_FALSE(request.keeps_alive);
  EXPECT_EQ(reader.next(request), ReadState::kNeedsMore);
}

TEST(HttpRequest, ContinueIsWantedOnceAndOnlyWhenTheBodyIsNotThere) {
  const std::string head = "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  RequestReader reader;
  HttpRequest request;
  reader.append(head);
  EXPECT_EQ(reader.next(request), ReadState::kWantsContinue);
  EXPECT_EQ(reader.next(request), ReadState::kNeedsMore);
  reader.append("ok");
  EXPECT_EQ(reader.next(request), ReadState::kComplete);
  RequestReader at_once;
  at_once.append(head + "ok");
  EXPECT_EQ(at_once.next(request), ReadState::kComplete);
}

TEST(HttpRequest, ConnectionSaysWhetherItStays) {
  const auto keeps = [](const std::string& header, const std::string& version) {
    return read_in_pieces("GET / HTTP/" + version + "\r\n" + header + "\r\n", 7)
        .request.keeps_alive;
  };
  EXPECT_FALSE(keeps("Connection: Close\r\n", "1.1"));
  EXPECT_FALSE(keeps("Connection: te, close\r\n", "1.1"));
  EXPECT_TRUE(keeps("Connection: keep-alive\r\n", "1.0"));
}

TEST(HttpRequest, WhatIsWrongEndsInAStatus) {
  const auto status = [](const std::string& bytes) {
    const Read whole = read_in_pieces(bytes, bytes.size());
    EXPECT_EQ(read_in_pieces(bytes, 1).status, whole.status) << bytes.substr(0, 60);
    return whole.status;
  };
  EXPECT_EQ(status("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/2.0\r\n\r\n"), 400);
  EXPECT_EQ(status("GET example.com/ HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("G\x01T / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"), 413);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n"), 413);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nA: " + std::string(kMaxHeaderBytes, 'x') + "\r\n\r\n"), 431);
}

}  // namespace
}  // namespace moe::scripted_server
