#include "lib/topology/document.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/topology/lint.hpp"
#include "lib/topology/xml_tree.hpp"
#include "tests/lib/topology/samples.hpp"

namespace moe::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

DocumentOptions four_nodes() {
  DocumentOptions options;
  options.node_name = "gpu-07";
  options.num_nodes = 4;
  options.leaf_switch = "leaf-3";
  return options;
}

TEST(Document, CountsNodesOnFromTheFirst) {
  EXPECT_THAT(node_names(four_nodes()), ElementsAre("gpu-7", "gpu-8", "gpu-9", "gpu-10"));
  EXPECT_EQ(slurm_node_range(four_nodes()), "gpu-[7-10]");
  DocumentOptions one;
  one.node_name = "box";
  EXPECT_EQ(slurm_node_range(one), "box");
}

TEST(Document, SlurmHasALineAGpuWithItsCoresAndLinks) {
  const Topology mesh = sample("dgx1-v100-cube-mesh.topo-m.txt");
  const std::string gres = to_slurm_gres(mesh, four_nodes());
  EXPECT_EQ(std::count(gres.begin(), gres.end(), '\n'), 9);
  EXPECT_THAT(gres, HasSubstr("NodeName=gpu-[7-10] Name=gpu Type=v100_sxm File=/dev/nvidia0 "
                              "Cores=0-19,40-59 Links=-1,1,1,2,2,0,0,0\n"));
  EXPECT_THAT(to_slurm_topology(mesh, four_nodes()),
              HasSubstr("SwitchName=leaf-3 Nodes=gpu-[7-10]\n"));
}

TEST(Document, KubernetesLabelsAreLegal) {
  const std::string yaml = to_kubernetes(sample("hgx-h100-8nic.topo-m.txt"), four_nodes());
  EXPECT_THAT(yaml, HasSubstr("kind: Node"));
  EXPECT_THAT(yaml, HasSubstr("topology.moekit.dev/gpu-type: \"h100_sxm\""));
  EXPECT_THAT(yaml,
              HasSubstr("topology.moekit.dev/a2a-busbw-ceiling-bytes-per-s: \"370800000000\""));
  EXPECT_THAT(yaml, HasSubstr("name: \"gpu-10\""));
}

TEST(Document, AnsibleAndTerraformCarryTheFacts) {
  const Topology t = sample("hgx-h100-8nic.topo-m.txt");
  const std::string ansible = to_ansible(t, four_nodes());
  EXPECT_THAT(ansible, HasSubstr("  gpu_count: 8\n"));
  EXPECT_THAT(ansible, HasSubstr("        - \"mlx5_7\"\n"));
  const std::string terraform = to_terraform(t, four_nodes());
  EXPECT_THAT(terraform, HasSubstr("  nic_count = 8\n"));
  EXPECT_THAT(terraform, HasSubstr("[\"gpu-7\", \"gpu-8\", \"gpu-9\", \"gpu-10\"]"));
}

TEST(Document, MarkdownHasDevicesLinksPathsCeilingAndLint) {
  const Topology t = sample("azure-ncv4-a100-pcie.nccl-topo.xml");
  const std::string text = to_markdown(t, lint(t, test_catalog()), DocumentOptions());
  for (const char* part : {"## Devices", "## Links", "## Paths", "## All-to-all ceiling",
                           "## Nearest NICs", "## Lint", "nvlink.self"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Document, DrawingIsWellFormedWithABoxForEachDevice) {
  for (const char* name :
       {"oci-h100-16nic.nccl-topo.xml", "dgx2-16gpu.hwloc.xml", "single-gpu-no-numa.topo-m.txt"}) {
    const Topology t = sample(name);
    const std::string svg = to_svg(t);
    const XmlDocument parsed = read_xml(svg, "drawing");
    std::size_t boxes = 0;
    std::size_t lines = 0;
    for (const XmlElement& element : parsed.root.children) {
      if (element.name == "rect" && element.find("rx") != nullptr) ++boxes;
      if (element.name == "path") ++lines;
    }
    EXPECT_EQ(boxes, t.nodes.size()) << name;
    EXPECT_EQ(lines, t.links.size()) << name;
  }
}

TEST(Document, TextOfAFileCannotLeaveItsPlace) {
  const Topology t = from_text(
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"&lt;script&gt;|x\" "
      "class=\"0x030200\"/><nic><net name=\"a&quot;}${x}{{y}}&#10;b\" dev=\"0\" "
      "speed=\"1\"/></nic></cpu></system>");
  EXPECT_THAT(to_svg(t), Not(HasSubstr("<script>")));
  const std::string markdown = to_markdown(t, {}, DocumentOptions());
  EXPECT_THAT(markdown, Not(HasSubstr("<script>")));
  EXPECT_THAT(markdown, Not(HasSubstr(">|x")));
  const std::string ansible = to_ansible(t, DocumentOptions());
  EXPECT_THAT(ansible, Not(HasSubstr("{{")));
  EXPECT_THAT(ansible, Not(HasSubstr("\nb")));
}

}  // namespace
}  // namespace moe::topology
