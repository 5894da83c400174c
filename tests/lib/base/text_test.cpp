#include "lib/base/text.hpp"

#include <string>

#include <gtest/gtest.h>

#include "lib/base/xml_text.hpp"

namespace moe {
namespace {

using namespace std::string_literals;

TEST(FirstInvalidUtf8, AcceptsEveryLengthOfWellFormedText) {
  for (const std::string& text :
       {""s, "plain ascii text"s, "\xC3\xA9"s, "\xE5\x8F\xAB"s, "\xF0\x9F\x98\x80 and more"s}) {
    EXPECT_EQ(first_invalid_utf8(text), text.size()) << text;
  }
}

TEST(FirstInvalidUtf8, FindsCutOverlongSurrogateAndTooLarge) {
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2U);
  EXPECT_EQ(first_invalid_utf8("a\xE5\x8F"), 1U);
  EXPECT_EQ(first_invalid_utf8("\xC0\xAF"), 0U);
  EXPECT_EQ(first_invalid_utf8("\xE0\x80\x80"), 0U);
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0U);
  EXPECT_EQ(first_invalid_utf8("12345678\xF4\x90\x80\x80"), 8U);
}

TEST(Printable, EscapesControlsAndBrokenBytesAndCutsLongText) {
  EXPECT_EQ(printable("a\nb\x7F\xFF"), "a\\x0ab\\x7f\\xff");
  EXPECT_EQ(printable("\xE5\x8F\xAB"), "\xE5\x8F\xAB");
  EXPECT_EQ(printable(std::string(400, 'x')), std::string(300, 'x') + "...");
}

TEST(Trim, TakesBlanksAndLineEndsFromBothSides) {
  EXPECT_EQ(trim(" \ta b\r\n"), "a b");
  EXPECT_EQ(trim("\n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(EscapeXml, ReplacesWhatWouldBeReadAsMarkup) {
  EXPECT_EQ(escape_xml("<a b='c' d=\"e\">&amp;"),
            "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;amp;");
  EXPECT_EQ(escape_xml("NVLink 4"), "NVLink 4");
}

}  // namespace
}  // namespace moe
