#include "lib/model/unicode_text.hpp"

#include <string>

#include <gtest/gtest.h>

namespace moe::model {
namespace {

TEST(CodePoints, ReadFromBothEnds) {
  const std::string text = "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80";
  EXPECT_EQ(first_code_point(text).value, U'a');
  EXPECT_EQ(last_code_point(text).value, char32_t{0x1F600});
  EXPECT_EQ(last_code_point(text).length, 4U);
  EXPECT_EQ(first_code_point(text.substr(1)).value, char32_t{0xE9});
  EXPECT_EQ(first_code_point(text.substr(3)).value, char32_t{0x65E5});
  std::string again;
  for (const char32_t c : {U'a', char32_t{0xE9}, char32_t{0x65E5}, char32_t{0x1F600}}) {
    append_code_point(c, again);
  }
  EXPECT_EQ(again, text);
}

TEST(CharacterClasses, FollowTheUnicodeProperties) {
  EXPECT_TRUE(is_white_space(0x20) && is_white_space(0xA0) && is_white_space(0x3000) &&
              is_white_space(0x85) && is_white_space(0x2028));
  EXPECT_FALSE(is_white_space(0x200B) || is_white_space(0x180E) || is_white_space(U'a'));
  EXPECT_TRUE(is_numeric(U'7') && is_numeric(0xBD) && is_numeric(0x2167) && is_numeric(0x0663));
  EXPECT_FALSE(is_numeric(U'a'));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(U'_') && is_punctuation(0x3002));
  EXPECT_FALSE(is_punctuation(0x20AC) || is_punctuation(U'a'));
  EXPECT_TRUE(is_mark(0x301) && is_mark(0x94D) && is_mark(0x20DD));
  EXPECT_TRUE(is_word(U'a') && is_word(U'_') && is_word(0x301) && is_word(0x200D) &&
              is_word(0x24B6));
  EXPECT_FALSE(is_word(U'-') || is_word(0xBD) || is_word(0x20));
}

// Unicode Standard Annex 15, figures 3 to 6.
TEST(Normalize, ExamplesOfTheStandard) {
  using enum NormalizationForm;
  const std::string angstrom_sign = "\xE2\x84\xAB";
  EXPECT_EQ(normalize(angstrom_sign, kNfd), "A\xCC\x8A");
  EXPECT_EQ(normalize(angstrom_sign, kNfc), "\xC3\x85");
  const std::string dots = "\xE1\xB8\x8B\xCC\xA3";  // d with dot above, dot below
  EXPECT_EQ(normalize(dots, kNfd), "d\xCC\xA3\xCC\x87");
  EXPECT_EQ(normalize(dots, kNfc), "\xE1\xB8\x8D\xCC\x87");
  const std::string fi = "\xEF\xAC\x81";
  EXPECT_EQ(normalize(fi, kNfc), fi);
  EXPECT_EQ(normalize(fi, kNfkc), "fi");
  const std::string long_s = "\xE1\xBA\x9B\xCC\xA3";
  EXPECT_EQ(normalize(long_s, kNfd), "\xC5\xBF\xCC\xA3\xCC\x87");
  EXPECT_EQ(normalize(long_s, kNfkd), "s\xCC\xA3\xCC\x87");
  EXPECT_EQ(normalize(long_s, kNfkc), "\xE1\xB9\xA9");
  EXPECT_EQ(normalize("\xED\x95\x9C", kNfd), "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB");  // Hangul
  EXPECT_EQ(normalize("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", kNfc), "\xED\x95\x9C");
  EXPECT_EQ(normalize(std::string("a\0b\xC3\xA9", 5), kNfd), std::string("a\0be\xCC\x81", 6));
}

TEST(Normalize, KeepsALongRunOfMarksInLinearithmicTime) {
  // Alternating classes, the worst case for exchanging neighbours: 200 thousand marks.
  std::string text = "a";
  std::string sorted = "a";
  for (int i = 0; i < 100'000; ++i) text += "\xCC\x81\xCC\xA3";  // class 230, class 220
  for (int i = 0; i < 100'000; ++i) sorted += "\xCC\xA3";
  for (int i = 0; i < 100'000; ++i) sorted += "\xCC\x81";
  EXPECT_EQ(normalize(text, NormalizationForm::kNfd), sorted);
}

TEST(Lowercase, CharacterByCharacter) {
  EXPECT_EQ(lowercase("AB\xC3\x89 \xCE\x91\xCE\xA3"), "ab\xC3\xA9 \xCE\xB1\xCF\x83");
  EXPECT_EQ(lowercase("\xC4\xB0"), "i\xCC\x87");
}

}  // namespace
}  // namespace moe::model
