#include "lib/topology/lint.hpp"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lib/topology/samples.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::topology {
namespace {

using ::testing::HasSubstr;

std::vector<Remark> lint_sample(const std::string& name, const std::string& gpu = "") {
  return lint(sample(name, gpu), test_catalog());
}

std::string raw_sample(const std::string& name) {
  return test::read_file(scenario_path("topologies/" + name));
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::vector<Remark> lint_text(const std::string& text) {
  return lint(from_text(text), test_catalog());
}

TEST(Lint, IsSilentOnHealthyMachines) {
  for (const char* name : {"hgx-h100-8nic.topo-m.txt",
                           "dgx-a100-10nic.topo-m.txt",
                           "dgx1-v100-cube-mesh.topo-m.txt",
                           "v100-sxm2-8gpu-1nic.topo-m.txt",
                           "a100-4gpu-nv4-4nic.topo-m.txt",
                           "azure-nc96ads-a100-pairs.topo-m.txt",
                           "gb200-4gpu-tray.topo-m.txt",
                           "gh200-4gpu-numa-lists.topo-m.txt",
                           "a100-2gpu-container-empty-affinity.topo-m.txt",
                           "l40s-4gpu-pcie.topo-m.txt",
                           "pcie-6gpu-2socket.topo-m.txt",
                           "k80-4gpu-legacy-legend.topo-m.txt",
                           "rtx5090-2gpu-phb.topo-m.txt",
                           "single-gpu-no-numa.topo-m.txt",
                           "azure-ndv5-h100.nccl-topo.xml",
                           "azure-ndv2-v100.nccl-topo.xml",
                           "aws-p4d-a100-efa.nccl-topo.xml",
                           "aws-g5-48xl-minimal.nccl-topo.xml",
                           "oci-h100-16nic.nccl-topo.xml",
                           "oci-a100-flattened-no-gpu.nccl-topo.xml",
                           "rccl-mi300x-8gpu-vm.rccl-topo.xml",
                           "dgx2-16gpu.hwloc.xml",
                           "power8-4gpu-nvlink-distances.hwloc.xml",
                           "dgx-spark-gb10.hwloc.xml"}) {
    SCOPED_TRACE(name);
    for (const Remark& remark : lint_sample(name)) {
      EXPECT_EQ(remark.weight, Weight::kInfo) << remark.code << ": " << remark.message;
    }
  }
}

TEST(Lint, FindsTheDefectsOfPublishedFiles) {
  EXPECT_TRUE(has_remark(lint_sample("azure-ncv4-a100-pcie.nccl-topo.xml"), "nvlink.self"));
  EXPECT_TRUE(has_remark(lint_sample("azure-ncv4-a100-pcie.nccl-topo.xml"), "link.speed_unknown"));
  EXPECT_TRUE(has_remark(lint_sample("azure-ndv4-a100.nccl-topo.xml"), "cpu.amd_family"));
  EXPECT_TRUE(
      has_remark(lint_sample("azure-ndv5-h100-swapped-affinity.nccl-topo.xml"), "cpu.order"));
  EXPECT_TRUE(has_remark(lint_sample("v100-8gpu-vm-phb.topo-m.txt"), "topology.flat"));
  EXPECT_TRUE(
      has_remark(lint_sample("b200-8gpu-8nic-truncated.topo-m.txt"), "matrix.rows_missing"));
  EXPECT_TRUE(has_remark(lint_sample("3gpu-one-nvlink-pair.topo-m.txt"), "nvlink.missing"));
  EXPECT_EQ(count_weight(lint_sample("3gpu-one-nvlink-pair.topo-m.txt"), Weight::kError), 0);
}

// The GB300 report: one GPU of the tray lost its rows and 507 GB/s became 52.
TEST(Lint, FindsAGpuOfABoardWithoutNvlink) {
  std::string text = raw_sample("gb200-4gpu-tray.topo-m.txt");
  text = with(text, "GPU0     X      NV18    NV18    NV18", "GPU0     X      NV18    NV18    SYS ");
  text = with(text, "GPU1    NV18     X      NV18    NV18", "GPU1    NV18     X      NV18    SYS ");
  text = with(text, "GPU2    NV18    NV18     X      NV18", "GPU2    NV18    NV18     X      NODE");
  text = with(text, "GPU3    NV18    NV18    NV18     X ", "GPU3    SYS     SYS     NODE     X ");
  const std::vector<Remark> remarks = lint_text(text);
  ASSERT_TRUE(has_remark(remarks, "nvlink.missing"));
  for (const Remark& remark : remarks) {
    if (remark.code != "nvlink.missing") continue;
    EXPECT_EQ(remark.weight, Weight::kError);
    EXPECT_THAT(remark.subjects, ::testing::ElementsAre("GPU3"));
  }
}

TEST(Lint, FindsFewerNvlinksThanThePeersHave) {
  const std::string text =
      with(raw_sample("oci-h100-16nic.nccl-topo.xml"),
           "<nvlink target=\"0000:1b:00.0\" count=\"5\" tclass=\"0x068000\"/>", "");
  const std::vector<Remark> remarks = lint_text(text);
  ASSERT_TRUE(has_remark(remarks, "nvlink.fewer"));
  for (const Remark& remark : remarks) {
    if (remark.code == "nvlink.fewer") {
      EXPECT_THAT(remark.message, HasSubstr("GPU0 has 13"));
    }
  }
}

TEST(Lint, FindsASlowLinkAndAChoke) {
  const std::string ndv5 = raw_sample("azure-ndv5-h100.nccl-topo.xml");
  EXPECT_TRUE(
      has_remark(lint_text(with(ndv5,
                                "\"0001:00:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
                                "link_width=\"16\"",
                                "\"0001:00:00.0\" class=\"0x030200\" link_speed=\"2.5 GT/s PCIe\" "
                                "link_width=\"1\"")),
                 "link.slow"));
  const std::string gpus_alone =
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"ffff:ff:01.0\" class=\"0x060400\" "
      "link_speed=\"5.0 GT/s PCIe\" link_width=\"16\"><pci busid=\"0001:00:00.0\" "
      "class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"/></pci></cpu></system>";
  const std::vector<Remark> remarks = lint_text(gpus_alone);
  ASSERT_TRUE(has_remark(remarks, "link.choke"));
  EXPECT_EQ(count_weight(remarks, Weight::kWarning), 1);
}

std::string nics_and_gpus(const std::vector<std::pair<int, int>>& pairs, bool has_idle) {
  std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
  int bus = 0;
  for (const auto& [gpu, nic] : pairs) {
    xml += "<pci busid=\"ffff:ff:" + std::to_string(bus++) + ".0\" class=\"0x060400\">";
    xml += "<pci busid=\"0001:" + std::to_string(gpu) + ":00.0\"><gpu dev=\"" +
           std::to_string(gpu) + "\" sm=\"90\"/></pci>";
    if (nic >= 0) {
      xml += "<pci busid=\"0002:" + std::to_string(nic) + ":00.0\"><nic><net name=\"mlx5_" +
             std::to_string(nic) + "\" dev=\"" + std::to_string(nic) +
             "\" speed=\"400000\"/></nic></pci>";
    }
    xml += "</pci>";
  }
  if (has_idle) {
    xml +=
        "<pci busid=\"0002:77:00.0\"><nic><net name=\"mlx5_7\" dev=\"7\" speed=\"400000\"/>"
        "</nic></pci>";
  }
  return xml + "</cpu></system>";
}

TEST(Lint, FindsNicsInReverseOrder) {
  EXPECT_TRUE(
      has_remark(lint_text(nics_and_gpus({{0, 2}, {1, 1}, {2, 0}}, false)), "nic.reversed"));
  EXPECT_FALSE(
      has_remark(lint_text(nics_and_gpus({{0, 0}, {1, 1}, {2, 2}}, false)), "nic.reversed"));
}

TEST(Lint, FindsASharedNicWhileAnotherIdles) {
  // Two GPUs on the switch of one NIC; another NIC hangs off the CPU.
  std::string xml = nics_and_gpus({{0, 0}}, true);
  xml = with(xml, "<pci busid=\"0001:0:00.0\">",
             "<pci busid=\"0001:9:00.0\"><gpu dev=\"9\" sm=\"90\"/></pci>"
             "<pci busid=\"0001:0:00.0\">");
  EXPECT_TRUE(has_remark(lint_text(xml), "nic.shared_while_idle"));
}

TEST(Lint, FindsMasksThatOverlap) {
  const std::string text =
      with(raw_sample("azure-ndv5-h100.nccl-topo.xml"), "affinity=\"ffffffff,ffff0000,00000000\"",
           "affinity=\"ffffffff,ffff0000,00000001\"");
  EXPECT_TRUE(has_remark(lint_text(text), "cpu.overlap"));
}

TEST(Lint, HoldsAFileAgainstItsHost) {
  const Topology host = sample("azure-ndv5-h100.nccl-topo.xml");
  const Topology same = sample("azure-ndv5-h100.nccl-topo.xml");
  const Topology swapped = sample("azure-ndv5-h100-swapped-affinity.nccl-topo.xml");
  EXPECT_FALSE(has_remark(lint(same, test_catalog(), &host), "cpu.differs_from_host"));
  int num_found = 0;
  for (const Remark& remark : lint(swapped, test_catalog(), &host)) {
    num_found += remark.code == "cpu.differs_from_host" ? 1 : 0;
  }
  EXPECT_EQ(num_found, 2);
}

TEST(Lint, ListsEachRuleOnceWithItsCase) {
  std::set<std::string> codes;
  for (const LintRule& rule : lint_rules()) {
    EXPECT_TRUE(codes.insert(rule.code).second) << rule.code;
    EXPECT_STRNE(rule.real_case, "");
  }
  EXPECT_GE(codes.size(), 12U);
}

}  // namespace
}  // namespace moe::topology
