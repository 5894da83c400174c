// moe-a2a topo through the real binary.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

TEST(A2aTopo, ShowsAMachineWithItsCeilingAndTheQuickLimitExplained) {
  const Json report = a2a_report({"topo", "show", "hgx-h100-8nic.topo-m.txt"}, 0);
  EXPECT_EQ(value_of(report, "gpu_count"), 8.0);
  EXPECT_NEAR(value_of(report, "a2a_busbw_ceiling_bytes_per_s"), 370.8e9, 1.0);
  EXPECT_EQ(report.at("subject").at("gpu_type"), "h100_sxm");
  const std::string message = message_of(report, "a2a.quick_limit");
  EXPECT_THAT(message, HasSubstr("700 GB/s"));
  EXPECT_THAT(message, HasSubstr("370.8"));
}

TEST(A2aTopo, ShowsTheSameInText) {
  const ProcessResult result = run_moe_a2a({"topo", "show", "dgx-a100-10nic.topo-m.txt"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("240"));
  EXPECT_THAT(result.out, HasSubstr("NIC8"));
}

TEST(A2aTopo, LintEndsWithOneOnAnErrorAndZeroOnAHealthyMachine) {
  const Json bad = a2a_report({"topo", "lint", "azure-ncv4-a100-pcie.nccl-topo.xml"}, 1);
  EXPECT_EQ(value_of(bad, "topology_lint_errors_count"), 4.0);
  EXPECT_TRUE(has_finding(bad, "nvlink.self"));
  const Json good = a2a_report({"topo", "lint", "hgx-h100-8nic.topo-m.txt", "--strict"}, 0);
  EXPECT_EQ(value_of(good, "topology_lint_errors_count"), 0.0);
  EXPECT_EQ(value_of(good, "topology_lint_warnings_count"), 0.0);
  a2a_report({"topo", "lint", "azure-ndv4-a100.nccl-topo.xml"}, 0);
  a2a_report({"topo", "lint", "azure-ndv4-a100.nccl-topo.xml", "--strict"}, 1);
}

TEST(A2aTopo, LintComparesTheNodesOfAJob) {
  const Json differ = a2a_report({"topo", "lint", "azure-ndv5-h100.nccl-topo.xml",
                                  "azure-ndv5-h100-swapped-affinity.nccl-topo.xml"},
                                 1);
  EXPECT_TRUE(has_finding(differ, "topology.nodes_differ"));
  const Json alike = a2a_report(
      {"topo", "lint", "azure-ndv5-h100.nccl-topo.xml", "azure-ndv5-h100.nccl-topo.xml"}, 0);
  EXPECT_FALSE(has_finding(alike, "topology.nodes_differ"));
}

TEST(A2aTopo, LintHoldsAFileAgainstItsHost) {
  const Json report = a2a_report({"topo", "lint", "azure-ndv5-h100-swapped-affinity.nccl-topo.xml",
                                  "--host", "azure-ndv5-h100.nccl-topo.xml"},
                                 1);
  EXPECT_TRUE(has_finding(report, "cpu.differs_from_host"));
}

TEST(A2aTopo, P2pStatesBecomeAFinding) {
  const std::string p2p =
      std::string(MOE_SOURCE_DIR) + "/scenarios/topologies/rtx5090-2gpu.topo-p2p-rw.txt";
  const Json report = a2a_report({"topo", "lint", "rtx5090-2gpu-phb.topo-m.txt", "--p2p", p2p}, 0);
  EXPECT_TRUE(has_finding(report, "p2p.unavailable"));
}

TEST(A2aTopo, DiffNamesWhatDiffers) {
  const Json report = a2a_report({"topo", "diff", "azure-ndv5-h100.nccl-topo.xml",
                                  "azure-ndv5-h100-swapped-affinity.nccl-topo.xml"},
                                 1);
  EXPECT_EQ(value_of(report, "topology_differences_count"), 2.0);
  EXPECT_EQ(report.at("tables").at("differences").at("rows").size(), 2U);
  a2a_report({"topo", "diff", "hgx-h100-8nic.topo-m.txt", "hgx-h100-8nic.topo-m.txt"}, 0);
}

TEST(A2aTopo, DocWritesEveryFileAndPassesTheChecklist) {
  TempDir folder;
  const Json report =
      a2a_report({"topo", "doc", "oci-h100-16nic.nccl-topo.xml", "--directory",
                  folder.path().string(), "--nodes", "4", "--require", "topology.documented"},
                 0);
  EXPECT_EQ(report.at("tables").at("files").at("rows").size(), 7U);
  EXPECT_THAT(read_file(folder / "gres.conf"), HasSubstr("Links=-1,18"));
  EXPECT_THAT(read_file(folder / "topology.md"), HasSubstr("370.8 GB/s"));
  EXPECT_THAT(read_file(folder / "topology.svg"), HasSubstr("</svg>"));
  EXPECT_THAT(read_file(folder / "kubernetes-nodes.yaml"), HasSubstr("gpu-node-4"));
}

TEST(A2aTopo, AFileWithErrorsDoesNotPassTheChecklist) {
  TempDir folder;
  a2a_report({"topo", "doc", "azure-ncv4-a100-pcie.nccl-topo.xml", "--directory",
              folder.path().string(), "--require", "topology.documented"},
             1);
}

TEST(A2aTopo, ReadsThisHost) {
  const Json report = a2a_report({"topo", "show", "host"}, 0);
  EXPECT_GE(report.at("tables").at("devices").at("rows").size(), 1U);
  EXPECT_EQ(report.at("subject").at("content_hash"), nullptr);
}

TEST(A2aTopo, RefusesInOneLineWithTheReason) {
  TempDir folder;
  write_file(folder / "cut.xml", "<system version=\"1\"><cpu numaid=\"0\">");
  write_file(folder / "text.txt", "no matrix here\n");
  EXPECT_THAT(a2a_error({"topo", "show", (folder / "cut.xml").string()}, 3), HasSubstr("line 1"));
  EXPECT_THAT(a2a_error({"topo", "show", (folder / "text.txt").string()}, 3),
              HasSubstr("nvidia-smi topo -m"));
  EXPECT_THAT(a2a_error({"topo", "show", "/nowhere.xml"}, 3), HasSubstr("/nowhere.xml"));
  EXPECT_THAT(a2a_error({"topo", "draw", "host"}, 2), HasSubstr("show, lint, diff or doc"));
  EXPECT_THAT(a2a_error({"topo", "diff", "hgx-h100-8nic.topo-m.txt"}, 2), HasSubstr("2 files"));
  EXPECT_THAT(a2a_error({"topo", "doc", "hgx-h100-8nic.topo-m.txt"}, 2), HasSubstr("--directory"));
  EXPECT_THAT(a2a_error({"topo", "show", "hgx-h100-8nic.topo-m.txt", "--gpu", "h1000"}, 2),
              HasSubstr("h100_sxm"));
}

TEST(A2aTopo, EveryFormatIsWritten) {
  TempDir folder;
  std::vector<std::string> args = {"topo", "show", "hgx-h100-8nic.topo-m.txt", "-q"};
  for (const char* name : {"a.json", "a.md", "a.csv", "a.html", "a.xml", "a.prom", "a.txt"}) {
    args.insert(args.end(), {"-o", (folder / name).string()});
  }
  EXPECT_EQ(run_moe_a2a(args).exit_code, 0);
  EXPECT_THAT(read_file(folder / "a.md"), HasSubstr("NV18"));
}

TEST(A2aLint, SaysWhichNcclVariablesDoNothing) {
  TempDir folder;
  const std::string file = (folder / "env").string();
  write_file(file,
             "HOME=/root\nNCCL_ALGO=Ring\nNCCL_BUFF_SIZE=4194304\nNCCL_P2P_DISABLE=1\n"
             "NCCL_IB_OOO_RQ=1\nNCCL_SOCKET_IFNAME=eth0\n");
  const std::vector<std::string> lint = {
      "topo", "lint", "hgx-h100-8nic.topo-m.txt", "--variables", file, "--nccl-version", "2.28.9"};
  const Json report = a2a_report(lint, 0);
  for (const char* code : {"nccl.variable_without_effect", "nccl.variable_misspelt",
                           "nccl.variable_slows", "nccl.variable_too_new"}) {
    EXPECT_TRUE(has_finding(report, code)) << code;
  }
  std::vector<std::string> strict = lint;
  strict.emplace_back("--strict");
  a2a_report(strict, 1);
  std::vector<std::string> wrong = lint;
  wrong.back() = "new";
  EXPECT_THAT(a2a_error(wrong, 2), HasSubstr("--nccl-version"));
}

TEST(A2aLint, LooksAtTheVariablesOfItsOwnProcess) {
  ProcessOptions options;
  options.environment = {"NCCL_PROTO=LL", "NCCL_SECRET_TOKEN=abc"};
  const ProcessResult result =
      run_moe_a2a({"topo", "lint", "hgx-h100-8nic.topo-m.txt", "--format", "json", "-q"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("NCCL_PROTO=LL has no effect"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("abc")));
}

}  // namespace
}  // namespace moe::test
