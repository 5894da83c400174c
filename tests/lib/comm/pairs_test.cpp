// Pairs of ranks: everybody meets everybody, and the host behind slow pairs is found.

#include "lib/comm/pairs.hpp"

#include <set>

#include <gtest/gtest.h>

#include "tests/lib/comm/jobs.hpp"

namespace moe::comm {
namespace {

TEST(PairRounds, LetEverybodyMeetEverybodyOnceAndNobodyTwiceInARound) {
  for (int num_ranks = 1; num_ranks <= 9; ++num_ranks) {
    std::set<std::pair<int, int>> met;
    for (const auto& round : pair_rounds(num_ranks)) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second);
        EXPECT_TRUE(busy.insert(b).second);
        EXPECT_TRUE(met.insert({a, b}).second);
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(num_ranks * (num_ranks - 1) / 2)) << num_ranks;
  }
}

// All ordered pairs at 100, but what `rate` says.
template <typename Rate>
std::vector<PairFigure> all_pairs(int num_ranks, const Rate& rate) {
  std::vector<PairFigure> pairs;
  for (int s = 0; s < num_ranks; ++s) {
    for (int r = 0; r < num_ranks; ++r) {
      if (s != r) pairs.push_back({s, r, 1e-5, rate(s, r)});
    }
  }
  return pairs;
}

TEST(JudgePairs, BlamesTheNodeWhosePairsAreSlowAndItsDirection) {
  const std::vector<int> nodes{0, 1, 2, 3};
  const PairVerdict verdict =
      judge_pairs(all_pairs(4, [](int s, int) { return s == 2 ? 20.0 : 100.0; }), nodes, 0.7);
  ASSERT_EQ(verdict.nodes.size(), 1u);
  EXPECT_EQ(verdict.nodes[0].node, 2);
  EXPECT_TRUE(verdict.nodes[0].is_sending);
  EXPECT_EQ(verdict.nodes[0].bytes_per_s, 20.0);
  EXPECT_EQ(verdict.nodes[0].others_bytes_per_s, 100.0);
  EXPECT_EQ(verdict.slow.size(), 3u);
}

TEST(JudgePairs, FindsANodeThatIsSlowBothWaysThoughHalfOfAllPairsAreThen) {
  const std::vector<int> nodes{0, 1, 2, 3};
  const PairVerdict verdict = judge_pairs(
      all_pairs(4, [](int s, int r) { return s == 2 || r == 2 ? 2.0 : 25.0; }), nodes, 0.5);
  EXPECT_EQ(verdict.slow.size(), 6u);
  EXPECT_EQ(verdict.reachable_bytes_per_s, 25.0);
  ASSERT_EQ(verdict.nodes.size(), 2u);
  EXPECT_EQ(verdict.nodes[0].node, 2);
  EXPECT_EQ(verdict.nodes[1].node, 2);
  EXPECT_NE(verdict.nodes[0].is_sending, verdict.nodes[1].is_sending);
}

TEST(JudgePairs, BlamesNoNodeForOneSlowPair) {
  const std::vector<int> nodes{0, 1, 2, 3};
  const PairVerdict verdict = judge_pairs(
      all_pairs(4, [](int s, int r) { return s == 0 && r == 3 ? 10.0 : 100.0; }), nodes, 0.7);
  EXPECT_TRUE(verdict.nodes.empty());
  ASSERT_EQ(verdict.slow.size(), 1u);
  EXPECT_EQ(verdict.slow[0].receiver, 3);
}

TEST(JudgePairs, JudgesPairsInsideANodeAmongThemselves) {
  // Two ranks a node: 1000 inside, 100 between; nothing is slow.
  const std::vector<int> nodes{0, 0, 1, 1, 2, 2};
  const auto healthy = [](int s, int r) { return s / 2 == r / 2 ? 1000.0 : 100.0; };
  const PairVerdict good = judge_pairs(all_pairs(6, healthy), nodes, 0.7);
  EXPECT_TRUE(good.slow.empty());
  EXPECT_TRUE(good.nodes.empty());
  const auto bad_inside = [&](int s, int r) { return s == 4 && r == 5 ? 300.0 : healthy(s, r); };
  EXPECT_EQ(judge_pairs(all_pairs(6, bad_inside), nodes, 0.7).slow.size(), 1u);
}

TEST(MeasurePairs, CoversEveryOrderedPair) {
  std::vector<PairFigure> at_rank_0;
  const std::vector<int> nodes{0, 0, 0};
  threads_job(3)->run([&](Communicator& communicator) {
    PairOptions options;
    options.bytes = 10'000;
    std::vector<PairFigure> pairs = measure_pairs(communicator, options, nodes);
    if (communicator.rank() == 0) at_rank_0 = std::move(pairs);
  });
  std::set<std::pair<int, int>> seen;
  for (const PairFigure& pair : at_rank_0) {
    seen.insert({pair.sender, pair.receiver});
    EXPECT_GT(pair.latency_s, 0.0);
    EXPECT_GT(pair.bytes_per_s, 0.0);
  }
  EXPECT_EQ(seen.size(), 6u);
}

}  // namespace
}  // namespace moe::comm
