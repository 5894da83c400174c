// moe-a2a model, what-if and fit through the real binary.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

TEST(A2aModel, PredictsFromTwoToManyRanksInUnderASecond) {
  const ProcessResult result = run_moe_a2a({"model", "--gpu", "h100_sxm", "--ranks",
                                            "2,4,8,16,32,64,128,256,512,1024", "--format", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(result.wall_s, 5.0);  // under a second alone; other work may run beside the tests
  const Json report = checked_report(result);
  EXPECT_EQ(report.at("tables").at("basis").at("rows").size(), 10U);
  EXPECT_EQ(report.at("tables").at("prediction").at("rows").size(), 80U);
  EXPECT_TRUE(has_finding(report, "a2a.quick_limit"));
}

TEST(A2aModel, TakesLinksAndNicsFromATopology) {
  const Json report =
      a2a_report({"model", "--topology", "oci-h100-16nic.nccl-topo.xml", "--ranks", "16"}, 0);
  EXPECT_EQ(report.at("settings").at("gpu"), "h100_sxm");
  EXPECT_NEAR(report.at("settings").at("nic_bytes_per_s_per_gpu").get<double>(), 45e9 * 0.97, 1.0);
  EXPECT_NEAR(value_of(report, "a2a_busbw_ceiling_bytes_per_s"), 45e9 * 0.97 * 15 / 8, 1e3);
}

TEST(A2aModel, VerifyMeetsItsLimits) {
  const Json report = a2a_report({"model", "--verify"}, 0);
  EXPECT_LE(value_of(report, "a2a_model_error_p50"), 0.05);
  EXPECT_LE(value_of(report, "moe_model_error_p50"), 0.08);
  EXPECT_LE(value_of(report, "log_alpha_beta_error_max"), 0.10);
  EXPECT_LE(value_of(report, "log_model_error_max"), 0.10);
  EXPECT_TRUE(has_finding(report, "data.far_below_link"));
  EXPECT_GE(report.at("tables").at("collective_errors").at("rows").size(), 9U);
  EXPECT_GE(report.at("tables").at("moe_errors").at("rows").size(), 20U);
}

TEST(A2aModel, VerifyJudgesForeignPoints) {
  TempDir folder;
  // Twice the time that the constants say.
  write_file(folder / "slow.csv",
             "gpu,library,version,op,dtype,num_gpus,bytes,time_us\n"
             "h100_sxm,nccl,2.27.3,alltoall,half,8,536870912,2983\n");
  const Json report =
      a2a_report({"model", "--verify", "--points", (folder / "slow.csv").string()}, 1);
  EXPECT_NEAR(value_of(report, "a2a_model_error_p50"), 0.5, 0.03);
  write_file(folder / "other.csv",
             "gpu,library,version,op,dtype,num_gpus,bytes,time_us\n"
             "unknown,nccl,2,alltoall,half,8,1024,10\n");
  EXPECT_THAT(a2a_error({"model", "--verify", "--points", (folder / "other.csv").string()}, 7),
              HasSubstr("no point"));
}

TEST(A2aModel, DispatchAndCombineCarryBothVolumes) {
  const Json report = a2a_report(
      {"model", "--gpu", "h100_sxm", "--ranks", "8,16", "--tokens", "128", "--top-k", "8"}, 0);
  const Json& rows = report.at("tables").at("moe_ranks_8").at("rows");
  EXPECT_GE(rows.size(), 6U);
  EXPECT_NEAR(value_of(report, "remote_selection_share.ranks_8"), 0.875, 1e-12);
  EXPECT_TRUE(report.at("tables").contains("moe_ranks_16"));
}

TEST(A2aModel, OverlapNamesTheBestChunkCount) {
  const Json report =
      a2a_report({"model", "--ranks", "8", "--sizes", "64MiB", "--compute", "250us"}, 0);
  EXPECT_GT(value_of(report, "best_chunks_count"), 1.0);
  EXPECT_GT(value_of(report, "comm_share_ratio"), 0.0);
}

TEST(A2aModel, SaysThatL40sGoesThroughHostMemory) {
  const Json report = a2a_report({"model", "--gpu", "l40s", "--ranks", "4,8"}, 0);
  EXPECT_TRUE(has_finding(report, "a2a.through_host_memory"));
  EXPECT_LT(value_of(report, "a2a_busbw_bytes_per_s"), 3e9);
}

TEST(A2aModel, RefusesWhatCannotBe) {
  EXPECT_THAT(a2a_error({"model", "--ranks", "1"}, 2), HasSubstr("--ranks"));
  EXPECT_THAT(a2a_error({"model", "--gpu", "x"}, 2), HasSubstr("h100_sxm"));
  EXPECT_THAT(a2a_error({"model", "--sizes", "0"}, 2), HasSubstr("--sizes"));
  EXPECT_THAT(a2a_error({"model", "--topology", "single-gpu-no-numa.topo-m.txt"}, 3),
              HasSubstr("two GPUs"));
  EXPECT_THAT(a2a_error({"model", "--ranks", "64", "--fabric", "rail-only", "--no-pxn"}, 3),
              HasSubstr("PXN"));
}

TEST(A2aWhatIf, ShowsOneChangeARow) {
  const Json report =
      a2a_report({"what-if", "--gpu", "h100_sxm", "--ranks", "64", "--bytes", "256MiB"}, 0);
  std::string changes;
  for (const Json& row : report.at("tables").at("what_if").at("rows")) {
    changes += row.at(0).get<std::string>() + "\n";
  }
  for (const char* part : {"4 NICs", "16 NICs", "rail-only", "without PXN", "2:1", "two-level"}) {
    EXPECT_THAT(changes, HasSubstr(part));
  }
}

TEST(A2aWhatIf, MarksWhatHasNoWay) {
  const ProcessResult result =
      run_moe_a2a({"what-if", "--ranks", "64", "--bytes", "1MiB", "--compute", "100us"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("no way between rails"));
  EXPECT_THAT(result.out, HasSubstr("Chunks"));
}

TEST(A2aFit, WritesTheConstantsThatComeWithTheToolkit) {
  TempDir folder;
  a2a_report({"fit", "--write", (folder / "fits.json").string()}, 0);
  EXPECT_EQ(read_file(folder / "fits.json"),
            read_file(std::string(MOE_SOURCE_DIR) + "/scenarios/measured/collectives_fits.json"));
}

TEST(A2aHelp, NamesTheCommandsAndTheirOptions) {
  const ProcessResult help = run_moe_a2a({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"topo", "model", "what-if", "fit"}) {
    EXPECT_THAT(help.out, HasSubstr(name));
    EXPECT_EQ(run_moe_a2a({name, "--help"}).exit_code, 0);
  }
  EXPECT_THAT(a2a_error({"nothing"}, 2), HasSubstr("topo"));
}

TEST(A2aModel, NicsCountWithATopologyToo) {
  const auto nic_rate = [](std::vector<std::string> args) {
    args.insert(args.begin(), {"model", "--ranks", "64", "--sizes", "1GiB"});
    return a2a_report(args, 0).at("settings").at("nic_bytes_per_s_per_gpu").get<double>();
  };
  // Rates that the topology has: 8 NICs of two ports of 180 Gb/s.
  const double given = nic_rate({"--topology", "oci-h100-16nic.nccl-topo.xml"});
  EXPECT_NEAR(nic_rate({"--topology", "oci-h100-16nic.nccl-topo.xml", "--nics", "4"}), given / 2.0,
              1.0);
  // The text of nvidia-smi has the NICs, not their rate.
  const std::string text = "hgx-h100-8nic.topo-m.txt";
  const double eight = nic_rate({"--topology", text, "--gpu", "h100_sxm"});
  EXPECT_NEAR(eight, 50e9 * 0.97, 1e8);
  EXPECT_NEAR(nic_rate({"--topology", text, "--gpu", "h100_sxm", "--nics", "2"}), eight / 4.0, 1.0);
  EXPECT_NEAR(nic_rate({"--topology", text, "--gpu", "h100_sxm", "--nic-gbits", "200"}), eight / 2,
              1.0);
}

TEST(A2aWhatIf, ChangesTheNicsOfATopology) {
  const Json report =
      a2a_report({"what-if", "--topology", "hgx-h100-8nic.topo-m.txt", "--gpu", "h100_sxm"}, 0);
  bool has_half = false;
  for (const Json& row : report.at("tables").at("what_if").at("rows")) {
    if (row[0] != "4 NICs a node instead of 8") continue;
    has_half = true;
    EXPECT_GT(row[4].get<double>(), 1.5);
  }
  EXPECT_TRUE(has_half);
}

}  // namespace
}  // namespace moe::test
