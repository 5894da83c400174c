#include "lib/topology/results.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "tests/lib/topology/samples.hpp"

namespace moe::topology {
namespace {

std::string ranks(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "#  Rank  " + std::to_string(i) + " Group  0 Pid   100 on node" +
            std::to_string(i / 8) + " device  " + std::to_string(i % 8) + " [0000:07:00] A100\n";
  }
  return text;
}

// Older generation: the reduction is empty, so rows have 11 words under 12 headings.
std::string old_log() {
  return ranks(8) +
         "#       size         count      type   redop     time   algbw   busbw  error     time   "
         "algbw   busbw  error\n"
         "#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)\n"
         "     1048576         32768     float             87.42   11.99   10.50  0e+00    85.03  "
         "12.33   10.79    N/A\n"
         "  8589934592     268435456     float             33508  256.36  224.31  0e+00    33474  "
         "256.61  224.54    N/A\n"
         "# Out of bounds values : 0 OK\n"
         "# Avg bus bandwidth    : 58.65\n";
}

std::string new_log(const std::string& verdict = "0 OK") {
  return "# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809\n"
         "# Collective test starting: alltoall_perf\n" +
         ranks(8) +
         "#       size         count      type   redop    root     time   algbw   busbw  #wrong    "
         " "
         "time   algbw   busbw  #wrong\n"
         "     1048576         32768     float    none      -1    87.42   11.99   10.50       0    "
         "85.03   12.33   10.79     N/A\n"
         "  8589934592     268435456     float    none      -1  3.4e+04  256.36  224.31       0    "
         "33474  256.61  224.54     N/A\n"
         "# Out of bounds values : " +
         verdict + "\n# Avg bus bandwidth    : 58.65\n";
}

BenchmarkResults read_text_results(const std::string& text, std::int64_t num_ranks = 0) {
  return read_results(text, "log", ResultOptions{num_ranks});
}

TEST(NcclTestsText, ReadsTheOldGenerationWithItsEmptyColumn) {
  const BenchmarkResults results = read_text_results(old_log());
  EXPECT_EQ(results.num_ranks, 8);
  EXPECT_EQ(results.num_hosts, 1);
  ASSERT_EQ(results.rows.size(), 4U);
  const ResultRow& largest = results.rows[2];
  EXPECT_DOUBLE_EQ(largest.bytes, 8589934592.0);
  EXPECT_NEAR(largest.bytes / largest.time_s / 1e9, 256.36, 0.01);
  EXPECT_NEAR(largest.busbw_bytes_per_s / 1e9, 224.31, 0.01);
  EXPECT_EQ(largest.num_wrong, 0);
  EXPECT_TRUE(results.rows[3].is_in_place);
  EXPECT_FALSE(results.rows[3].num_wrong.has_value());
  EXPECT_TRUE(results.is_complete);
  EXPECT_EQ(results.is_data_ok, true);
}

TEST(NcclTestsText, ReadsTheNewGenerationWithSqueezedNumbers) {
  const BenchmarkResults results = read_text_results(new_log());
  EXPECT_EQ(results.operation, "alltoall");
  ASSERT_EQ(results.rows.size(), 4U);
  EXPECT_DOUBLE_EQ(results.rows[2].time_s, 34000e-6);
}

TEST(NcclTestsText, ReadsStatisticsOfIterationsAndTimeStamps) {
  const std::string text = ranks(2) +
                           "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 "
                           "i_cv% time algbw busbw "
                           "#wrong i_min i_max i_p99 i_cv% timestamp\n"
                           "1048576 131072 float none -1 50.0 20.97 10.49 0 48.0 60.0 59.0 3.2 "
                           "51.0 20.56 10.28 N/A 49.0 "
                           "61.0 60.0 3.1 2026-01-01 10:00:00\n"
                           "# Out of bounds values : 0 OK\n";
  const BenchmarkResults results = read_text_results(text);
  ASSERT_EQ(results.rows.size(), 2U);
  EXPECT_DOUBLE_EQ(results.rows[0].time_s, 50e-6);
  EXPECT_DOUBLE_EQ(results.rows[1].time_s, 51e-6);
  EXPECT_EQ(results.rows[0].num_wrong, 0);
}

TEST(NcclTestsText, KeepsTheToolsVerdictAndWhatIsMissing) {
  EXPECT_EQ(read_text_results(new_log("5 FAILED")).is_data_ok, false);
  std::string cut = new_log();
  cut.resize(cut.find("# Out of bounds"));
  const BenchmarkResults results = read_text_results(cut);
  EXPECT_FALSE(results.is_complete);
  EXPECT_TRUE(has_remark(results.remarks, "result.no_end"));
  EXPECT_TRUE(has_remark(
      read_text_results("# Reducing maxBytes to 1000 due to memory limitation\n" + new_log())
          .remarks,
      "result.max_bytes_reduced"));
}

TEST(NcclTestsText, NeedsTheNumberOfRanks) {
  std::string text = old_log();
  text.erase(0, text.find("#       size"));
  EXPECT_THROW((void)read_text_results(text), Error);
  EXPECT_EQ(read_text_results(text, 8).num_ranks, 8);
}

TEST(NcclTestsText, RefusesOtherText) {
  EXPECT_THROW((void)read_text_results("hello\nworld\n"), Error);
  EXPECT_THROW((void)read_text_results(" "), Error);
}

TEST(Osu, SizesAreForOnePeer) {
  const std::string text =
      "# OSU MPI All-to-All Personalized Exchange Latency Test v5.6.1\n# Size       Avg "
      "Latency(us)\n"
      "8                       1.50\n1048576              2000.00\n";
  const BenchmarkResults results = read_text_results(text, 4);
  ASSERT_EQ(results.rows.size(), 2U);
  EXPECT_DOUBLE_EQ(results.rows[0].bytes, 32.0);
  EXPECT_DOUBLE_EQ(results.rows[0].time_s, 1.5e-6);
  EXPECT_EQ(results.size_semantics, "bytes for one peer");
  EXPECT_THROW((void)read_text_results(text), Error);
}

constexpr const char* kJson = R"({"version": 3, "args": ["./build/alltoall_perf", "-g", "1"],
 "config": {"ngpus": 1, "nthreads": 1, "devices": [
   {"rank": 0, "hostname": "a"}, {"rank": 1, "hostname": "a"},
   {"rank": 2, "hostname": "b"}, {"rank": 3, "hostname": "b"}]},
 "results": [
   {"size": 1048576, "root": "    -1",
    "out_of_place": {"time": 100.0, "bus_bw": "nan", "nwrong": 0},
    "in_place": {"time": 101.0, "bus_bw": 7.8, "nwrong": null}},
   {"size": 2097152, "out_of_place": {"cpu_time": 150.0, "bus_bw": 10.4, "nwrong": 2},
    "in_place": null}],
 "out_of_bounds": {"count": 0, "okay": "true"}, "end_time": "x"})";

