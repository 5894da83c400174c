// moe-a2a run through the real binary: threads, Open MPI on this host, and Open MPI's TCP between
// four hosts made of network namespaces.

#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

// Short: what is tested is what comes out, not how fast.
std::vector<std::string> quick(std::vector<std::string> args) {
  args.insert(args.begin(), "run");
  args.insert(args.end(), {"--iterations", "10", "--warm-up", "2"});
  return args;
}

// Cells of a column.
std::vector<Json> column(const Json& report, const std::string& table, const std::string& name) {
  const Json& found = report.at("tables").at(table);
  std::vector<Json> cells;
  for (std::size_t c = 0; c < found.at("columns").size(); ++c) {
    if (found.at("columns").at(c).at("name") != name) continue;
    for (const Json& row : found.at("rows")) cells.push_back(row.at(c));
  }
  EXPECT_FALSE(cells.empty()) << table << "." << name;
  return cells;
}

bool has_mpi() {
  static const std::string backends = run_moe_a2a({"--list-backends"}).out;
  return backends.find("mpi     available\n") != std::string::npos;
}

constexpr int kNotFound = 127;  // of env, for a program that is not there

ProcessResult run_under_mpi(int num_ranks, const std::vector<std::string>& args) {
  std::vector<std::string> argv = {"/usr/bin/env", "mpirun", "--oversubscribe",        "--bind-to",
                                   "none",         "-np",    std::to_string(num_ranks)};
  argv.push_back(std::string(MOE_BINARY_DIR) + "/bin/moe-a2a");
  argv.insert(argv.end(), args.begin(), args.end());
  ProcessOptions options;
  // Open MPI frees not everything at its end; a build that looks for leaks would blame us.
  options.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                         "ASAN_OPTIONS=detect_leaks=0"};
  options.timeout_s = 120.0;
  return run_process(argv, options);
}

void expect_verified(const Json& report, int num_ranks) {
  EXPECT_EQ(value_of(report, "num_ranks"), num_ranks);
  EXPECT_EQ(value_of(report, "num_nodes"), 1);
  for (const Json& wrong : column(report, "results", "wrong_elements")) EXPECT_EQ(wrong, 0);
  EXPECT_EQ(column(report, "ranks", "rank").size(), static_cast<std::size_t>(num_ranks));
  if (num_ranks > 1) {
    EXPECT_GT(value_of(report, "a2a_busbw_bytes_per_s"), 0.0);
  }
}

TEST(A2aRun, VerifiesEveryByteOfEveryIterationBetweenThreads) {
  for (const int ranks : {1, 2, 4, 8}) {
    const Json report = a2a_report(quick({"--backend", "threads", "--ranks", std::to_string(ranks),
                                          "--sizes", "1KiB..64KiB", "--check", "every"}),
                                   0);
    expect_verified(report, ranks);
    EXPECT_EQ(column(report, "results", "size_bytes").size(), 7u);
    EXPECT_EQ(report.at("tables").contains("pair_matrix"), ranks > 1);
  }
}

TEST(A2aRun, SaysWhenRanksShareCores) {
  const unsigned ranks = 2 * std::thread::hardware_concurrency() + 2;
  const Json report = a2a_report(quick({"--backend", "threads", "--ranks", std::to_string(ranks),
                                        "--sizes", "16KiB", "--no-pairs"}),
                                 0);
  EXPECT_TRUE(has_finding(report, "run.oversubscribed"));
}

