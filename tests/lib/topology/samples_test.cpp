// Facts of the public samples in scenarios/topologies, taken from the files by hand.

#include "tests/lib/topology/samples.hpp"

#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/topology/lint.hpp"
#include "lib/topology/routes.hpp"
#include "lib/topology/topo_matrix.hpp"

namespace moe::topology {
namespace {

using ::testing::ElementsAre;

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

const Node& gpu(const Topology& topology, std::size_t i) {
  return topology.nodes[at(topology.nodes_of(NodeKind::kGpu)[i])];
}

std::map<PathKind, int> gpu_pairs(const Topology& topology) {
  std::map<PathKind, int> pairs;
  const std::size_t n = static_cast<std::size_t>(topology.count(NodeKind::kGpu));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) ++pairs[topology.relation(i, j).path];
  }
  return pairs;
}

std::string nearest_names(const Topology& topology, std::size_t i) {
  return join_names(topology, nearest_nics(topology)[i].nics);
}

const Link& pcie_of(const Topology& topology, const std::string& bus_id) {
  for (const Link& link : topology.links) {
    if (link.kind == LinkKind::kPcie && topology.nodes[at(link.a)].bus_id == bus_id) return link;
  }
  throw std::runtime_error("no link of " + bus_id);
}

TEST(Sample, HgxH100HasOneNicAGpu) {
  const Topology t = sample("hgx-h100-8nic.topo-m.txt");
  EXPECT_EQ(t.count(NodeKind::kGpu), 8);
  EXPECT_EQ(t.count(NodeKind::kNic), 8);
  EXPECT_EQ(t.count(NodeKind::kCpu), 2);
  EXPECT_EQ(gpu_pairs(t), (std::map<PathKind, int>{{PathKind::kNvlink, 28}}));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(num_fabric_links(t, t.devices[i]), 18);
    EXPECT_EQ(nearest_names(t, i), "NIC" + std::to_string(i));
    EXPECT_EQ(nearest_nics(t)[i].path, PathKind::kPix);
    EXPECT_EQ(gpu(t, i).cpus.to_string(), i < 4 ? "0-47,96-143" : "48-95,144-191");
    EXPECT_EQ(gpu(t, i).numa_nodes.to_string(), i < 4 ? "0" : "1");
  }
  EXPECT_EQ(t.nodes[8].device_name, "mlx5_0");
}

TEST(Sample, DgxA100SharesPairsOfNicsAndHasTwoForStorage) {
  const Topology t = sample("dgx-a100-10nic.topo-m.txt");
  EXPECT_EQ(t.count(NodeKind::kNic), 10);
  EXPECT_EQ(t.gpu_type, "a100_sxm");
  const std::vector<std::string> numa = {"3", "3", "1", "1", "7", "7", "5", "5"};
  for (std::size_t i = 0; i < 8; ++i) {
    const std::size_t first = i / 2 * 2;
    EXPECT_EQ(nearest_names(t, i),
              "NIC" + std::to_string(first) + ", NIC" + std::to_string(first + 1));
    EXPECT_EQ(nearest_nics(t)[i].path, PathKind::kPxb);
    EXPECT_EQ(gpu(t, i).numa_nodes.to_string(), numa[i]);
  }
  EXPECT_EQ(nic_share(t).num_nics, 8);
}

TEST(Sample, Dgx1IsACubeMesh) {
  const Topology t = sample("dgx1-v100-cube-mesh.topo-m.txt");
  EXPECT_EQ(gpu_pairs(t), (std::map<PathKind, int>{{PathKind::kNvlink, 16}, {PathKind::kSys, 12}}));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(num_fabric_links(t, t.devices[i]), 6);
  std::vector<std::string> nics;
  for (std::size_t i = 8; i < 12; ++i) nics.push_back(t.nodes[i].name);
  EXPECT_THAT(nics, ElementsAre("mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"));
  EXPECT_EQ(nearest_names(t, 2), "mlx5_1");
  EXPECT_TRUE(gpu(t, 0).numa_nodes.empty());
}

TEST(Sample, TheSameMeshInAVmIsNotABetterMachine) {
  const Topology t = sample("v100-8gpu-vm-phb.topo-m.txt");
  EXPECT_EQ(gpu_pairs(t), (std::map<PathKind, int>{{PathKind::kNvlink, 16}, {PathKind::kPhb, 12}}));
  EXPECT_EQ(gpu(t, 0).numa_nodes.to_string(), "0-1");
  EXPECT_TRUE(has_remark(lint(t, test_catalog()), "topology.flat"));
}

