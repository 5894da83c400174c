#include "lib/topology/suspects.hpp"

#include <algorithm>
#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kFast = 48e9;
constexpr double kSlow = 11e9;

// Every pair at 48 GB/s, apart from those of the nodes in `bad`.
PairMatrix all_pairs(std::int64_t num_nodes, const std::vector<std::int64_t>& bad) {
  PairMatrix matrix = PairMatrix::of_nodes(num_nodes);
  const auto is_bad = [&](std::int64_t node) {
    return std::find(bad.begin(), bad.end(), node) != bad.end();
  };
  for (std::int64_t from = 0; from < num_nodes; ++from) {
    for (std::int64_t to = 0; to < num_nodes; ++to) {
      if (from != to) matrix.set(from, to, is_bad(from) || is_bad(to) ? kSlow : kFast);
    }
  }
  return matrix;
}

void set_both(PairMatrix& matrix, std::int64_t a, std::int64_t b, double rate) {
  matrix.set(a, b, rate);
  matrix.set(b, a, rate);
}

TEST(Suspects, AreTheNodesThatAreSlowWithGoodOnes) {
  for (std::int64_t num_nodes = 3; num_nodes <= 9; ++num_nodes) {
    for (std::int64_t bad = 0; bad < num_nodes; ++bad) {
      const PairJudgement judgement = find_suspects(all_pairs(num_nodes, {bad}), {});
      EXPECT_THAT(judgement.in_state(NodeState::kSuspect), ElementsAre(bad)) << num_nodes;
      EXPECT_THAT(judgement.slow_paths, IsEmpty());
    }
  }
  EXPECT_THAT(find_suspects(all_pairs(7, {1, 4, 6}), {}).in_state(NodeState::kSuspect),
              ElementsAre(1, 4, 6));
  EXPECT_THAT(find_suspects(all_pairs(8, {}), {}).in_state(NodeState::kSuspect), IsEmpty());
}

TEST(Suspects, HaveADirection) {
  PairMatrix matrix = all_pairs(4, {});
  for (const std::int64_t to : {0, 1, 3}) matrix.set(2, to, kSlow);
  const PairJudgement judgement = find_suspects(matrix, {});
  EXPECT_THAT(judgement.in_state(NodeState::kSuspect), ElementsAre(2));
  EXPECT_TRUE(judgement.nodes[2].is_slow_sending);
  EXPECT_FALSE(judgement.nodes[2].is_slow_receiving);
  EXPECT_FALSE(judgement.nodes[0].is_slow_receiving);
}

TEST(Suspects, ASlowPairOfGoodNodesIsAPath) {
  PairMatrix matrix = all_pairs(5, {});
  matrix.set(1, 3, kSlow);
  matrix.set(4, 0, 0.0);
  const PairJudgement judgement = find_suspects(matrix, {});
  EXPECT_THAT(judgement.in_state(NodeState::kSuspect), IsEmpty());
  ASSERT_EQ(judgement.slow_paths.size(), 2U);
  EXPECT_EQ(judgement.slow_paths[0].from, 4);
  EXPECT_EQ(judgement.slow_paths[1].from, 1);
  EXPECT_EQ(judgement.slow_paths[1].to, 3);
}

// Eight nodes in four pairs: both ends of the slow pair are suspects, one of them is innocent.
TEST(SecondPass, TellsTheBadNodeFromItsPartner) {
  PairMatrix matrix = PairMatrix::of_nodes(8);
  set_both(matrix, 0, 1, kFast);
  set_both(matrix, 2, 3, kSlow);
  set_both(matrix, 4, 5, kFast);
  set_both(matrix, 6, 7, kFast);
  const PairJudgement first = find_suspects(matrix, {});
  EXPECT_THAT(first.in_state(NodeState::kSuspect), ElementsAre(2, 3));
  const std::vector<PairRound> rounds = second_pass_rounds(first, matrix);
  ASSERT_EQ(rounds.size(), 1U);
  ASSERT_EQ(rounds[0].size(), 2U);
  EXPECT_NE(rounds[0][0].second, rounds[0][1].second);
  PairMatrix second = PairMatrix::of_nodes(8);
  for (const auto& [suspect, partner] : rounds[0]) {
    EXPECT_EQ(first.nodes[static_cast<std::size_t>(partner)].state, NodeState::kGood);
    set_both(second, suspect, partner, suspect == 3 ? kSlow : kFast);
  }
  const PairJudgement verdict = judge_second_pass(first, second);
  EXPECT_THAT(verdict.in_state(NodeState::kBad), ElementsAre(3));
  EXPECT_THAT(verdict.in_state(NodeState::kCleared), ElementsAre(2));
}

