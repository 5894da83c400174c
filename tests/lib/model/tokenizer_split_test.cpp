#include "lib/model/tokenizer_split.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace moe::model::tokenizer_detail {
namespace {

std::vector<std::string> split(const Pattern& pattern, std::string_view text,
                               SplitBehavior behavior, bool invert = false) {
  MatchScratch scratch(text.size());
  std::vector<PatternRange> ranges;
  pattern.find(text, scratch, ranges);
  for (PatternRange& range : ranges) range.is_match = range.is_match != invert;
  apply_split_behavior(behavior, ranges);
  std::vector<std::string> parts;
  for (const PatternRange& range : ranges) {
    parts.emplace_back(text.substr(range.begin, range.end - range.begin));
  }
  return parts;
}

using Parts = std::vector<std::string>;

// The worked example of the reference library's documentation.
TEST(SplitBehavior, DocumentedExample) {
  const Pattern dash = Pattern::literal("-", "t");
  const std::string text = "the-final--countdown";
  EXPECT_EQ(split(dash, text, SplitBehavior::kRemoved), (Parts{"the", "final", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kIsolated),
            (Parts{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kMergedWithPrevious),
            (Parts{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kMergedWithNext),
            (Parts{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(dash, text, SplitBehavior::kContiguous),
            (Parts{"the", "-", "final", "--", "countdown"}));
}

TEST(SplitBehavior, MatchesAtBothEnds) {
  const Pattern dash = Pattern::literal("-", "t");
  EXPECT_EQ(split(dash, "--", SplitBehavior::kRemoved), Parts{});
  EXPECT_EQ(split(dash, "-a-", SplitBehavior::kMergedWithPrevious), (Parts{"-", "a-"}));
  EXPECT_EQ(split(dash, "-a-", SplitBehavior::kMergedWithNext), (Parts{"-a", "-"}));
  EXPECT_EQ(split(dash, "", SplitBehavior::kIsolated), Parts{});
}

TEST(SplitBehavior, InvertKeepsTheMatches) {
  const Pattern letters = Pattern::regex("\\p{L}+", "t");
  EXPECT_EQ(split(letters, "ab, c\xC3\xA9 1d", SplitBehavior::kRemoved, true),
            (Parts{"ab", "c\xC3\xA9", "d"}));
}

TEST(Pattern, LiteralAndEscapedRegexAgree) {
  for (const std::string text : {"a.b..c", "...", "", "abc"}) {
    EXPECT_EQ(split(Pattern::literal(".", "t"), text, SplitBehavior::kIsolated),
              split(Pattern::regex("\\.", "t"), text, SplitBehavior::kIsolated));
  }
}

TEST(Pattern, AnEmptyMatchRightAfterAMatchIsNoMatch) {
  const Pattern pattern = Pattern::regex("a*", "t");
  MatchScratch scratch(0);
  std::vector<PatternRange> ranges;
  pattern.find("baac", scratch, ranges);
  std::vector<std::string> matches;
  for (const PatternRange& range : ranges) {
    if (range.is_match) {
      matches.push_back(std::to_string(range.begin) + ":" + std::to_string(range.end));
    }
  }
  EXPECT_EQ(matches, (Parts{"0:0", "1:3", "4:4"}));
}

TEST(Pattern, WhiteSpaceBeforeAWordLeavesOneSpaceToIt) {
  // The rule that look-ahead is needed for.
  const Pattern pattern = Pattern::regex("\\s+(?!\\S)| ?\\p{L}+|\\s+", "t");
  EXPECT_EQ(split(pattern, "a   b", SplitBehavior::kIsolated), (Parts{"a", "  ", " b"}));
}

TEST(Pattern, ReplacesEveryMatch) {
  MatchScratch scratch(0);
  EXPECT_EQ(Pattern::literal(" ", "t").replace(" a b ", "_", scratch), "_a_b_");
  EXPECT_EQ(Pattern::regex("\\s+", "t").replace("a \n b", "", scratch), "ab");
  EXPECT_EQ(Pattern::literal("", "t").replace("ab", "-", scratch), "-a-b-");
}

}  // namespace
}  // namespace moe::model::tokenizer_detail
