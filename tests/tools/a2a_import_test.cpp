// moe-a2a import through the real binary.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/a2a_report.hpp"

namespace moe::test {
namespace {

using json::Json;
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

TEST_F(A2aImport, RefusesOtherFilesInOneLine) {
  EXPECT_THAT(a2a_error({"import", write("x.txt", "hello\n")}, 3), HasSubstr("nccl-tests"));
  EXPECT_THAT(a2a_error({"import", write("x.json", "{\"a\": 1}")}, 3), HasSubstr("results"));
  EXPECT_THAT(a2a_error({"import", "/nowhere.log"}, 3), HasSubstr("/nowhere.log"));
}

}  // namespace
}  // namespace moe::test
