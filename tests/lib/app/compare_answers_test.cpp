#include "lib/app/bench/compare_answers.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace moe::app {
namespace {

using client::RequestRecord;
using Ids = std::vector<std::int32_t>;

RequestRecord answer(std::int64_t conversation, Ids ids, std::string text) {
  RequestRecord record;
  record.conversation = conversation;
  record.token_ids = std::move(ids);
  record.text = std::move(text);
  return record;
}

TEST(CompareAnswers, EqualIdsAreEqualWhateverTheTextLooksLike) {
  const AnswerComparison comparison = compare_answers(
      {answer(0, {1, 2}, "ab"), answer(1, {3}, "c")}, {answer(1, {3}, ""), answer(0, {1, 2}, "x")});
  EXPECT_EQ(comparison.num_by_ids, 2);
  EXPECT_EQ(comparison.num_equal, 2);
  EXPECT_FALSE(comparison.first);
}

TEST(CompareAnswers, TheFirstDifferenceIsOfTheLowestRequest) {
  const AnswerComparison comparison =
      compare_answers({answer(5, {9, 9}, ""), answer(2, {1, 2, 3}, ""), answer(0, {7}, "")},
                      {answer(5, {8, 9}, ""), answer(2, {1, 2, 4}, ""), answer(0, {7}, "")});
  EXPECT_EQ(comparison.num_compared(), 3);
  EXPECT_EQ(comparison.num_equal, 1);
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(comparison.first->conversation, 2);
  EXPECT_EQ(comparison.first->position, 2);
  EXPECT_EQ(comparison.first->expected, "token 3");
  EXPECT_EQ(comparison.first->found, "token 4");
}

TEST(CompareAnswers, AShorterAnswerDiffersAtItsEnd) {
  const AnswerComparison comparison =
      compare_answers({answer(0, {1, 2, 3}, "")}, {answer(0, {1, 2}, "")});
  ASSERT_TRUE(comparison.first);
  EXPECT_EQ(comparison.first->position, 2);
  EXPECT_EQ(comparison.first->found, "the end");
}

TEST(CompareAnswers, TextsStandInForMissingIds) {
  const AnswerComparison comparison =
      compare_answers({answer(0, {1, 2}, "one two"), answer(1, {1, 2}, "one two")},
                      {answer(0, {}, "one two"), answer(1, {}, "one ten")});
  EXPECT_EQ(comparison.num_by_text, 2);
  EXPECT_EQ(comparison.num_equal, 1);
  ASSERT_TRUE(comparison.first);
  EXPECT_FALSE(comparison.first->is_by_ids);
  EXPECT_EQ(comparison.first->position, 5);
  EXPECT_EQ(comparison.first->expected, "\"wo\"");
}

TEST(CompareAnswers, WhatACutLeavesOfACharacterIsNoDifference) {
  const AnswerComparison comparison =
      compare_answers({answer(0, {1}, "caf\xef\xbf\xbd")}, {answer(0, {}, " caf")});
  EXPECT_EQ(comparison.num_equal, 1);
  const AnswerComparison inside =
      compare_answers({answer(0, {1}, "a\xef\xbf\xbd z")}, {answer(0, {}, "a z")});
  EXPECT_EQ(inside.num_equal, 0);
}

TEST(CompareAnswers, FailuresAndOneSidedAnswersAreNotCompared) {
  RequestRecord failed = answer(0, {1}, "a");
  failed.failure = client::Failure::kTruncated;
  RequestRecord second_turn = answer(1, {1}, "a");
  second_turn.turn = 1;
  const AnswerComparison comparison = compare_answers(
      {answer(0, {1}, "a"), answer(1, {1}, "a"), answer(2, {1}, ""), answer(3, {4}, "d")},
      {failed, second_turn, answer(2, {}, "text"), answer(3, {4}, "d")});
  EXPECT_EQ(comparison.num_compared(), 1);
  EXPECT_EQ(comparison.num_equal, 1);
  // 0: failed there; 1: another turn, on each side; 2: ids on one side, text on the other.
  EXPECT_EQ(comparison.num_missing, 4);
}

}  // namespace
}  // namespace moe::app
