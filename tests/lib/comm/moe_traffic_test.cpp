// Dispatch and combine against counts made by hand and against the formulas of lib/topology.

#include "lib/comm/moe_traffic.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/topology/volumes.hpp"

namespace moe::comm {
namespace {

MoeShape shape_of(std::int64_t tokens, std::int64_t top_k, std::int64_t experts) {
  MoeShape shape;
  shape.tokens_per_rank = tokens;
  shape.hidden = 16;
  shape.top_k = top_k;
  shape.num_experts = experts;
  shape.dispatch_element_bytes = 1.0;
  shape.combine_element_bytes = 2.0;
  return shape;
}

TEST(MoeShape, CountsTheBytesOfACopyAsDeepEpDoesButForItsHeader) {
  MoeShape shape;
  shape.hidden = 7168;
  shape.dispatch_element_bytes = *topology::element_bytes("fp8");
  EXPECT_EQ(shape.dispatch_copy_bytes(), 7168 + 7168 / 128 * 4);  // 7408 less 16
  EXPECT_EQ(shape.combine_copy_bytes(), 14336);
}

// Four ranks on two nodes, two experts a rank, one token a rank.
TEST(PlanMoe, SendsOneCopyForEachSelectionWhenFlat) {
  TokenRoutes routes;
  routes.top_k = 2;
  routes.experts = {0, 4, 4, 5, 6, 7, 1, -1};
  const MoeStages stages = plan_moe(shape_of(1, 2, 8), routes, std::vector<int>{0, 0, 1, 1}, false);
  ASSERT_EQ(stages.dispatch.size(), 1u);
  const TrafficMatrix& dispatch = stages.dispatch[0];
  EXPECT_EQ(dispatch.at(0, 0), 16);  // its own expert 0
  EXPECT_EQ(dispatch.at(0, 2), 16);
  EXPECT_EQ(dispatch.at(1, 2), 32);  // experts 4 and 5 both on rank 2
  EXPECT_EQ(dispatch.at(2, 3), 32);
  EXPECT_EQ(dispatch.at(3, 0), 16);
  EXPECT_EQ(stages.num_selections, 7);
  EXPECT_EQ(stages.logical_dispatch_bytes, 7 * 16);
  EXPECT_EQ(stages.combine[0].at(2, 1), 64);  // twice the bytes, the way back
}

TEST(PlanMoe, SendsOneCopyForEachOtherNodeWhenDeduplicated) {
  TokenRoutes routes;
  routes.top_k = 3;
  // Rank 0: ranks 2 and 3 of node 1 and itself. Rank 1: rank 2 twice and rank 0. Others:
  // themselves.
  routes.experts = {4, 6, 0, 4, 5, 1, 4, 5, 5, 6, 7, 6};
  const MoeStages stages = plan_moe(shape_of(1, 3, 8), routes, std::vector<int>{0, 0, 1, 1}, true);
  ASSERT_EQ(stages.dispatch.size(), 2u);
  const TrafficMatrix& between = stages.dispatch[0];
  const TrafficMatrix& inside = stages.dispatch[1];
  EXPECT_EQ(between.at(0, 2), 16);  // rank 0 is the first of its node, so is rank 2
  EXPECT_EQ(between.at(1, 3), 16);
  EXPECT_EQ(sum_traffic(between, std::vector<int>{0, 0, 1, 1}).inter_bytes, 32);
  EXPECT_EQ(sum_traffic(between, std::vector<int>{0, 0, 1, 1}).intra_bytes, 0);
  EXPECT_EQ(inside.at(2, 2), 32);  // handed on to itself for rank 0, and its own
  EXPECT_EQ(inside.at(2, 3), 16);  // handed on for rank 0
  EXPECT_EQ(inside.at(3, 2), 16);  // handed on for rank 1
  EXPECT_EQ(inside.at(0, 0), 16);
  EXPECT_EQ(inside.at(1, 0), 16);
  EXPECT_EQ(sum_traffic(inside, std::vector<int>{0, 0, 1, 1}).inter_bytes, 0);
  EXPECT_EQ(stages.combine[0], [&] {
    TrafficMatrix twice = inside.transposed();
    for (std::int64_t& bytes : twice.bytes) bytes *= 2;
    return twice;
  }());
}

TEST(PlanMoe, MeetsTheExpectedBytesOfUniformRouting) {
  const MoeShape shape = shape_of(2000, 8, 64);
  const std::vector<int> nodes{0, 0, 0, 0, 1, 1, 1, 1};
  const TokenRoutes routes = zipf_routes(shape, 8, 0.0, 3);
  topology::MoeTraffic traffic;
  traffic.tokens_per_rank = 2000;
  traffic.hidden = 16;
  traffic.top_k = 8;
  traffic.num_experts = 64;
  traffic.num_ranks = 8;
  traffic.element_bytes = 1.0;
  const TrafficSums flat = sum_stages(plan_moe(shape, routes, nodes, false).dispatch, nodes);
  const double remote = 8.0 * topology::remote_selection_bytes(traffic);
  EXPECT_NEAR(static_cast<double>(flat.intra_bytes + flat.inter_bytes), remote, 0.01 * remote);
  const TrafficSums dedup = sum_stages(plan_moe(shape, routes, nodes, true).dispatch, nodes);
  // A token reaches distinct_groups nodes of two; half of them is its own.
  const double copies = 16000.0 * topology::distinct_groups(64, 2, 8) / 2.0;
  EXPECT_NEAR(static_cast<double>(dedup.inter_bytes), copies * 16.0, 0.01 * copies * 16.0);
}

TEST(PlanMoe, RefusesExpertsThatDoNotDivide) {
  const MoeShape shape = shape_of(1, 1, 8);
  const TokenRoutes routes = zipf_routes(shape, 3, 0.0, 1);
  EXPECT_THROW((void)plan_moe(shape, routes, std::vector<int>{0, 0, 0}, false), Error);
}

TEST(ZipfRoutes, DrawDifferentExpertsOfAToken) {
  const MoeShape shape = shape_of(50, 4, 6);
  const TokenRoutes routes = zipf_routes(shape, 2, 1.2, 9);
  ASSERT_EQ(routes.num_tokens(), 100);
  for (std::int64_t t = 0; t < 100; ++t) {
    std::vector<std::int32_t> ids(routes.experts.begin() + t * 4,
                                  routes.experts.begin() + t * 4 + 4);
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
    EXPECT_GE(ids.front(), 0);
    EXPECT_LT(ids.back(), 6);
  }
}

}  // namespace
}  // namespace moe::comm
