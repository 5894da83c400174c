#include "lib/client/chunk_decoder.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace moe::client {
namespace {

struct Decoded {
  std::string body;
  std::size_t num_used = 0;
  bool is_ended = false;
  bool is_malformed = false;
  friend bool operator==(const Decoded&, const Decoded&) = default;
};

Decoded decode(std::string_view first, std::string_view second = {}) {
  ChunkDecoder decoder;
  Decoded decoded;
  const auto sink = [&](std::string_view piece) { decoded.body.append(piece); };
  decoded.num_used = decoder.feed(first, sink);
  if (decoded.num_used == first.size()) decoded.num_used += decoder.feed(second, sink);
  decoded.is_ended = decoder.is_ended();
  decoded.is_malformed = decoder.is_malformed();
  return decoded;
}

TEST(ChunkDecoder, EveryFormIsTheSameAtEverySplit) {
  // Chunk, extension, upper and lower case, leading zeros, LF alone, trailers, what follows.
  const std::string_view text =
      "5\r\nhello\r\n"
      "00A;name=\"value\"\r\n, 10 bytes\r\n"
      "1\n!\n"
      "0\r\nExpires: never\r\nX: y\r\n\r\n"
      "HTTP/1.1";
  const Decoded whole = decode(text);
  EXPECT_EQ(whole.body, "hello, 10 bytes!");
  EXPECT_TRUE(whole.is_ended);
  EXPECT_EQ(text.substr(whole.num_used), "HTTP/1.1");
  for (std::size_t at = 0; at <= text.size(); ++at) {
    EXPECT_EQ(decode(text.substr(0, at), text.substr(at)), whole) << at;
  }
}

TEST(ChunkDecoder, WhatIsNoChunkIsMalformed) {
  for (const std::string_view text :
       {"\r\n", "x\r\n", "-1\r\n", "5\r\nhelloX", "5\r\nhello\rX", "5\rX", "0\r\n\rX",
        "1000000000000000\r\n", "5 5\r\nhellohello\r\n5x"}) {
    EXPECT_TRUE(decode(text).is_malformed) << text;
    EXPECT_FALSE(decode(text).is_ended) << text;
  }
}

TEST(ChunkDecoder, AnEndThatHasNotComeIsNoEnd) {
  for (const std::string_view text : {"", "5\r\nhel", "5\r\nhello\r\n", "0\r\n", "0\r\nA: b\r\n",
                                      "0\r\n\r", "fffffffffffffff\r\nx"}) {
    EXPECT_FALSE(decode(text).is_ended) << text;
    EXPECT_FALSE(decode(text).is_malformed) << text;
  }
}

}  // namespace
}  // namespace moe::client
