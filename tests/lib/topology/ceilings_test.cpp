#include "lib/topology/ceilings.hpp"

#include <gtest/gtest.h>

namespace moe::topology {
namespace {

Cluster cluster(std::int64_t ranks, std::int64_t domain, double intra_gb, double nic_gb) {
  Cluster out;
  out.num_ranks = ranks;
  out.gpus_per_domain = domain;
  out.intra_bytes_per_s = intra_gb * 1e9;
  out.nic_bytes_per_s = nic_gb * 1e9;
  return out;
}

double busbw_gb(const Cluster& of) {
  return a2a_ceiling(of).busbw_bytes_per_s / 1e9;
}

TEST(Ceilings, OneDomainIsBoundByItsLinks) {
  EXPECT_NEAR(busbw_gb(cluster(8, 8, 370.8, 48.5)), 370.8, 1e-9);
  EXPECT_NEAR(busbw_gb(cluster(64, 72, 721.8, 48.5)), 721.8, 1e-9);
}

TEST(Ceilings, NodesAreBoundByTheirNics) {
  // Published cases: 2 nodes of 8 A100 with 4 x 200G, 4 nodes with 8 x 400G, and the 400G series.
  EXPECT_NEAR(busbw_gb(cluster(16, 8, 240.0, 12.5)), 23.4, 0.05);
  EXPECT_NEAR(busbw_gb(cluster(32, 8, 370.8, 50.0)), 64.6, 0.05);
  EXPECT_NEAR(busbw_gb(cluster(16, 8, 370.8, 48.5)), 90.9, 0.05);
  EXPECT_NEAR(busbw_gb(cluster(64, 8, 370.8, 48.5)), 54.6, 0.05);
  EXPECT_NEAR(busbw_gb(cluster(512, 8, 370.8, 48.5)), 49.2, 0.05);
  EXPECT_EQ(a2a_ceiling(cluster(64, 8, 370.8, 48.5)).limit, "NICs between domains");
}

TEST(Ceilings, TheSlowerTierDecides) {
  // Two nodes with fat NICs and thin links inside.
  const Ceiling ceiling = a2a_ceiling(cluster(16, 8, 20.0, 400.0));
  EXPECT_EQ(ceiling.limit, "links inside the domain");
  EXPECT_LT(ceiling.busbw_bytes_per_s, ceiling.inter_busbw_bytes_per_s);
}

TEST(Ceilings, OversubscriptionDividesATree) {
  Cluster base = cluster(64, 8, 370.8, 48.5);
  const double full = busbw_gb(base);
  base.oversubscription = 2.0;
  EXPECT_NEAR(busbw_gb(base), full / 2.0, 1e-9);
}

TEST(Ceilings, PxnKeepsRailsFreeOfTheSpine) {
  Cluster base = cluster(64, 8, 370.8, 48.5);
  base.fabric = Fabric::kRailOptimised;
  base.cross_rail_share = 0.46;
  base.oversubscription = 4.0;
  const double with_pxn = network_bytes_per_s(base);
  EXPECT_DOUBLE_EQ(with_pxn, 48.5e9);
  base.uses_pxn = false;
  EXPECT_LT(network_bytes_per_s(base), with_pxn / 3.0);
  base.oversubscription = 1.0;
  // One of eight on its rail at full rate, seven at 0.46 of it: 20.1 of 43.7 GB/s was measured.
  EXPECT_NEAR(network_bytes_per_s(base) / with_pxn, 1.0 / (1.0 / 8 + 7.0 / 8 / 0.46), 1e-9);
}

TEST(Ceilings, RailsAloneNeedPxn) {
  Cluster base = cluster(64, 8, 370.8, 48.5);
  base.fabric = Fabric::kRailOnly;
  EXPECT_TRUE(a2a_ceiling(base).is_reachable);
  base.uses_pxn = false;
  EXPECT_FALSE(a2a_ceiling(base).is_reachable);
}

TEST(Ceilings, MoreNodesNeverRaiseTheCeiling) {
  double before = 1e18;
  for (std::int64_t nodes = 1; nodes <= 128; nodes *= 2) {
    const double now = busbw_gb(cluster(nodes * 8, 8, 370.8, 48.5));
    EXPECT_LE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace moe::topology