TEST(A2aRun, KnowsEveryPattern) {
  TempDir folder;
  write_file(folder / "m.txt", "0 3 1\n1 0 1\n2 2 0\n");
  const Json uneven =
      a2a_report(quick({"--ranks", "3", "--sizes", "96KiB", "--pattern", "matrix", "--matrix",
                        (folder / "m.txt").string(), "--check", "every", "--no-pairs"}),
                 0);
  EXPECT_EQ(column(uneven, "results", "size_bytes").at(0), 96 * 1024);
  a2a_report(quick({"--ranks", "4", "--sizes", "64KiB", "--pattern", "zipf", "--zipf-s", "1.3",
                    "--no-pairs"}),
             0);
  const std::string trace = (folder / "trace.safetensors").string();
  const ProcessResult made = run_moe_skew({"synth", "--to", trace, "--experts", "16", "--top-k",
                                           "2", "--tokens", "512", "--layers", "1", "-q"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  a2a_report(quick({"--ranks", "4", "--sizes", "64KiB", "--pattern", "trace", "--trace", trace,
                    "--no-pairs"}),
             0);
  // A trace brings its own experts: 16 here, not the 256 of the default.
  const Json moe = a2a_report(quick({"--ranks", "4", "--sizes", "4KiB", "--no-pairs", "--tokens",
                                     "256", "--hidden", "64", "--trace", trace}),
                              0);
  EXPECT_EQ(column(moe, "moe", "bytes_logical").at(1), 4 * 256 * 2 * 128);
  EXPECT_TRUE(has_finding(moe, "trace.short"));
}

TEST(A2aRun, CountsLogicalAndWireBytesOfDispatchAndCombine) {
  const Json report =
      a2a_report(quick({"--ranks", "4", "--ranks-per-node", "2", "--sizes", "4KiB", "--no-pairs",
                        "--tokens", "64", "--hidden", "256", "--top-k", "4", "--experts", "16",
                        "--compute", "1ms", "--chunks", "1,2"}),
                 0);
  const std::vector<Json> schedules = column(report, "moe", "schedule");
  const std::vector<Json> logical = column(report, "moe", "bytes_logical");
  const std::vector<Json> inter = column(report, "moe", "bytes_wire_inter");
  ASSERT_EQ(schedules.size(), 4u);
  EXPECT_EQ(schedules.at(2), "node_deduplicated");
  // 256 elements of fp8 and two scales are 264 bytes, moved as 272.
  EXPECT_EQ(logical.at(0), 4 * 64 * 4 * 272);
  EXPECT_EQ(logical.at(1), 4 * 64 * 4 * 512);
  EXPECT_EQ(logical.at(2), logical.at(0));
  EXPECT_LT(inter.at(2).get<double>(), inter.at(0).get<double>());
  for (const Json& wrong : column(report, "moe", "wrong_elements")) EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(report.at("metrics").contains("gather_scatter_s"));
  EXPECT_GE(value_of(report, "overlap_idle_ratio"), 0.0);
  EXPECT_GT(value_of(report, "comm_share_ratio"), 0.0);
}

TEST(A2aRun, EndsWithSixAndThePairWhenDataIsWrong) {
  const Json report = a2a_report(
      quick({"--ranks", "3", "--sizes", "4KiB,8KiB", "--inject", "corrupt:2", "--no-pairs"}), 6);
  EXPECT_THAT(message_of(report, "data.corrupt"), HasSubstr("to rank 2"));
  EXPECT_FALSE(report.at("validity").at("valid").get<bool>());
}

TEST(A2aRun, EndsWithFiveAndThePairsWhenARankHangs) {
  const Json report = a2a_report(quick({"--ranks", "3", "--sizes", "4KiB,8KiB,16KiB", "--inject",
                                        "hang:1@20", "--time-limit", "1500ms", "--no-pairs"}),
                                 5);
  EXPECT_THAT(message_of(report, "run.stuck"), HasSubstr("rank 1 (host"));
  EXPECT_TRUE(report.at("validity").at("partial").get<bool>());
  EXPECT_EQ(column(report, "results", "size_bytes").size(), 1u);
}

TEST(A2aRun, JudgesAgainstACeilingAndRefusesGatesThatMeanNothing) {
  const std::vector<std::string> base =
      quick({"--ranks", "2", "--sizes", "64MiB", "--no-pairs", "--gpu", "h100_sxm"});
  std::vector<std::string> gated = base;
  gated.insert(gated.end(), {"--min-of-bound", "0.8", "--require", "a2a.bandwidth"});
  const Json report = a2a_report(gated, 1);
  EXPECT_TRUE(has_finding(report, "gate.below"));
  EXPECT_TRUE(has_finding(report, "a2a.quick_limit"));
  EXPECT_LT(value_of(report, "a2a_busbw_ceiling_ratio"), 0.8);
  EXPECT_THAT(a2a_error(quick({"--ranks", "2", "--sizes", "4KiB", "--no-pairs", "-q",
                               "--min-of-bound", "0.8"}),
                        2),
              HasSubstr("--gpu"));
}

TEST(A2aRun, RefusesWhatCannotWorkInOneLine) {
  EXPECT_THAT(a2a_error({"run", "--sizes", "2KiB..1KiB"}, 2), HasSubstr("--sizes"));
  EXPECT_THAT(a2a_error({"run", "--pattern", "matrix"}, 2), HasSubstr("--matrix"));
  EXPECT_THAT(a2a_error({"run", "--inject", "kill:0", "--ranks", "2"}, 2), HasSubstr("--inject"));
  // Before anything is measured, or this would take a while.
  EXPECT_THAT(
      a2a_error({"run", "--ranks", "2", "--size-time", "1000s", "-q", "--topology", "none"}, 3),
      HasSubstr("none"));
  EXPECT_THAT(
      a2a_error(
          {"run", "--ranks", "2", "--size-time", "1000s", "-q", "--output", "/nowhere/x.json"}, 2),
      HasSubstr("/nowhere"));
  EXPECT_THAT(a2a_error({"run", "--ranks", "3", "--sizes", "4KiB", "--tokens", "8", "-q"}, 2),
              HasSubstr("divide"));
  EXPECT_THAT(
      a2a_error({"run", "--pattern", "matrix", "--matrix", "/nowhere.txt", "--ranks", "2", "-q"},
                3),
      HasSubstr("/nowhere.txt"));
}

TEST(A2aRun, NullBackendReportsTheToolItself) {
  const Json report =
      a2a_report({"run", "--backend", "null", "--ranks", "8", "--sizes", "1GiB"}, 0);
  EXPECT_TRUE(report.at("metrics").contains("iteration_overhead_s"));
  EXPECT_FALSE(report.at("metrics").contains("a2a_busbw_bytes_per_s"));
}

TEST(A2aRun, KeepsWhatItHasWhenItIsStopped) {
  ProcessOptions options;
  options.interrupt_after_s = 1.0;
  const ProcessResult result =
      run_moe_a2a({"run", "--ranks", "2", "--sizes", "1KiB..64KiB", "--size-time", "30s",
                   "--iterations", "1000000", "--format", "json", "-q"},
                  options);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_LT(result.wall_s, 20.0);
  EXPECT_TRUE(checked_report(result).at("validity").at("partial").get<bool>());
}

TEST(A2aRunMpi, VerifiesEveryByteOfEveryIteration) {
  if (!has_mpi()) GTEST_SKIP() << "this build has no MPI";
  for (const int ranks : {1, 2, 4, 8}) {
    const ProcessResult result =
        run_under_mpi(ranks, quick({"--sizes", "1KiB..64KiB", "--check", "every", "--backend",
                                    "mpi", "--format", "json", "-q", "--pair-size", "64KiB"}));
    if (result.exit_code == kNotFound) GTEST_SKIP() << "no mpirun on this machine";
    ASSERT_EQ(result.exit_code, 0) << result.err;
    expect_verified(checked_report(result), ranks);
  }
}

TEST(A2aRunMpi, EveryProcessEndsWithTheCodeOfTheReport) {
  if (!has_mpi()) GTEST_SKIP() << "this build has no MPI";
  const ProcessResult corrupt = run_under_mpi(2, quick({"--sizes", "4KiB", "--inject", "corrupt:1",
                                                        "--no-pairs", "--format", "json", "-q"}));
  if (corrupt.exit_code == kNotFound) GTEST_SKIP() << "no mpirun on this machine";
  EXPECT_EQ(corrupt.exit_code, 6) << corrupt.err;
  const ProcessResult alone = run_under_mpi(2, {"run", "--backend", "threads", "-q"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("each would measure itself alone"));
  const ProcessResult bad_input = run_under_mpi(
      2, quick({"--pattern", "matrix", "--matrix", "/nowhere.txt", "-q", "--no-pairs"}));
  EXPECT_EQ(bad_input.exit_code, 3) << bad_input.err;
  const ProcessResult bad_output =
      run_under_mpi(2, {"run", "--size-time", "1000s", "-q", "--output", "/nowhere/x.json"});
  EXPECT_EQ(bad_output.exit_code, 2) << bad_output.err;
}

class A2aHosts : public ::testing::Test {
 protected:
  // The report and rank 0's exit code; skips the test when this machine cannot have such hosts.
  void run(const std::vector<std::string>& args) {
    if (!has_mpi()) GTEST_SKIP() << "this build has no MPI";
    std::vector<std::string> argv = {std::string(MOE_SOURCE_DIR) + "/tests/tools/a2a_hosts.sh",
                                     std::string(MOE_BINARY_DIR) + "/bin/moe-a2a",
                                     folder_.path().string()};
    argv.insert(argv.end(), args.begin(), args.end());
    ProcessOptions options;
    options.environment = {"ASAN_OPTIONS=detect_leaks=0"};
    options.timeout_s = 150.0;
    result_ = run_process(argv, options);
    if (result_.exit_code == 77) GTEST_SKIP() << result_.out;
    report_ = checked_report(read_file(folder_ / "report.json"));
    rank_0_ = std::stoi(read_file(folder_ / "rank0.exit"));
  }
  TempDir folder_;
  ProcessResult result_;
  Json report_;
  int rank_0_ = -1;
};

TEST_F(A2aHosts, NameTheSlowHostAndLink) {
  run({"--sizes", "64KiB,128KiB", "--iterations", "10", "--warm-up", "2", "--pair-size", "64KiB",
       "--min-pair-share", "0.5"});
  if (IsSkipped()) return;
  EXPECT_EQ(result_.exit_code, 1) << result_.err;
  EXPECT_EQ(rank_0_, 1);
  EXPECT_EQ(value_of(report_, "num_nodes"), 4);
  EXPECT_THAT(message_of(report_, "pairs.slow_host"), HasSubstr("host node3, link eth0"));
  EXPECT_EQ(finding_of(report_, "pairs.slow_host")->at("evidence").at("host"), "node3");
}

TEST_F(A2aHosts, KeepPartialResultsWhenARankIsKilled) {
  run({"--sizes", "4KiB,8KiB,16KiB,32KiB", "--iterations", "10", "--warm-up", "2", "--no-pairs",
       "--inject", "kill:2@30"});
  if (IsSkipped()) return;
  EXPECT_NE(result_.exit_code, 0);
  EXPECT_EQ(rank_0_, 5);
  EXPECT_EQ(report_.at("run").at("exit_code"), 5);
  EXPECT_TRUE(report_.at("validity").at("partial").get<bool>());
  EXPECT_EQ(column(report_, "results", "size_bytes").size(), 2u);
  // Open MPI may not come back from the lost connection: then it cannot be asked for the rank.
  if (finding_of(report_, "run.rank_lost") != nullptr) {
    EXPECT_THAT(message_of(report_, "run.rank_lost"), HasSubstr("rank 2 (host node3"));
  } else {
    EXPECT_THAT(message_of(report_, "run.stuck"), HasSubstr("a call of the MPI library"));
  }
}

TEST_F(A2aHosts, EndWithSixWhenABufferIsCorrupted) {
  run({"--sizes", "4KiB", "--iterations", "10", "--no-pairs", "--inject", "corrupt:1"});
  if (IsSkipped()) return;
  EXPECT_EQ(result_.exit_code, 6) << result_.err;
  EXPECT_THAT(message_of(report_, "data.corrupt"), HasSubstr("to rank 1 (host node2"));
}

}  // namespace
}  // namespace moe::test
