#include "lib/comm/tcp_message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::comm {
namespace {

using ::testing::ElementsAre;

StoreMessage message(const std::string& body) {
  return {StoreMessageKind::kShare, 3, 7, body};
}

TEST(StoreMessage, ComesOutAsItWentInHoweverItIsCut) {
  const std::string bytes = encode_message(message("hello")) + encode_message(message(""));
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    StoreMessageReader reader(100);
    std::vector<std::string> bodies;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.feed(std::string_view(bytes).substr(at, piece));
      while (const auto read = reader.next()) {
        EXPECT_EQ(read->rank, 3U);
        EXPECT_EQ(read->sequence, 7U);
        bodies.push_back(read->body);
      }
    }
    EXPECT_THAT(bodies, ElementsAre("hello", "")) << piece;
  }
}

TEST(StoreMessage, EveryFlippedBitIsNoticed) {
  const std::string good = encode_message(message("hello"));
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    StoreMessageReader reader(5);
    reader.feed(bytes);
    bool is_noticed = false;
    try {
      // A length that shrank or grew is waited for or refused, never taken.
      is_noticed = !reader.next().has_value();
    } catch (const Error& error) {
      is_noticed = error.code() == ErrorCode::kInput;
    }
    EXPECT_TRUE(is_noticed) << bit;
  }
}

TEST(StoreMessage, StrangersAreRefusedAtOnce) {
  StoreMessageReader reader(kMaxHelloBytes);
  reader.feed("GET ");
  EXPECT_THROW((void)reader.next(), Error);
  StoreMessageReader large(4);
  large.feed(encode_message(message("hello")).substr(0, 28));
  EXPECT_THROW((void)large.next(), Error);
}

TEST(Texts, SurviveTheTrip) {
  const std::vector<std::string> texts = {"", "a", std::string("\0b\n", 3), std::string(5000, 'x')};
  EXPECT_EQ(decode_texts(encode_texts(texts)), texts);
  EXPECT_TRUE(decode_texts(encode_texts({})).empty());
}

TEST(Texts, LyingLengthsAreRefused) {
  const std::string good = encode_texts({"abc", "de"});
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW((void)decode_texts(good.substr(0, size)), Error) << size;
  }
  EXPECT_THROW((void)decode_texts(good + "x"), Error);
  EXPECT_THROW((void)decode_texts(std::string("\xff\xff\xff\xff\0\0\0\0", 8)), Error);
  EXPECT_THROW((void)decode_texts(std::string("\x01\0\0\0\xff\xff\xff\xff", 8)), Error);
}

}  // namespace
}  // namespace moe::comm
