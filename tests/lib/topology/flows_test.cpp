#include "lib/topology/flows.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "tests/lib/topology/samples.hpp"

namespace moe::topology {
namespace {

TEST(MaxMin, SharesOneLinkEqually) {
  const std::vector<double> rates = max_min_rates({{{0}, 1.0}, {{0}, 1.0}, {{0}, 1.0}}, {9.0});
  for (const double rate : rates) EXPECT_DOUBLE_EQ(rate, 3.0);
}

TEST(MaxMin, GivesWhatABoundFlowLeavesToTheOthers) {
  // Flow 0 uses both links, 1 the first, 2 the second; the classic example.
  const std::vector<double> rates =
      max_min_rates({{{0, 1}, 1.0}, {{0}, 1.0}, {{1}, 1.0}}, {10.0, 4.0});
  EXPECT_DOUBLE_EQ(rates[0], 2.0);
  EXPECT_DOUBLE_EQ(rates[1], 8.0);
  EXPECT_DOUBLE_EQ(rates[2], 2.0);
}

TEST(MaxMin, NeverOverfillsALinkAndLeavesNoFlowRoomToGrow) {
  constexpr int kCases = 100;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::size_t num_links = 1 + rng.next_below(8);
    std::vector<double> capacities;
    for (std::size_t i = 0; i < num_links; ++i)
      capacities.push_back(1.0 + 9.0 * rng.next_uniform());
    std::vector<Flow> flows(1 + rng.next_below(20));
    for (Flow& flow : flows) {
      flow.bytes = 1.0;
      for (std::size_t link = 0; link < num_links; ++link) {
        if (rng.next_below(3) == 0) flow.links.push_back(static_cast<std::int32_t>(link));
      }
      if (flow.links.empty()) flow.links.push_back(0);
    }
    const std::vector<double> rates = max_min_rates(flows, capacities);
    std::vector<double> used(num_links, 0.0);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      EXPECT_GT(rates[i], 0.0);
      for (const std::int32_t link : flows[i].links)
        used[static_cast<std::size_t>(link)] += rates[i];
    }
    for (std::size_t link = 0; link < num_links; ++link) {
      EXPECT_LE(used[link], capacities[link] * (1.0 + 1e-9));
    }
    // Every flow crosses a full link on which nobody has more than it.
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const bool is_bound =
          std::any_of(flows[i].links.begin(), flows[i].links.end(), [&](std::int32_t link) {
            const std::size_t at = static_cast<std::size_t>(link);
            if (used[at] < capacities[at] * (1.0 - 1e-6)) return false;
            for (std::size_t j = 0; j < flows.size(); ++j) {
              const auto& links = flows[j].links;
              const bool shares = std::find(links.begin(), links.end(), link) != links.end();
              if (shares && rates[j] > rates[i] * (1.0 + 1e-6)) return false;
            }
            return true;
          });
      EXPECT_TRUE(is_bound) << "flow " << i;
    }
  }
}

TEST(Simulation, EndsWhenTheBusiestLinkHasCarriedItsLoad) {
  // 3 bytes over link 0 with 1 byte per second; the long flow speeds up when the short one ends.
  const FlowResult result = simulate_flows({{{0}, 2.0}, {{0, 1}, 1.0}}, {1.0, 100.0});
  EXPECT_NEAR(result.time_s, 3.0, 1e-9);
  EXPECT_EQ(result.busiest, 0);
  EXPECT_NEAR(result.finish_s[1], 2.0, 1e-9);
}

double ceiling_gb(const Topology& topology) {
  const MachineCeiling ceiling = machine_ceiling(topology);
  EXPECT_TRUE(ceiling.busbw_bytes_per_s.has_value()) << ceiling.reason;
  return ceiling.busbw_bytes_per_s.value_or(0.0) / 1e9;
}

TEST(MachineCeiling, OfSwitchedBoxesIsTheGpusLinks) {
  EXPECT_NEAR(ceiling_gb(sample("hgx-h100-8nic.topo-m.txt")), 370.8, 1e-6);
  EXPECT_NEAR(ceiling_gb(sample("dgx-a100-10nic.topo-m.txt")), 240.0, 1e-6);
  EXPECT_NEAR(ceiling_gb(sample("oci-h100-16nic.nccl-topo.xml")), 370.8, 1e-6);
  EXPECT_NEAR(ceiling_gb(sample("gb200-4gpu-tray.topo-m.txt", "gb200")), 721.8, 1e-6);
}

TEST(MachineCeiling, OfAMeshIsThePairsLinksTimesThePeers) {
  // NV4 to each of three peers; one xGMI link to each of seven.
  EXPECT_NEAR(ceiling_gb(sample("a100-4gpu-nv4-4nic.topo-m.txt")), 3 * 80.0, 1e-6);
  EXPECT_NEAR(ceiling_gb(sample("rccl-mi300x-8gpu-vm.rccl-topo.xml")), 7 * 48.0, 1e-6);
}

TEST(MachineCeiling, OfTwoSocketsIsTheLinkBetweenThem) {
  // 2 x 4 GPUs: 16 of 56 ordered pairs cross in each direction, so 7 shares in 16 of the link.
  std::string xml = "<system version=\"1\">";
  for (int cpu = 0; cpu < 2; ++cpu) {
    xml += "<cpu numaid=\"" + std::to_string(cpu) +
           "\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">";
    for (int gpu = 0; gpu < 4; ++gpu) {
      xml +=
          "<pci busid=\"000" + std::to_string(cpu) + ":0" + std::to_string(gpu) +
          ":00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"" +
          std::to_string(4 * cpu + gpu) + "\" sm=\"90\"/></pci>";
    }
    xml += "</cpu>";
  }
  const MachineCeiling ceiling = machine_ceiling(from_text(xml + "</system>"));
  ASSERT_TRUE(ceiling.busbw_bytes_per_s.has_value()) << ceiling.reason;
  EXPECT_NEAR(*ceiling.busbw_bytes_per_s, 0.4375 * 22e9, 1.0);
  EXPECT_NE(ceiling.bottleneck.find("CPU link"), std::string::npos);
}

TEST(MachineCeiling, SaysWhyThereIsNone) {
  const MachineCeiling one = machine_ceiling(sample("single-gpu-no-numa.topo-m.txt"));
  EXPECT_FALSE(one.busbw_bytes_per_s.has_value());
  EXPECT_NE(one.reason.find("takes two GPUs"), std::string::npos);
  // A file without gpu elements leaves the NVLinks to the library.
  const MachineCeiling partial = machine_ceiling(sample("azure-ndv5-h100.nccl-topo.xml"));
  EXPECT_NE(partial.reason.find("NVLinks"), std::string::npos);
  const MachineCeiling unknown = machine_ceiling(sample("pcie-6gpu-2socket.topo-m.txt"));
  EXPECT_NE(unknown.reason.find("unknown"), std::string::npos);
}

TEST(MachineCeiling, OfACubeMeshUsesARelayWhereNcclDoes) {
  const Topology mesh = sample("dgx1-v100-cube-mesh.topo-m.txt");
  EXPECT_TRUE(machine_ceiling(mesh).uses_relay);
  RouteOptions direct;
  direct.allow_relay = false;
  EXPECT_FALSE(machine_ceiling(mesh, direct).uses_relay);
}

}  // namespace
}  // namespace moe::topology
