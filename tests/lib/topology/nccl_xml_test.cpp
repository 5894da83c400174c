#include "lib/topology/nccl_xml.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/topology/lint.hpp"
#include "lib/topology/xml_tree.hpp"
#include "tests/lib/topology/samples.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::topology {
namespace {

using ::testing::HasSubstr;

constexpr const char* kGpu =
    "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>";

std::string system_of(const std::string& inside, const std::string& version = "1") {
  return "<system version=\"" + version + "\"><cpu numaid=\"0\">" + inside + "</cpu></system>";
}

std::string error_of(std::string_view text) {
  try {
    (void)from_text(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "";
}

std::vector<Remark> lint_of(const std::string& text) {
  return lint(from_text(text), test_catalog());
}

TEST(NcclXml, AcceptsCommentsBothQuotesAndABlankFirstLine) {
  const Topology topology = from_text(
      "\n<!-- <system> --><system version='1'><cpu numaid='1'><!-- x --><pci "
      "busid=\"0000:0A:00.0\" "
      "class='0x030200'/></cpu></system>");
  EXPECT_EQ(topology.count(NodeKind::kGpu), 1);
  EXPECT_EQ(topology.nodes[1].bus_id, "0000:0a:00.0");
}

TEST(NcclXml, WarnsOfWhatNcclsOwnParserRefuses) {
  EXPECT_TRUE(has_remark(lint_of("<?xml version=\"1.0\"?>" + system_of(kGpu)), "nccl.prolog"));
  EXPECT_TRUE(has_remark(lint_of(system_of("<pci\tbusid=\"0001:00:00.0\"/>")), "nccl.tab"));
  EXPECT_FALSE(has_remark(lint_of(system_of("<!--\t<a\tb> -->" + std::string(kGpu))), "nccl.tab"));
  std::string many = "<pci busid=\"0001:00:00.0\"";
  for (int i = 0; i < 16; ++i) many += " a" + std::to_string(i) + "=\"1\"";
  EXPECT_TRUE(has_remark(lint_of(system_of(many + "/>")), "nccl.attributes"));
  EXPECT_TRUE(has_remark(lint_of(system_of("<pci busid=\"" + std::string(300, 'a') + "\"/>")),
                         "nccl.string"));
}

TEST(NcclXml, CountsElementsAsNcclDoes) {
  std::string inside;
  for (int i = 0; i < 254; ++i) inside += "<pci busid=\"0001:00:" + std::to_string(i) + ".0\"/>";
  EXPECT_FALSE(has_remark(lint_of(system_of(inside)), "nccl.nodes"));
  inside += "<pci busid=\"0002:00:00.0\"/>";
  EXPECT_TRUE(has_remark(lint_of(system_of(inside)), "nccl.nodes"));
}

TEST(NcclXml, HoldsEachLibraryToItsVersion) {
  EXPECT_FALSE(has_remark(lint_of(system_of(kGpu)), "xml.version"));
  EXPECT_TRUE(has_remark(lint_of(system_of(kGpu, "2")), "xml.version"));
  std::string rccl = test::read_file(scenario_path("topologies/rccl-mi300x-8gpu-vm.rccl-topo.xml"));
  EXPECT_FALSE(has_remark(lint_of(rccl), "xml.version"));
  rccl.replace(rccl.find("version=\"2\""), 11, "version=\"1\"");
  EXPECT_TRUE(has_remark(lint_of(rccl), "xml.version"));
}

TEST(NcclXml, TakesASpeedOfZeroForTenGigabits) {
  const Topology topology =
      from_text(system_of("<nic><net name=\"eth0\" dev=\"0\" speed=\"0\"/></nic>"));
  ASSERT_EQ(topology.count(NodeKind::kNic), 1);
  EXPECT_DOUBLE_EQ(*topology.nodes[1].ports[0].bytes_per_s, 1.25e9);
}

TEST(NcclXml, PassesOverUnknownElementsWithANote) {
  const std::vector<Remark> remarks = lint_of(system_of("<fpga/>"));
  EXPECT_TRUE(has_remark(remarks, "xml.unknown_element"));
  EXPECT_EQ(count_weight(remarks, Weight::kError), 0);
}

TEST(NcclXml, RefusesBrokenAndForeignFilesWithTheLine) {
  EXPECT_THAT(error_of("<system version=\"1\">\n<cpu numaid=\"0\">\n"), HasSubstr("line 2"));
  EXPECT_THAT(error_of("<html></html>"), HasSubstr("found <html>"));
  EXPECT_THAT(error_of("   "), HasSubstr("empty"));
  EXPECT_THAT(error_of("<graphs version=\"1\"/>"), HasSubstr("graph file"));
  EXPECT_THAT(error_of("<system/><system/>"), HasSubstr("more than one"));
}

TEST(NcclXml, IsBoundedAgainstHostileFiles) {
  std::string deep;
  for (int i = 0; i < 3000; ++i) deep += "<pci busid=\"1\">";
  for (int i = 0; i < 3000; ++i) deep += "</pci>";
  EXPECT_THAT(error_of(system_of(deep)), HasSubstr("nested deeper"));
  std::string wide;
  for (int i = 0; i < 5000; ++i) wide += "<pci busid=\"1\"/>";
  EXPECT_THAT(error_of(system_of(wide)), HasSubstr("no single machine"));
  std::string gpus;
  for (int i = 0; i < 600; ++i) gpus += kGpu;
  EXPECT_THAT(error_of(system_of(gpus)), HasSubstr("at most 512"));
  // Entities of its own are not expanded, so a kilobyte stays a kilobyte.
  const std::string bomb = "<!DOCTYPE s [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>" +
                           system_of("<pci busid=\"&b;\"/>");
  EXPECT_LE(from_text(bomb).nodes[1].bus_id.size(), 3U);
}

TEST(NcclXml, ReadsTheGraphOfItsRings) {
  const NcclGraphFile file = read_nccl_graph(
      test::read_file(scenario_path("topologies/azure-ncv4-a100-pcie.nccl-graph.xml")), "graph");
  ASSERT_EQ(file.graphs.size(), 3U);
  EXPECT_EQ(file.graphs[0].num_channels, 2);
  EXPECT_EQ(file.graphs[0].type_intra, "SYS");
  EXPECT_DOUBLE_EQ(file.graphs[0].intra_bytes_per_s, 12e9);
  EXPECT_EQ(file.graphs[0].gpus, (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_TRUE(file.graphs[0].nets.empty());
}

}  // namespace
}  // namespace moe::topology
