#include "lib/topology/topo_matrix.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/topology/topo_text.hpp"
#include "tests/lib/topology/samples.hpp"
#include "tests/support/temp_dir.hpp"

namespace moe::topology {
namespace {

using ::testing::HasSubstr;

std::string raw(const std::string& name) {
  return test::read_file(scenario_path("topologies/" + name));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Everything but where it came from.
void expect_same_machine(const Topology& a, const Topology& b) {
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].name, b.nodes[i].name);
    EXPECT_EQ(a.nodes[i].cpus, b.nodes[i].cpus);
    EXPECT_EQ(a.nodes[i].numa_nodes, b.nodes[i].numa_nodes);
  }
  ASSERT_EQ(a.relations.size(), b.relations.size());
  for (std::size_t i = 0; i < a.relations.size(); ++i) {
    EXPECT_EQ(a.relations[i].path, b.relations[i].path);
    EXPECT_EQ(a.relations[i].num_nvlinks, b.relations[i].num_nvlinks);
  }
}

TEST(TopoCell, KnowsEveryCode) {
  EXPECT_EQ(parse_topo_cell("NV18")->num_nvlinks, 18);
  EXPECT_EQ(parse_topo_cell("SOC")->path, PathKind::kSys);
  EXPECT_EQ(parse_topo_cell("NODE")->path, PathKind::kNode);
  for (const char* text : {"", "NV", "NV0", "NVx", "PIXPIX", "0-47", "sys", "NV99999999"}) {
    EXPECT_FALSE(parse_topo_cell(text).has_value()) << text;
  }
}

TEST(TopoMatrix, ReadsTheSameFromTabsSpacesAnsiAndWindowsLines) {
  const std::string text = raw("dgx-a100-10nic.topo-m.txt");
  const Topology expected = from_text(text);
  expect_same_machine(expected, from_text(replaced(text, "\n", "\r\n")));
  expect_same_machine(expected, from_text(replaced(text, "\t", "     ")));
  const std::size_t end = text.find('\n');
  expect_same_machine(expected,
                      from_text("\x1b[4m" + text.substr(0, end) + "\x1b[0m" + text.substr(end)));
  expect_same_machine(expected, from_text("$ nvidia-smi topo -m\n" + text));
}

TEST(TopoMatrix, CallsAnAsymmetricCellAndTakesTheWorse) {
  const Topology topology =
      from_text("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0\nGPU1\tSYS\t X \t0\n");
  EXPECT_TRUE(has_remark(topology.remarks, "matrix.asymmetric"));
  EXPECT_EQ(topology.relation(0, 1).path, PathKind::kSys);
  EXPECT_EQ(topology.relation(1, 0).path, PathKind::kSys);
}

TEST(TopoMatrix, NamesLineAndColumnOfAGluedCell) {
  const Topology topology = from_text(
      "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS0-7\t1\nGPU1\tSYS\t X \t0-7\t1\n");
  ASSERT_TRUE(has_remark(topology.remarks, "matrix.row_cut"));
  EXPECT_THAT(topology.remarks[0].message, HasSubstr("line 2"));
  EXPECT_THAT(topology.remarks[0].message, HasSubstr("column GPU1"));
  // The cell comes back by symmetry; what was glued is not guessed.
  EXPECT_EQ(topology.relation(0, 1).path, PathKind::kSys);
  EXPECT_TRUE(topology.nodes[0].numa_nodes.empty());
  EXPECT_EQ(topology.nodes[1].numa_nodes.to_string(), "1");
}

TEST(TopoMatrix, CompletesMissingRowsBySymmetryWithAWarning) {
  const Topology topology = sample("b200-8gpu-8nic-truncated.topo-m.txt", "b200");
  EXPECT_TRUE(has_remark(topology.remarks, "matrix.rows_missing"));
  EXPECT_EQ(topology.devices.size(), 16U);
  EXPECT_EQ(topology.relation(15, 7).path, PathKind::kPix);
  EXPECT_EQ(topology.relation(15, 14).path, PathKind::kUnknown);
}

TEST(TopoMatrix, RefusesWhatIsNoMatrix) {
  for (const char* text : {"hello", "GPU0\n", "\tGPU0\tGPU1\tCPU Affinity\n",
                           "\tGPU0\tGPU0\tCPU Affinity\nGPU0\tX\tX\t0\n",
                           "\tGPU0\tNIC0\tGPU1\tCPU Affinity\nGPU0\tX\tSYS\tSYS\t0\n"}) {
    EXPECT_THROW((void)from_text(text), Error) << text;
  }
}

TEST(TopoMatrix, RefusesAHugeMatrix) {
  std::string header;
  for (int i = 0; i < 600; ++i) header += "\tGPU" + std::to_string(i);
  EXPECT_THROW((void)from_text(header + "\nGPU0\tX\n"), Error);
}

TEST(P2pMatrix, ReadsStatesAndSaysWhoHasNoAccess) {
  const P2pMatrix matrix = read_p2p_matrix(raw("rtx5090-2gpu.topo-p2p-rw.txt"), "p2p");
  EXPECT_EQ(matrix.cells[0][1], "GNS");
  Topology topology = sample("rtx5090-2gpu-phb.topo-m.txt");
  add_p2p_remarks(topology, matrix);
  ASSERT_TRUE(has_remark(topology.remarks, "p2p.unavailable"));
  EXPECT_THAT(topology.remarks.back().message, HasSubstr("host memory"));
}

TEST(P2pMatrix, RefusesAMatrixThatIsNotSquare) {
  EXPECT_THROW((void)read_p2p_matrix("\tGPU0\tGPU1\nGPU0\tX\tOK\n", "p2p"), Error);
  EXPECT_THROW((void)read_p2p_matrix("nothing", "p2p"), Error);
}

}  // namespace
}  // namespace moe::topology
