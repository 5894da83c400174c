#include "lib/model/utf8_stream.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "lib/base/text.hpp"

namespace moe::model {
namespace {

// Byte sequences and their text: Unicode 15, section 3.9, table 3-8 and the text around it.
const std::vector<std::pair<std::string, std::string>> kExamples = {
    {"abc", "abc"},
    {"\xE5\x8F\xAB", "\xE5\x8F\xAB"},
    {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
    {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
    {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
    {"\xE5\x8F", "?"},
    {"\xE5\x8F\xF0\x9F", "??"},
    {"\xFF", "?"},
};

std::string with_replacements(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '?') {
      out += kReplacementCharacter;
    } else {
      out += c;
    }
  }
  return out;
}

TEST(ToValidUtf8, ReplacesMaximalSubparts) {
  for (const auto& [bytes, text] : kExamples) {
    EXPECT_EQ(to_valid_utf8(bytes), with_replacements(text));
  }
}

TEST(Utf8Stream, GivesTheSameForEverySplit) {
  for (const auto& [bytes, text] : kExamples) {
    for (std::size_t first = 0; first <= bytes.size(); ++first) {
      for (std::size_t second = first; second <= bytes.size(); ++second) {
        Utf8Stream stream;
        std::string out;
        stream.push(bytes.substr(0, first), out);
        stream.push(bytes.substr(first, second - first), out);
        stream.push(bytes.substr(second), out);
        stream.flush(out);
        EXPECT_EQ(out, with_replacements(text)) << first << " " << second;
      }
    }
  }
}

TEST(Utf8Stream, HoldsOnlyWhatMayStillBecomeACharacter) {
  Utf8Stream stream;
  std::string out;
  stream.push("\xF0\x9F\x98", out);
  EXPECT_EQ(out, "");
  EXPECT_EQ(stream.pending().size(), 3U);
  stream.push("\x80", out);
  EXPECT_EQ(out, "\xF0\x9F\x98\x80");
  EXPECT_TRUE(stream.pending().empty());
  stream.push("\xED\xA0", out);  // a surrogate: decided at once
  EXPECT_EQ(out, with_replacements("\xF0\x9F\x98\x80??"));
}

TEST(FindInvalidUtf8, GivesTheFirstBadByte) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\xE5\x8F\xAB"));
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2U);
  EXPECT_EQ(first_invalid_utf8("a\xE5\x8F"), 1U);
}

TEST(Utf8Stream, RandomBytesGiveValidTextWhateverThePortions) {
  Rng rng(7);
  const std::string interesting(
      "\x00\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xED\xEF\xF0\xF4\xF5", 18);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += interesting[rng.next_below(interesting.size())];
    const std::string whole = to_valid_utf8(bytes);
    EXPECT_TRUE(is_utf8(whole));
    Utf8Stream stream;
    std::string out;
    for (const char byte : bytes) {
      stream.push({&byte, 1}, out);
      EXPECT_TRUE(is_utf8(out));
      EXPECT_LE(stream.pending().size(), 3U);
    }
    stream.flush(out);
    EXPECT_EQ(out, whole);
  }
}

}  // namespace
}  // namespace moe::model