TEST(Sample, A100WithFourGpusIsAFullMesh) {
  const Topology t = sample("a100-4gpu-nv4-4nic.topo-m.txt");
  EXPECT_EQ(t.count(NodeKind::kNvSwitch), 0);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(num_fabric_links(t, t.devices[i]), 12);
    EXPECT_EQ(nearest_names(t, i), "NIC" + std::to_string(i));
    EXPECT_EQ(gpu(t, i).cpus.to_string(), "0");
  }
  EXPECT_EQ(t.nodes[5].device_name, "mlx5_1");
  EXPECT_EQ(t.nodes[6].device_name, "");
}

TEST(Sample, ThreeGpusWithOnePair) {
  const Topology t = sample("3gpu-one-nvlink-pair.topo-m.txt");
  EXPECT_EQ(t.relation(0, 1).num_nvlinks, 4);
  EXPECT_EQ(t.relation(2, 0).path, PathKind::kNode);
  EXPECT_EQ(t.relation(2, 1).path, PathKind::kNode);
  EXPECT_EQ(nearest_nics(t)[2].path, PathKind::kPhb);
  EXPECT_EQ(nearest_nics(t)[0].path, PathKind::kNode);
}

TEST(Sample, AzurePairsAreTwoIslands) {
  const Topology t = sample("azure-nc96ads-a100-pairs.topo-m.txt");
  EXPECT_EQ(gpu_pairs(t), (std::map<PathKind, int>{{PathKind::kNvlink, 2}, {PathKind::kSys, 4}}));
  EXPECT_EQ(t.count(NodeKind::kCpu), 4);
  EXPECT_EQ(gpu(t, 3).numa_nodes.to_string(), "3");
}

TEST(Sample, PcieBoxesHaveNoNvlink) {
  const Topology l40s = sample("l40s-4gpu-pcie.topo-m.txt", "l40s");
  EXPECT_EQ(gpu_pairs(l40s), (std::map<PathKind, int>{{PathKind::kPix, 2}, {PathKind::kNode, 4}}));
  EXPECT_EQ(gpu(l40s, 3).cpus.to_string(), "0-15,32-47");
  const Topology six = sample("pcie-6gpu-2socket.topo-m.txt");
  EXPECT_EQ(gpu_pairs(six), (std::map<PathKind, int>{
                                {PathKind::kPix, 3}, {PathKind::kNode, 4}, {PathKind::kSys, 8}}));
  EXPECT_EQ(six.count(NodeKind::kCpu), 2);
}

TEST(Sample, Gb200TraySaysThatTheDomainIsUnknown) {
  const Topology t = sample("gb200-4gpu-tray.topo-m.txt");
  EXPECT_EQ(t.count(NodeKind::kGpu), 4);
  EXPECT_EQ(t.count(NodeKind::kNic), 0);
  EXPECT_EQ(num_fabric_links(t, 0), 18);
  EXPECT_EQ(gpu(t, 1).numa_nodes.to_string(), "0");
  EXPECT_EQ(gpu(t, 2).numa_nodes.to_string(), "1");
  EXPECT_FALSE(t.is_domain_known);
  EXPECT_TRUE(has_remark(lint(t, test_catalog()), "domain.unknown"));
  EXPECT_EQ(t.gpu_type, "gb200");
}

TEST(Sample, Gh200HasItsMemoryAsNumaNodes) {
  const Topology t = sample("gh200-4gpu-numa-lists.topo-m.txt");
  const std::vector<int> own = {4, 12, 20, 28};
  const std::vector<std::string> lists = {"0,5-11", "1,13-19", "2,21-27", "3,29-35"};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(num_fabric_links(t, t.devices[i]), 18);
    EXPECT_EQ(gpu(t, i).gpu_numa, own[i]);
    EXPECT_EQ(gpu(t, i).numa_nodes.to_string(), lists[i]);
  }
  EXPECT_EQ(t.gpu_type, "gh200");
}

TEST(Sample, EmptyCellsOfAContainerAreUnknownNotZero) {
  const Topology t = sample("a100-2gpu-container-empty-affinity.topo-m.txt");
  EXPECT_TRUE(gpu(t, 0).cpus.empty());
  EXPECT_TRUE(gpu(t, 0).numa_nodes.empty());
  EXPECT_FALSE(gpu(t, 0).gpu_numa.has_value());
  EXPECT_EQ(nearest_names(t, 0), "NIC6, NIC7");
}