TEST(SecondPass, TakesTheOddNodeThatWasInNoPair) {
  PairMatrix matrix = PairMatrix::of_nodes(5);
  set_both(matrix, 0, 1, kFast);
  set_both(matrix, 2, 3, kFast);
  const PairJudgement first = find_suspects(matrix, {});
  EXPECT_THAT(first.in_state(NodeState::kSuspect), ElementsAre(4));
  const std::vector<PairRound> rounds = second_pass_rounds(first, matrix);
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_EQ(rounds[0][0].first, 4);
}

TEST(SecondPass, RunsInRoundsWhenThereAreMoreSuspectsThanGoodNodes) {
  PairMatrix matrix = PairMatrix::of_nodes(7);
  set_both(matrix, 0, 1, kFast);
  for (const std::int64_t node : {2, 3, 4, 5, 6}) set_both(matrix, 0, node, kSlow);
  SuspectOptions options;
  options.expected_between_bytes_per_s = kFast;
  const PairJudgement first = find_suspects(matrix, options);
  ASSERT_THAT(first.in_state(NodeState::kGood), ElementsAre(0, 1));
  const std::vector<PairRound> rounds = second_pass_rounds(first, matrix);
  ASSERT_EQ(rounds.size(), 3U);
  std::vector<std::int64_t> seen;
  for (const PairRound& round : rounds) {
    for (const auto& [suspect, partner] : round) seen.push_back(suspect);
    if (round.size() == 2) {
      EXPECT_NE(round[0].second, round[1].second);
    }
  }
  EXPECT_THAT(seen, ElementsAre(2, 3, 4, 5, 6));
}

TEST(SecondPass, AFailedPairIsBadAndAMissingOneUntested) {
  const PairMatrix matrix = all_pairs(6, {1, 2});
  const PairJudgement first = find_suspects(matrix, {});
  PairMatrix second = PairMatrix::of_nodes(6);
  set_both(second, 1, 0, 0.0);
  const PairJudgement verdict = judge_second_pass(first, second);
  EXPECT_THAT(verdict.in_state(NodeState::kBad), ElementsAre(1));
  EXPECT_THAT(verdict.in_state(NodeState::kUntested), ElementsAre(2));
}

TEST(Suspects, ComparePairsOfOneKind) {
  // Two hosts of three ranks: NVLink inside, a NIC between; rank 5 has a slow NVLink.
  PairMatrix matrix = PairMatrix::of_nodes(6);
  matrix.host_of = {0, 0, 0, 1, 1, 1};
  for (std::int64_t a = 0; a < 6; ++a) {
    for (std::int64_t b = 0; b < 6; ++b) {
      if (a == b) continue;
      const bool is_inside = matrix.is_inside_host(a, b);
      const bool is_bad = is_inside && (a == 5 || b == 5);
      matrix.set(a, b, is_bad ? 52e9 : is_inside ? 370e9 : 48e9);
    }
  }
  const PairJudgement judgement = find_suspects(matrix, {});
  EXPECT_NEAR(judgement.limit_inside_bytes_per_s.value(), 0.8 * 370e9, 1e6);
  EXPECT_NEAR(judgement.limit_between_bytes_per_s.value(), 0.8 * 48e9, 1e6);
  EXPECT_THAT(judgement.in_state(NodeState::kSuspect), ElementsAre(5));
  EXPECT_THAT(judgement.slow_paths, IsEmpty());
  // A partner on another host says nothing of NVLink.
  const std::vector<PairRound> rounds = second_pass_rounds(judgement, matrix);
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_TRUE(matrix.is_inside_host(5, rounds[0][0].second));
}

TEST(Suspects, OfTwoNodesNothingCanBeTold) {
  const PairJudgement judgement = find_suspects(all_pairs(2, {0}), {});
  EXPECT_FALSE(judgement.reason.empty());
  EXPECT_THAT(judgement.in_state(NodeState::kSuspect), IsEmpty());
  EXPECT_THAT(second_pass_rounds(judgement, all_pairs(2, {0})), IsEmpty());
  SuspectOptions options;
  options.expected_between_bytes_per_s = kFast;
  EXPECT_THAT(find_suspects(all_pairs(2, {0}), options).in_state(NodeState::kSuspect),
              ElementsAre(0, 1));
}

}  // namespace
}  // namespace moe::topology
