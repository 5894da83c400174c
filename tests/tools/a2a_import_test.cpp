// moe-a2a import through the real binary.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A run of 8 ranks; `wrong` elements and `time_us` at the largest size.
std::string log(const std::string& wrong = "0", const std::string& time_us = "33508") {
  std::string text = "# Collective test starting: alltoall_perf\n";
  for (int i = 0; i < 8; ++i) {
    text += "#  Rank  " + std::to_string(i) + " Group  0 Pid 1 on node device 0 [0:7:0] A100\n";
  }
  text += "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n";
  text += "4096 128 float none -1 86.0 0.05 0.04 0 86.0 0.05 0.04 N/A\n";
  text += "8589934592 268435456 float none -1 " + time_us + " 256.36 224.31 " + wrong +
          " 33474 256.61 224.54 N/A\n";
  return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 58.65\n";
}

class A2aImport : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    write_file(folder_ / name, text);
    return (folder_ / name).string();
  }
  TempDir folder_;
};

TEST_F(A2aImport, JudgesTheLargestSizeAgainstTheCeiling) {
  const std::string file = write("a.log", log());
  const Json good = a2a_report(
      {"import", file, "--gpu", "a100_sxm", "--min-of-bound", "0.8", "--require", "a2a.bandwidth"},
      0);
  EXPECT_NEAR(value_of(good, "a2a_busbw_bytes_per_s"), 224.31e9, 1e7);
  EXPECT_NEAR(value_of(good, "a2a_busbw_ceiling_ratio"), 224.31 / 240.0, 1e-3);
  a2a_report({"import", file, "--gpu", "a100_sxm", "--min-of-bound", "0.95"}, 1);
}

TEST_F(A2aImport, NeverOffersTheAverageOverSizes) {
  const ProcessResult result =
      run_moe_a2a({"import", write("a.log", log()), "--format", "json", "--gpu", "a100_sxm"});
  EXPECT_THAT(result.out, Not(HasSubstr("58.65")));
  EXPECT_THAT(a2a_error({"import", write("a.log", log()), "--min-busbw", "58"}, 2),
              HasSubstr("average"));
}

TEST_F(A2aImport, TellsCorruptFromSlow) {
  const Json corrupt = a2a_report(
      {"import", write("bad.log", log("12")), "--gpu", "a100_sxm", "--min-of-bound", "0.99"}, 6);
  EXPECT_TRUE(has_finding(corrupt, "data.corrupt"));
  EXPECT_FALSE(corrupt.at("validity").at("valid").get<bool>());
  const Json slow =
      a2a_report({"import", write("slow.log", log("0", "67000")), "--min-busbw", "8GiB=200"}, 1);
  EXPECT_TRUE(has_finding(slow, "gate.below"));
}

TEST_F(A2aImport, ComparesWithABaselineSizeBySize) {
  const std::string base = write("base.log", log());
  const std::string slower = write("slower.log", log("0", "36000"));
  a2a_report({"import", slower, "--baseline", base, "--tolerance", "0.1"}, 0);
  a2a_report({"import", slower, "--baseline", base, "--tolerance", "0.05"}, 1);
}

TEST_F(A2aImport, RefusesGatesThatMeanNothing) {
  const std::string file = write("a.log", log());
  EXPECT_THAT(a2a_error({"import", file, "--gpu", "a100_sxm", "--min-busbw", "4096=1"}, 2),
              HasSubstr("latency"));
  EXPECT_THAT(a2a_error({"import", file, "--min-of-bound", "0.8"}, 2), HasSubstr("--gpu"));
  EXPECT_THAT(a2a_error({"import", file, "--min-busbw", "1MiB=1"}, 2), HasSubstr("no such size"));
  EXPECT_THAT(a2a_error({"import", file, "--min-busbw", "8GiB=inf"}, 2), HasSubstr("a rate"));
  std::string one =
      "#  Rank  0 Group 0 Pid 1 on n device 0 [0:7:0] A100\n"
      "# size count type redop root time algbw busbw #wrong\n"
      "1048576 262144 float none -1 50.0 20.97 0.00 0\n"
      "# Out of bounds values : 0 OK\n";
  EXPECT_THAT(a2a_error({"import", write("one.log", one), "--min-busbw", "1MiB=1"}, 2),
              HasSubstr("one rank"));
}

TEST_F(A2aImport, EndsWithSevenWhenThereIsNoRow) {
  std::string text = log();
  text = text.substr(0, text.find("4096 128"));
  a2a_report({"import", write("none.log", text)}, 7);
}

TEST_F(A2aImport, ExplainsTheQuickLimitForH100) {
  const Json report = a2a_report(
      {"import", write("h.log", log("0", "23600")), "--gpu", "h100", "--min-of-bound", "0.8"}, 0);
  EXPECT_TRUE(has_finding(report, "a2a.quick_limit"));
}