TEST(Sample, OldAndSmallOnesAreRead) {
  const Topology k80 = sample("k80-4gpu-legacy-legend.topo-m.txt");
  EXPECT_EQ(k80.nodes[4].device_name, "mlx4_0");
  EXPECT_EQ(gpu_pairs(k80), (std::map<PathKind, int>{{PathKind::kPix, 2}, {PathKind::kPhb, 4}}));
  const Topology one = sample("single-gpu-no-numa.topo-m.txt");
  EXPECT_EQ(one.count(NodeKind::kGpu), 1);
  EXPECT_EQ(gpu(one, 0).cpus.to_string(), "0-7");
  EXPECT_TRUE(gpu(one, 0).numa_nodes.empty());
}

TEST(Sample, AzureNdv5NamesGpusAndNicsByClass) {
  const Topology t = sample("azure-ndv5-h100.nccl-topo.xml");
  EXPECT_EQ(t.count(NodeKind::kGpu), 8);
  EXPECT_EQ(t.count(NodeKind::kNic), 8);
  EXPECT_EQ(t.count(NodeKind::kPciSwitch), 8);
  EXPECT_EQ(t.nodes[0].cpus.to_string(), "0-47");
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(nearest_names(t, i), "NIC" + std::to_string(i));
    EXPECT_EQ(nearest_nics(t)[i].path, PathKind::kPix);
  }
  EXPECT_DOUBLE_EQ(*pcie_of(t, "0001:00:00.0").bytes_per_s, 48e9);
}

TEST(Sample, AzureNcv4HasItsDefects) {
  const Topology t = sample("azure-ncv4-a100-pcie.nccl-topo.xml");
  EXPECT_EQ(t.count(NodeKind::kGpu), 4);
  EXPECT_EQ(t.count(NodeKind::kNic), 1);
  EXPECT_DOUBLE_EQ(*pcie_of(t, "0001:00:00.0").bytes_per_s, 12e9);
  const std::vector<Remark> remarks = lint(t, test_catalog());
  int num_self = 0;
  int num_speed = 0;
  for (const Remark& remark : remarks) {
    num_self += remark.code == "nvlink.self" ? 1 : 0;
    num_speed += remark.code == "link.speed_unknown" ? 1 : 0;
  }
  EXPECT_EQ(num_self, 4);
  EXPECT_EQ(num_speed, 4);
  EXPECT_TRUE(has_remark(remarks, "nic.no_gdr"));
  EXPECT_EQ(num_fabric_links(t, t.devices[0]), 0);
}

TEST(Sample, AwsP4dHasTwoGpusAndANicOnEachSwitch) {
  const Topology t = sample("aws-p4d-a100-efa.nccl-topo.xml");
  EXPECT_EQ(t.count(NodeKind::kGpu), 8);
  EXPECT_EQ(t.count(NodeKind::kNic), 4);
  EXPECT_EQ(t.count(NodeKind::kPciSwitch), 4);
  EXPECT_DOUBLE_EQ(*pcie_of(t, "0000:10:1c.0").bytes_per_s, 12e9);
  EXPECT_DOUBLE_EQ(*pcie_of(t, "0000:10:1b.0").bytes_per_s, 12e9);
  EXPECT_EQ(nearest_names(t, 0), "NIC0");
  EXPECT_EQ(nearest_names(t, 1), "NIC0");
  EXPECT_EQ(nearest_names(t, 2), "NIC1");
}

TEST(Sample, AwsG5IsTheSmallestLegalForm) {
  const Topology t = sample("aws-g5-48xl-minimal.nccl-topo.xml");
  EXPECT_EQ(t.count(NodeKind::kCpu), 2);
  EXPECT_EQ(t.nodes.size(), 11U);
  EXPECT_FALSE(pcie_of(t, "0000:00:16.0").bytes_per_s.has_value());
}

