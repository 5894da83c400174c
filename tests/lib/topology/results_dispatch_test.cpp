#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/topology/results.hpp"

namespace moe::topology {
namespace {

// The figures that DeepEP's documents publish.
constexpr const char* kLowLatency =
    "| Dispatch #EP | Latency | RDMA bandwidth | Combine #EP | Latency | RDMA bandwidth |\n"
    "|:------------:|:-------:|:--------------:|:-----------:|:-------:|:--------------:|\n"
    "|      8       |  77 us  |    98 GB/s     |      8      | 114 us  |    127 GB/s    |\n"
    "|      16      | 118 us  |    63 GB/s     |     16      | 195 us  |    74 GB/s     |\n";
constexpr const char* kNormal =
    "|   Type    | Dispatch #EP | Bottleneck bandwidth | Combine #EP | Bottleneck bandwidth |\n"
    "|:---------:|:------------:|:--------------------:|:-----------:|:--------------------:|\n"
    "| Intranode |      8       |  153 GB/s (NVLink)   |      8      |  158 GB/s (NVLink)   |\n"
    "| Internode |      16      |    43 GB/s (RDMA)    |     16      |    43 GB/s (RDMA)    |\n";
constexpr const char* kSecondGeneration =
    "| Arch | NIC type | Topo | Dispatch Bottleneck Bandwidth | Combine Bottleneck Bandwidth | "
    "#SMs "
    "|\n|--|--|--|--|--|--|\n"
    "| SM90 | CX7 | EP 8 x 2 | 90 GB/s (RDMA) | 81 GB/s (RDMA) | 12 |\n"
    "| SM100 | N/A | EP 8 | 726 GB/s (NVLink) | 740 GB/s (NVLink) | 64 (Max perf) |\n";

BenchmarkResults read(const std::string& text, std::int64_t num_ranks = 0) {
  return read_results(text, "log", ResultOptions{num_ranks});
}

const DispatchRow& row_of(const BenchmarkResults& results, const std::string& phase,
                          std::int64_t ranks, const std::string& scope = "") {
  for (const DispatchRow& row : results.dispatch_rows) {
    if (row.phase == phase && row.num_ranks == ranks && row.scope == scope) return row;
  }
  ADD_FAILURE() << phase << " " << ranks << " " << scope;
  return results.dispatch_rows.front();
}

TEST(DispatchTables, OfTheFirstGeneration) {
  const BenchmarkResults fast = read(kLowLatency);
  ASSERT_EQ(fast.dispatch_rows.size(), 4U);
  const DispatchRow& dispatch = row_of(fast, "dispatch", 8);
  EXPECT_DOUBLE_EQ(dispatch.logical_bytes_per_s, 98e9);
  EXPECT_DOUBLE_EQ(dispatch.time_s.value(), 77e-6);
  // 128 tokens, 8 experts each, 7408 bytes a copy: what was published follows from the time.
  EXPECT_NEAR(128 * 8 * 7408 / *dispatch.time_s, dispatch.logical_bytes_per_s, 1e9);
  EXPECT_DOUBLE_EQ(row_of(fast, "combine", 16).logical_bytes_per_s, 74e9);
  EXPECT_DOUBLE_EQ(row_of(fast, "combine", 16).time_s.value(), 195e-6);
  EXPECT_EQ(fast.num_ranks, 16);
  EXPECT_EQ(read(kLowLatency, 8).dispatch_rows.size(), 4U)
      << "--ranks is for files that do not say";
  const BenchmarkResults normal = read(kNormal);
  EXPECT_DOUBLE_EQ(row_of(normal, "dispatch", 8, "NVLink").logical_bytes_per_s, 153e9);
  EXPECT_DOUBLE_EQ(row_of(normal, "combine", 16, "RDMA").logical_bytes_per_s, 43e9);
  EXPECT_FALSE(row_of(normal, "combine", 16, "RDMA").time_s.has_value());
}

TEST(DispatchTables, OfTheSecondGenerationAndOfOthers) {
  const BenchmarkResults second = read(kSecondGeneration);
  EXPECT_DOUBLE_EQ(row_of(second, "dispatch", 16, "RDMA").logical_bytes_per_s, 90e9);
  EXPECT_DOUBLE_EQ(row_of(second, "combine", 8, "NVLink").logical_bytes_per_s, 740e9);
  const BenchmarkResults nccl_ep = read(
      "| Number Of GPUs | Node Count | Dispatch BW (GB/s) | Combine BW (GB/s)  |\n"
      "|:--------------:|:----------:|:------------------:|:------------------:|\n"
      "| 64             | 8          | 48.8               | 43.8               |\n");
  EXPECT_DOUBLE_EQ(row_of(nccl_ep, "combine", 64).logical_bytes_per_s, 43.8e9);
}

TEST(DispatchLogs, OfLowLatencyKernelsNameTheWorstRank) {
  const BenchmarkResults results = read(
      "[rank 0] Dispatch + combine bandwidth: 120.00 GB/s, avg_t=190.00 us, min_t=180.00 us, "
      "max_t=230.00 us\n"
      "[rank 0] Dispatch bandwidth: 98.52 GB/s, avg_t=77.00 us | Combine bandwidth: 128.77 GB/s, "
      "avg_t=114.00 us\n"
      "[rank 1] Dispatch bandwidth: 60.00 GB/s, avg_t=126.00 us | Combine bandwidth: 128.00 GB/s, "
      "avg_t=115.00 us\n"
      "[rank 2] Dispatch bandwidth: 99.00 GB/s, avg_t=76.50 us | Combine bandwidth: 127.00 GB/s, "
      "avg_t=115.50 us\n"
      "[rank 2] Dispatch send/recv time: 10.00 + 20.00 us | Combine send/recv time: 9.00 + 8.00 "
      "us\n");
  EXPECT_EQ(results.num_ranks, 3);
  const DispatchRow& dispatch = row_of(results, "dispatch", 3);
  EXPECT_DOUBLE_EQ(dispatch.logical_bytes_per_s, 98.52e9);
  EXPECT_DOUBLE_EQ(dispatch.worst_bytes_per_s, 60e9);
  EXPECT_EQ(dispatch.worst_rank, 1);
  EXPECT_DOUBLE_EQ(row_of(results, "dispatch + combine", 3).time_s.value(), 190e-6);
}

TEST(DispatchLogs, OfNormalKernelsTakeTheBestOfTheTuning) {
  const BenchmarkResults results = read(
      "[tuning] SMs 24, NVL chunk 4: 100.00 GB/s (NVL), 900.00 us\n"
      "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 16, RDMA chunk 16: 206 + 1234 us, 58.00 "
      "GB/s (RDMA), 120.00 GB/s (NVL)\n"
      "[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 12, 11.00 + 2300.00 us, 57.00 GB/s "
      "(RDMA), 110.00 GB/s (NVL)\n",
      32);
  ASSERT_EQ(results.dispatch_rows.size(), 4U);
  const DispatchRow& dispatch = row_of(results, "dispatch", 32, "RDMA");
  EXPECT_EQ(dispatch.dtype, "FP8");
  EXPECT_DOUBLE_EQ(dispatch.logical_bytes_per_s, 58e9);
  EXPECT_DOUBLE_EQ(dispatch.time_s.value(), 1234e-6);
  EXPECT_DOUBLE_EQ(row_of(results, "combine", 32, "NVLink").logical_bytes_per_s, 110e9);
}

TEST(DispatchLogs, OfTheSecondGeneration) {
  const BenchmarkResults results = read(
      "   * EP:   3/16 | dispatch: 90 GB/s (SO), 120 GB/s (SU), 650.123 us, 78000000 bytes | copy: "
      "900 GB/s, 80.000 us\n"
      "   + EP:   3/16 | reduced combine: 0 GB/s (SO), 115 GB/s (SU), 700.000 us, 1 bytes | "
      "reduce: 800 GB/s, 90.0 us\n");
  ASSERT_EQ(results.dispatch_rows.size(), 3U);
  const DispatchRow& dispatch = row_of(results, "dispatch", 16, "RDMA");
  EXPECT_EQ(dispatch.worst_rank, 3);
  EXPECT_DOUBLE_EQ(dispatch.time_s.value(), 650.123e-6);
  EXPECT_DOUBLE_EQ(row_of(results, "reduced combine", 16, "NVLink").logical_bytes_per_s, 115e9);
}

TEST(DispatchTables, WithoutARowAreRefused) {
  EXPECT_THROW((void)read("dispatch and combine at many GB/s\n"), Error);
  EXPECT_THROW((void)read("| Dispatch #EP | bandwidth GB/s |\n|--|--|\n"), Error);
}

TEST(OwnReports, AreRead) {
  const BenchmarkResults results = read(R"({"tool": {"name": "moe-a2a"},
    "metrics": {"num_ranks": {"value": 4}},
    "tables": {"results": {"columns": [{"name": "size_bytes"}, {"name": "busbw_bytes_per_s"}],
                           "rows": [[1048576, 3e9], [4194304, null], ["x", 1], 7]}}})");
  EXPECT_EQ(results.num_ranks, 4);
  ASSERT_EQ(results.rows.size(), 1U);
  EXPECT_NEAR(results.rows[0].time_s, 1048576 * 0.75 / 3e9, 1e-12);
  EXPECT_THROW((void)read(R"({"tool": {"name": "moe-a2a"}, "metrics": {}, "tables": {}})"), Error);
}

TEST(HalfBandwidth, IsTheSizeFromWhichHalfOfTheBestIsReached) {
  BenchmarkResults results;
  for (const auto& [bytes, rate] : {std::pair(1.0, 1.0), {2.0, 3.0}, {4.0, 6.0}, {8.0, 10.0}}) {
    ResultRow row;
    row.bytes = bytes;
    row.busbw_bytes_per_s = rate;
    results.rows.push_back(row);
  }
  EXPECT_EQ(half_bandwidth_of(results), 4.0);
  results.rows.erase(results.rows.begin(), results.rows.begin() + 2);
  EXPECT_EQ(half_bandwidth_of(results), std::nullopt);
}

}  // namespace
}  // namespace moe::topology