TEST(NcclTestsJson, SurvivesItsQuirks) {
  const BenchmarkResults results = read_text_results(kJson);
  EXPECT_EQ(results.operation, "alltoall");
  EXPECT_EQ(results.num_ranks, 4);
  EXPECT_EQ(results.num_hosts, 2);
  ASSERT_EQ(results.rows.size(), 3U);
  EXPECT_NEAR(results.rows[0].busbw_bytes_per_s, 1048576 / 100e-6 * 0.75, 1.0);
  EXPECT_FALSE(results.rows[1].num_wrong.has_value());
  EXPECT_DOUBLE_EQ(results.rows[2].time_s, 150e-6);
  EXPECT_EQ(results.rows[2].num_wrong, 2);
  EXPECT_EQ(results.is_data_ok, true);
  EXPECT_TRUE(results.is_complete);
}

TEST(NcclTestsJson, MarksARunWithoutEnd) {
  std::string text = kJson;
  text.replace(text.find(", \"end_time\": \"x\""), 17, "");
  EXPECT_FALSE(read_text_results(text).is_complete);
  EXPECT_THROW((void)read_text_results(std::string(kJson).substr(0, 300)), Error);
}

TEST(NvbandwidthJson, NamesTheSlowestPair) {
  const BenchmarkResults results = read_text_results(
      R"({"nvbandwidth": {"testcases": [{"name": "device_to_device_memcpy_read_ce",
      "status": "Passed",
      "bandwidth_matrix": [["N/A", "390.1"], ["52.5", "N/A"]]}]}})");
  ASSERT_EQ(results.pair_tests.size(), 1U);
  EXPECT_DOUBLE_EQ(results.pair_tests[0].min_bytes_per_s, 52.5e9);
  EXPECT_DOUBLE_EQ(results.pair_tests[0].max_bytes_per_s, 390.1e9);
  EXPECT_EQ(results.pair_tests[0].slowest, "row 1, column 0");
  EXPECT_TRUE(results.rows.empty());
}

TEST(Dips, AreFallsAtTheNextLargerSize) {
  BenchmarkResults results;
  for (const auto& [bytes, gb] : {std::pair(1.0, 10.0), {2.0, 20.0}, {4.0, 15.0}, {8.0, 14.0}}) {
    ResultRow row;
    row.bytes = bytes;
    row.busbw_bytes_per_s = gb;
    results.rows.push_back(row);
  }
  const std::vector<Dip> dips = find_dips(results, 0.15);
  ASSERT_EQ(dips.size(), 1U);
  EXPECT_DOUBLE_EQ(dips[0].bytes, 4.0);
}

}  // namespace
}  // namespace moe::topology
