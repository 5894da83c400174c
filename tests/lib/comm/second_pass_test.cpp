#include "lib/comm/second_pass.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/comm/backend.hpp"

namespace moe::comm {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using topology::NodeState;

// Every pair of `num_ranks` at 10 GB/s, those of `slow` at 1.
std::vector<PairFigure> figures_with(int num_ranks, int slow) {
  std::vector<PairFigure> figures;
  for (const auto& round : pair_rounds(num_ranks)) {
    for (const auto& [a, b] : round) {
      const double rate = a == slow || b == slow ? 1e9 : 10e9;
      figures.push_back({a, b, 1e-6, rate});
      figures.push_back({b, a, 1e-6, rate});
    }
  }
  return figures;
}

SecondPass run_on_threads(const std::vector<PairFigure>& first, const std::vector<int>& nodes) {
  BackendOptions options;
  options.num_ranks = static_cast<int>(nodes.size());
  PairOptions pairs;
  pairs.bytes = 4096;
  SecondPass at_first;
  open_threads_job(options)->run([&](Communicator& communicator) {
    SecondPass pass =
        run_second_pass(communicator, pairs,
                        communicator.rank() == 0 ? first : std::vector<PairFigure>(), nodes, 0.7);
    if (communicator.rank() == 0) {
      at_first = std::move(pass);
    } else {
      EXPECT_THAT(pass.figures, IsEmpty());
    }
  });
  return at_first;
}

TEST(SecondPassRun, MeasuresTheSuspectAgainWithAGoodPartner) {
  const SecondPass pass = run_on_threads(figures_with(4, 2), {0, 1, 2, 3});
  EXPECT_THAT(pass.first.in_state(NodeState::kSuspect), ElementsAre(2));
  ASSERT_EQ(pass.figures.size(), 2U);
  EXPECT_EQ(pass.figures[0].sender + pass.figures[0].receiver,
            pass.figures[1].sender + pass.figures[1].receiver);
  EXPECT_TRUE(pass.figures[0].sender == 2 || pass.figures[0].receiver == 2);
  // How fast threads copy decides which of the two.
  EXPECT_THAT(pass.verdict.nodes[2].state, AnyOf(NodeState::kBad, NodeState::kCleared));
  EXPECT_EQ(pass.verdict.nodes[0].state, NodeState::kGood);
}

TEST(SecondPassRun, MeasuresNothingWhenNobodyIsSuspected) {
  const SecondPass pass = run_on_threads(figures_with(4, -1), {0, 0, 1, 1});
  EXPECT_THAT(pass.figures, IsEmpty());
  EXPECT_THAT(pass.verdict.in_state(NodeState::kGood), ElementsAre(0, 1, 2, 3));
}

TEST(PairMatrixOf, KnowsHostsOnlyWhereThereAreSeveral) {
  EXPECT_THAT(matrix_of(figures_with(3, 1), std::vector<int>{0, 0, 0}).host_of, IsEmpty());
  EXPECT_THAT(matrix_of(figures_with(3, 1), std::vector<int>{0, 0, 1}).host_of,
              ElementsAre(0, 0, 1));
}

}  // namespace
}  // namespace moe::comm