// A sweep of 8 ranks; busbw follows from size and time.
std::string sweep_log() {
  std::string text = log();
  const std::size_t row = text.find("4096 128");
  text.replace(row, text.find("# Out of bounds") - row,
               "1048576 32768 float none -1 87.42 1 1 0 87 1 1 N/A\n"
               "67108864 2097152 float none -1 396.8 1 1 0 396 1 1 N/A\n"
               "8589934592 268435456 float none -1 33508 1 1 0 33474 1 1 N/A\n");
  return text;
}

TEST_F(A2aImport, RefusesASizeThatTheSweepItselfShowsToBeLatency) {
  const std::string file = write("sweep.log", sweep_log());
  EXPECT_THAT(a2a_error({"import", file, "--min-busbw", "1MiB=1"}, 2),
              HasSubstr("half of its best bandwidth"));
  a2a_report({"import", file, "--min-busbw", "64MiB=100"}, 0);
}

TEST_F(A2aImport, TakesAReportOfItsOwnAsBaseline) {
  const std::string base = (folder_ / "base.json").string();
  const ProcessResult kept =
      run_moe_a2a({"import", write("a.log", log()), "--format", "json", "-q"});
  ASSERT_EQ(kept.exit_code, 0);
  write_file(base, kept.out);
  const std::string slower = write("slower.log", log("0", "36000"));
  a2a_report({"import", slower, "--baseline", base, "--tolerance", "0.1"}, 0);
  a2a_report({"import", slower, "--baseline", base, "--tolerance", "0.05"}, 1);
}

TEST_F(A2aImport, AFailedGateIsAFailedTestForCi) {
  const ProcessResult result = run_moe_a2a(
      {"import", write("a.log", log()), "--min-busbw", "8GiB=300", "--format", "junit", "-q"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("name=\"finding gate.below\""));
  EXPECT_THAT(result.out, HasSubstr("224.3 GB/s, the limit is 300.0 GB/s"));
}

constexpr const char* kDeepEp =
    "|   Type    | Dispatch #EP | Bottleneck bandwidth | Combine #EP | Bottleneck bandwidth |\n"
    "|:---------:|:------------:|:--------------------:|:-----------:|:--------------------:|\n"
    "| Intranode |      8       |  153 GB/s (NVLink)   |      8      |  158 GB/s (NVLink)   |\n"
    "| Internode |      64      |    51 GB/s (RDMA)    |     64      |    50 GB/s (RDMA)    |\n";

TEST_F(A2aImport, JudgesDispatchAndCombineByWhatIsOnTheWire) {
  const std::string file = write("deepep.md", kDeepEp);
  // 51 GB/s logical on 64 ranks are 44.6 over the NIC: 0.92 of what 400 Gb/s carry.
  const Json good = a2a_report({"import", file, "--gpu", "h100_sxm", "--min-of-bound", "0.3"}, 0);
  EXPECT_TRUE(has_finding(good, "dispatch.logical"));
  const Json& rows = good.at("tables").at("dispatch").at("rows");
  ASSERT_EQ(rows.size(), 4U);
  for (const Json& row : rows) {
    if (row[0] != "dispatch" || row[1] != 64) continue;
    EXPECT_NEAR(row[8].get<double>(), 51e9 * 56 / 64, 1e6);
    EXPECT_NEAR(row[10].get<double>(), 51.0 * 56 / 64 / 48.5, 0.01);
    EXPECT_EQ(row[11], "NICs");
  }
  // The H800's NVLink is slower than the H100's: 153 x 7/8 of 370.8.
  a2a_report({"import", file, "--gpu", "h100_sxm", "--min-of-bound", "0.5"}, 1);
  EXPECT_THAT(a2a_error({"import", file, "--min-of-bound", "0.5"}, 2), HasSubstr("--gpu"));
  EXPECT_THAT(a2a_error({"import", file, "--min-busbw", "1GiB=5"}, 2), HasSubstr("logical"));
}

TEST_F(A2aImport, ComparesDispatchAndCombineWithABaseline) {
  const std::string base = write("base.md", kDeepEp);
  std::string text = kDeepEp;
  text.replace(text.find("51 GB/s"), 7, "40 GB/s");
  const std::string slower = write("slower.md", text);
  const Json report = a2a_report({"import", slower, "--baseline", base}, 1);
  EXPECT_TRUE(has_finding(report, "gate.below"));
  a2a_report({"import", base, "--baseline", base}, 0);
}

TEST_F(A2aImport, RefusesOtherFilesInOneLine) {
  EXPECT_THAT(a2a_error({"import", write("x.txt", "hello\n")}, 3), HasSubstr("nccl-tests"));
  EXPECT_THAT(a2a_error({"import", write("x.json", "{\"a\": 1}")}, 3), HasSubstr("results"));
  EXPECT_THAT(a2a_error({"import", "/nowhere.log"}, 3), HasSubstr("/nowhere.log"));
}

}  // namespace
}  // namespace moe::test
