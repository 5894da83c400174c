#include "lib/topology/diff.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "lib/base/rng.hpp"
#include "tests/lib/topology/samples.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::topology {
namespace {

std::string raw(const std::string& name) {
  return test::read_file(scenario_path("topologies/" + name));
}

// The same machine with its nodes in another order and with other numbers and bus ids.
Topology renumbered(const Topology& topology, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::int32_t> place(topology.nodes.size());
  std::iota(place.begin(), place.end(), 0);
  for (std::size_t i = place.size(); i > 1; --i) {
    std::swap(place[i - 1], place[rng.next_below(i)]);
  }
  Topology out = topology;
  for (std::size_t i = 0; i < place.size(); ++i) {
    Node node = topology.nodes[i];
    if (node.kind != NodeKind::kCpu) {
      node.name = "device " + std::to_string(place[i]);
      node.bus_id = "0000:" + std::to_string(place[i]) + ":00.0";
      node.index = place[i];
    }
    out.nodes[static_cast<std::size_t>(place[i])] = node;
  }
  for (Link& link : out.links) {
    link.a = place[static_cast<std::size_t>(link.a)];
    link.b = place[static_cast<std::size_t>(link.b)];
  }
  std::reverse(out.links.begin(), out.links.end());
  derive_relations(out);
  return out;
}

TEST(Diff, SurvivesRenumberingOfEverySample) {
  for (const char* name : {"oci-h100-16nic.nccl-topo.xml", "aws-p4d-a100-efa.nccl-topo.xml",
                           "azure-ndv4-a100.nccl-topo.xml", "rccl-mi300x-8gpu-vm.rccl-topo.xml",
                           "dgx2-16gpu.hwloc.xml", "power8-4gpu-nvlink-distances.hwloc.xml",
                           "dgx1-v100-cube-mesh.topo-m.txt", "hgx-h100-8nic.topo-m.txt"}) {
    const Topology a = sample(name);
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      SCOPED_TRACE(std::string(name) + " seed " + std::to_string(seed));
      const Topology b = renumbered(a, seed);
      const TopologyDiff diff = diff_topologies(a, b);
      EXPECT_TRUE(diff.is_same()) << diff.differences.front().subject << " "
                                  << diff.differences.front().what;
      EXPECT_FALSE(diff.renamed.empty());
      EXPECT_EQ(fingerprint(a), fingerprint(b));
    }
  }
}

TEST(Diff, OfAMachineWithItselfIsEmpty) {
  const Topology a = sample("hgx-h100-8nic.topo-m.txt");
  const TopologyDiff diff = diff_topologies(a, a);
  EXPECT_TRUE(diff.is_same());
  EXPECT_TRUE(diff.renamed.empty());
}

TEST(Diff, NamesTheNumaNodesWhoseMasksAreExchanged) {
  const TopologyDiff diff =
      diff_topologies(sample("azure-ndv5-h100.nccl-topo.xml"),
                      sample("azure-ndv5-h100-swapped-affinity.nccl-topo.xml"));
  ASSERT_EQ(diff.differences.size(), 2U);
  EXPECT_EQ(diff.differences[0].subject, "NUMA 0");
  EXPECT_EQ(diff.differences[1].subject, "NUMA 1");
  EXPECT_EQ(diff.differences[0].what, "cpus");
  EXPECT_EQ(diff.differences[0].in_a, "0-47");
  EXPECT_EQ(diff.differences[0].in_b, "48-95");
  EXPECT_NE(fingerprint(sample("azure-ndv5-h100.nccl-topo.xml")),
            fingerprint(sample("azure-ndv5-h100-swapped-affinity.nccl-topo.xml")));
}

TEST(Diff, NamesASlowerLinkAndAMissingNic) {
  std::string text = raw("azure-ndv5-h100.nccl-topo.xml");
  const std::string fast =
      "<pci busid=\"0003:00:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
      "link_width=\"16\"/>";
  const std::string slow =
      "<pci busid=\"0003:00:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
      "link_width=\"8\"/>";
  ASSERT_NE(text.find(fast), std::string::npos);
  std::string changed = text;
  changed.replace(changed.find(fast), fast.size(), slow);
  const TopologyDiff link = diff_topologies(from_text(text), from_text(changed));
  ASSERT_EQ(link.differences.size(), 1U);
  EXPECT_EQ(link.differences[0].what, "link");
  EXPECT_NE(link.differences[0].in_a.find("48.00"), std::string::npos);
  EXPECT_NE(link.differences[0].in_b.find("24.00"), std::string::npos);
  const std::string nic =
      "<pci busid=\"0108:00:00.0\" class=\"0x020700\" link_speed=\"32.0 GT/s PCIe\" "
      "link_width=\"16\"/>";
  ASSERT_NE(text.find(nic), std::string::npos);
  std::string without = text;
  without.replace(without.find(nic), nic.size(), "");
  const TopologyDiff missing = diff_topologies(from_text(text), from_text(without));
  ASSERT_EQ(missing.differences.size(), 1U);
  EXPECT_EQ(missing.differences[0].what, "presence");
  EXPECT_EQ(missing.differences[0].subject, "NIC7");
}

TEST(Diff, DoesNotCallDifferentMachinesTheSame) {
  EXPECT_FALSE(diff_topologies(sample("dgx1-v100-cube-mesh.topo-m.txt"),
                               sample("v100-sxm2-8gpu-1nic.topo-m.txt"))
                   .is_same());
}

}  // namespace
}  // namespace moe::topology