TEST(Sample, OciH100IsAFullDump) {
  const Topology t = sample("oci-h100-16nic.nccl-topo.xml");
  EXPECT_EQ(t.count(NodeKind::kGpu), 8);
  EXPECT_EQ(t.count(NodeKind::kNic), 8);
  EXPECT_EQ(t.count(NodeKind::kNvSwitch), 4);
  std::size_t num_ports = 0;
  for (const Node& node : t.nodes) {
    for (const Port& port : node.ports) {
      ++num_ports;
      EXPECT_DOUBLE_EQ(*port.bytes_per_s, 22.5e9);
    }
  }
  EXPECT_EQ(num_ports, 16U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(num_fabric_links(t, t.devices[i]), 18);
  EXPECT_DOUBLE_EQ(*pcie_of(t, "0000:08:00.0").bytes_per_s, 6e9);
  EXPECT_NEAR(*nic_share(t).bytes_per_s_per_gpu, 45e9, 1.0);
  EXPECT_TRUE(has_remark(lint(t, test_catalog()), "link.choke"));
}

TEST(Sample, OciA100KeepsTheOrderOfItsNumaNodes) {
  const Topology t = sample("oci-a100-flattened-no-gpu.nccl-topo.xml");
  std::vector<std::string> names;
  for (const std::int32_t cpu : t.nodes_of(NodeKind::kCpu)) names.push_back(t.nodes[at(cpu)].name);
  EXPECT_THAT(names, ElementsAre("NUMA 3", "NUMA 1", "NUMA 7", "NUMA 5"));
  EXPECT_EQ(t.count(NodeKind::kGpu), 8);
  EXPECT_EQ(t.nodes[0].cpus.to_string(), "24-31,88-95");
}

TEST(Sample, DgxSparkHasNicsBehindFourLanes) {
  const Topology t = sample("dgx-spark-gb10-snippet.nccl-topo.xml");
  EXPECT_TRUE(t.nodes[0].numa_nodes.empty());
  EXPECT_DOUBLE_EQ(*pcie_of(t, "0000:01:00.0").bytes_per_s, 12e9);
  bool has_c2c = false;
  for (const Link& link : t.links) {
    if (link.kind != LinkKind::kC2c) continue;
    has_c2c = true;
    EXPECT_DOUBLE_EQ(*link.bytes_per_s, 345e9);
  }
  EXPECT_TRUE(has_c2c);
  EXPECT_TRUE(has_remark(lint(t, test_catalog()), "nic.link_slower_than_net"));
}

TEST(Sample, RcclMi300xIsADirectMesh) {
  const Topology t = sample("rccl-mi300x-8gpu-vm.rccl-topo.xml");
  EXPECT_EQ(t.format, Format::kRcclTopology);
  EXPECT_EQ(t.version, "2");
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(num_fabric_links(t, t.devices[i]), 7);
    EXPECT_EQ(gpu(t, i).gcn, "gfx942");
  }
  EXPECT_EQ(gpu(t, 0).name, "GPU1");
  EXPECT_EQ(t.gpu_type, "mi300x");
}

TEST(Sample, HwlocDgx2HasSwitchesAndBandwidths) {
  const Topology t = sample("dgx2-16gpu.hwloc.xml");
  EXPECT_EQ(t.version, "3.0");
  EXPECT_EQ(t.count(NodeKind::kGpu), 16);
  EXPECT_EQ(t.count(NodeKind::kNvSwitch), 12);
  EXPECT_EQ(t.count(NodeKind::kCpu), 2);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(num_fabric_links(t, t.devices[i]), 6);
  // In GB/s, which is not NCCL's unit.
  EXPECT_NEAR(*pcie_of(t, "0000:34:00.0").bytes_per_s, 15.753846e9, 1.0);
}

TEST(Sample, HwlocPower8HasNvlinkToTheCpu) {
  const Topology t = sample("power8-4gpu-nvlink-distances.hwloc.xml");
  EXPECT_EQ(t.count(NodeKind::kGpu), 4);
  int num_gpu_cpu = 0;
  int num_gpu_gpu = 0;
  for (const Link& link : t.links) {
    if (link.kind != LinkKind::kNvlink) continue;
    EXPECT_DOUBLE_EQ(*link.bytes_per_s, 40e9);
    const bool is_gpu_pair =
        t.nodes[at(link.a)].kind == NodeKind::kGpu && t.nodes[at(link.b)].kind == NodeKind::kGpu;
    ++(is_gpu_pair ? num_gpu_gpu : num_gpu_cpu);
  }
  EXPECT_EQ(num_gpu_gpu, 2);
  EXPECT_EQ(num_gpu_cpu, 4);
}

TEST(Sample, HwlocOfAnIntegratedGpuSaysThatNoneIsThere) {
  const Topology t = sample("dgx-spark-gb10.hwloc.xml");
  EXPECT_EQ(t.count(NodeKind::kGpu), 0);
  EXPECT_EQ(t.nodes[0].cpus.to_string(), "0-19");
  EXPECT_TRUE(has_remark(t.remarks, "hwloc.no_gpu"));
}

TEST(Sample, EveryFileOfTheFolderIsReadOrRefusedForAReason) {
  int num_read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scenario_path("topologies"))) {
    const std::string name = entry.path().filename().string();
    const bool is_other = name.find("nccl-graph") != std::string::npos ||
                          name.find("p2p") != std::string::npos || name.ends_with(".md") ||
                          name.ends_with(".json");
    if (is_other) continue;
    SCOPED_TRACE(name);
    const Topology topology = sample(name);
    EXPECT_FALSE(topology.nodes.empty());
    EXPECT_EQ(topology.relations.size(), topology.devices.size() * topology.devices.size());
    ++num_read;
  }
  EXPECT_GE(num_read, 31);
}

}  // namespace
}  // namespace moe::topology
