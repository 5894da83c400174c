#include "lib/app/bench/prompts.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"

namespace moe::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int32_t> numbered(std::int32_t count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(PromptSource, GivesEachRequestAnotherPieceOfTheText) {
  const PromptSource source(PromptKind::kText, numbered(10), 100, 1, "text");
  EXPECT_THAT(source.prompt(0, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(source.prompt(1, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(source.prompt(2, 4), ElementsAre(8, 9, 0, 1));
  EXPECT_FALSE(source.repeats_text(2, 4));
  EXPECT_TRUE(source.repeats_text(3, 4));
}

TEST(PromptSource, WrapsAroundATextShorterThanThePrompt) {
  const PromptSource source(PromptKind::kText, numbered(3), 100, 1, "text");
  EXPECT_THAT(source.prompt(0, 7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

TEST(PromptSource, RepeatsOnePromptForAllRequests) {
  const PromptSource source(PromptKind::kRepeat, {}, 1000, 7, "repeat");
  EXPECT_EQ(source.prompt(0, 32), source.prompt(5, 32));
}

TEST(PromptSource, DrawsRandomIdsFromTheWholeVocabulary) {
  const PromptSource source(PromptKind::kRandom, {}, 50, 7, "random");
  const std::vector<std::int32_t> ids = source.prompt(0, 5000);
  EXPECT_EQ(*std::min_element(ids.begin(), ids.end()), 0);
  EXPECT_EQ(*std::max_element(ids.begin(), ids.end()), 49);
  EXPECT_EQ(ids, source.prompt(0, 5000));
  EXPECT_NE(ids, source.prompt(1, 5000));
  EXPECT_NE(ids, PromptSource(PromptKind::kRandom, {}, 50, 8, "random").prompt(0, 5000));
}

TEST(MakePrompts, TakesRandomIdsWithoutATokenizer) {
  PromptOptions options;
  options.vocab_size = 100;
  const PromptSource source = make_prompts(options, std::nullopt);
  EXPECT_EQ(source.kind(), PromptKind::kRandom);
  EXPECT_THAT(source.description(), HasSubstr("no tokenizer.json"));
}

TEST(MakePrompts, RefusesATextFileWithoutATokenizer) {
  PromptOptions options;
  options.vocab_size = 100;
  options.prompts = "some.txt";
  try {
    (void)make_prompts(options, std::nullopt);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--prompts random"));
  }
}

}  // namespace
}  // namespace moe::app
