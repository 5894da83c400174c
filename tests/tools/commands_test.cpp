// The other commands of moe-bench, through the real binary.

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "tests/support/sparse_checkpoint.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Verify, PassesOnAGoldenCheckpoint) {
  const Json report = bench_report({"verify", checkpoint("qwen3moe-a")}, 0);
  EXPECT_GT(value_of(report, "verify_tensors_compared"), 20.0);
  EXPECT_EQ(value_of(report, "verify_tensors_wrong"), 0.0);
}

TEST(Verify, NamesTheFirstStageThatDiffers) {
  // The golden file of a sibling with other rotation scaling: same shapes, other values.
  const Json report = bench_report({"verify", checkpoint("qwen3moe-a"), "--golden",
                                    checkpoint("qwen3moe-yarn") + "/golden.safetensors"},
                                   6);
  EXPECT_FALSE(report.at("validity").at("valid").get<bool>());
  const Json finding = report.at("findings").at(0);
  EXPECT_EQ(finding.at("code"), "verify.difference");
  EXPECT_THAT(finding.at("message").get<std::string>(), HasSubstr("first difference: prompt"));
}

TEST(Verify, RefusesAMissingOrForeignGoldenFile) {
  const ProcessResult missing =
      run_moe_bench({"verify", checkpoint("qwen3moe-a"), "--golden", "/nowhere.safetensors"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_EQ(count_lines(missing.err), 1);
  const ProcessResult foreign =
      run_moe_bench({"verify", checkpoint("qwen3moe-a"), "--golden",
                     checkpoint("tinymoe-qwen3") + "/golden.safetensors"});
  EXPECT_EQ(foreign.exit_code, 3) << foreign.err;
  EXPECT_EQ(count_lines(foreign.err), 1);
}

TEST(Generate, WritesTheRecordedContinuations) {
  const Json expected = json::parse_file(checkpoint("eval-text/expected.json"));
  const Json& samples = expected.at("generations").at("tinymoe-qwen3");
  ASSERT_FALSE(samples.empty());
  for (const Json& sample : samples) {
    const ProcessResult result =
        run_moe_bench({"generate", checkpoint("tinymoe-qwen3"), "--prompt",
                       sample.at("prompt").get<std::string>(), "-n", "64", "--ignore-eos", "-q"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, sample.at("text").get<std::string>() + "\n");
  }
}

TEST(Generate, TakesTokenIds) {
  const ProcessResult result = run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids",
                                              "5,6,7", "-n", "3", "--ignore-eos", "-q"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), ','), 2);
}

TEST(Generate, WritesLogitsThatVerifyReads) {
  const TempDir dir;
  // More tokens than are run at once.
  std::string ids = "7";
  for (int i = 0; i < 40; ++i) ids += "," + std::to_string((i * 37) % 200);
  const auto dump = [&](const std::string& name, const std::string& quantize) {
    std::string file = (dir / name).string();
    const ProcessResult result =
        run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids", ids, "-n", "1",
                       "--ignore-eos", "--quantize", quantize, "--dump-logits", file, "-q"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return file;
  };
  const std::string plain = dump("plain.safetensors", "none");
  const Json report = bench_report({"verify", checkpoint("qwen3moe-a"), "--golden", plain}, 0);
  EXPECT_EQ(value_of(report, "verify_tensors_compared"), 1.0);
  // Rounded weights have other logits, which verify sees.
  const std::string rounded = dump("rounded.safetensors", "int4");
  (void)bench_report({"verify", checkpoint("qwen3moe-a"), "--golden", rounded}, 6);
}

TEST(Generate, LogitsThatCannotBeWrittenAreOneLine) {
  const ProcessResult result =
      run_moe_bench({"generate", checkpoint("qwen3moe-a"), "--prompt-ids", "5,6,7", "--dump-logits",
                     "/no-such-folder/logits.safetensors", "-q"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count_lines(result.err), 1);
  EXPECT_THAT(result.err, HasSubstr("--dump-logits /no-such-folder/logits.safetensors"));
}

TEST(Generate, IsRepeatableForASeed) {
  const auto text = [](const std::string& seed) {
    return run_moe_bench({"generate", checkpoint("tinymoe-qwen3"), "-p", "The", "-n", "24",
                          "--temperature", "1", "--top-k", "50", "--top-p", "0.9", "--seed", seed,
                          "-q"})
        .out;
  };
  EXPECT_EQ(text("1"), text("1"));
  EXPECT_NE(text("1"), text("2"));
}

TEST(Generate, RefusesAPromptLongerThanTheContext) {
  std::string prompt;
  for (int i = 0; i < 3000; ++i) prompt += "word ";
  const ProcessResult result =
      run_moe_bench({"generate", checkpoint("tinymoe-qwen3"), "--prompt", prompt});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count_lines(result.err), 1);
  EXPECT_THAT(result.err, HasSubstr("1024"));
  EXPECT_THAT(result.out, IsEmpty());
}

TEST(Generate, NeedsATokenizerForText) {
  const ProcessResult result =
      run_moe_bench({"generate", MOE_SOURCE_DIR "/tests/data/bad-checkpoints/control-qwen3",
                     "--prompt", "Hello"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("tokenizer.json"));
}

TEST(Generate, RefusesTooLittleMemory) {
  const ProcessResult result =
      run_moe_bench({"generate", checkpoint("tinymoe-qwen3"), "-p", "The", "--max-memory", "1MB"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count_lines(result.err), 1);
  EXPECT_THAT(result.err, HasSubstr("not enough memory"));
}

TEST(Eval, ScoresAsRecorded) {
  const Json expected = json::parse_file(checkpoint("eval-text/expected.json"))
                            .at("models")
                            .at("tinymoe-qwen3")
                            .at("base_top4")
                            .at("c");
  const Json report = bench_report({"eval", checkpoint("tinymoe-qwen3"), "--text", "c"}, 0);
  const auto wanted = [&](const char* key) { return expected.at(key).get<double>(); };
  EXPECT_EQ(value_of(report, "scored_tokens"), wanted("scored_tokens"));
  EXPECT_EQ(value_of(report, "scored_bytes"), wanted("scored_bytes"));
  EXPECT_NEAR(value_of(report, "perplexity"), wanted("perplexity"), 1e-3 * wanted("perplexity"));
  EXPECT_NEAR(value_of(report, "bits_per_byte"), wanted("bits_per_byte"), 1e-3);
}

TEST(Eval, RefusesWhatIsNoText) {
  const TempDir dir;
  write_file(dir / "empty.txt", "");
  write_file(dir / "latin.txt", "caf\xe9");
  for (const char* name : {"empty.txt", "latin.txt", "missing.txt"}) {
    const ProcessResult result =
        run_moe_bench({"eval", checkpoint("tinymoe-qwen3"), "--text", (dir / name).string()});
    EXPECT_EQ(result.exit_code, 3) << name;
    EXPECT_EQ(count_lines(result.err), 1);
    EXPECT_THAT(result.err, HasSubstr(name));
  }
}

TEST(Inspect, CountsTheTrainedCheckpoint) {
  const Json report = bench_report({"inspect", checkpoint("tinymoe-qwen3")}, 0);
  EXPECT_EQ(value_of(report, "parameters_total"), 8082240.0);
  EXPECT_EQ(report.at("subject").at("num_experts"), 16);
  EXPECT_THAT(report.at("subject").at("router").get<std::string>(), HasSubstr("top 4"));
}

TEST(Inspect, FindsCheckpointsThatComeWithTheToolkitByName) {
  EXPECT_EQ(run_moe_bench({"inspect", "tinymoe-qwen3", "-q"}).exit_code, 0);
  const ProcessResult result = run_moe_bench({"inspect", "no-such-checkpoint"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.err), 1);
  EXPECT_THAT(result.err, HasSubstr("no-such-checkpoint"));
}

// 673 GB of holes: reading more than headers would take minutes, not fit in memory, and the test.
TEST(Inspect, ReadsHeadersAloneOfACheckpointLargerThanAnyDiskHere) {
  const TempDir dir;
  const auto written = moe::test::write_sparse_checkpoint(
      MOE_SOURCE_DIR "/scenarios/models/DeepSeek-V3.json", dir / "model");
  ASSERT_GT(written.file_bytes, 670'000'000'000);
  const Json report = bench_report({"inspect", (dir / "model").string()}, 0);
  EXPECT_EQ(value_of(report, "parameters_total"), 671026419200.0);
  EXPECT_EQ(value_of(report, "weight_file_bytes"), static_cast<double>(written.file_bytes));
  EXPECT_EQ(report.at("subject").at("num_moe_layers"), 58);
}

TEST(Inspect, ListsWhatIsIgnored) {
  const Json report = bench_report({"inspect", checkpoint("dsv3-mtp")}, 0);
  EXPECT_FALSE(report.at("tables").at("ignored_tensors").at("rows").empty());
}

TEST(Synth, MakesACheckpointThatRuns) {
  const TempDir dir;
  const std::string out = (dir / "model").string();
  const Json report = bench_report({"synth", checkpoint("qwen3moe-a") + "/config.json", "--out",
                                    out, "--router-skew", "1", "--shard-size", "100kB"},
                                   0);
  EXPECT_GT(value_of(report, "shards_written"), 1.0);
  const Json inspected = bench_report({"inspect", out}, 0);
  EXPECT_EQ(value_of(inspected, "parameters_total"), value_of(report, "parameters_written"));
  const ProcessResult ran = run_moe_bench({"run", out, "--batch", "2", "--prompt-tokens", "16",
                                           "--output-tokens", "4", "--repeat", "1", "--no-limits"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST(Synth, CanLeaveLayersOut) {
  const TempDir dir;
  const std::string out = (dir / "model").string();
  (void)bench_report({"synth", checkpoint("qwen3moe-a"), "--out", out, "--layers", "1"}, 0);
  EXPECT_EQ(bench_report({"inspect", out}, 0).at("subject").at("num_hidden_layers"), 1);
}

TEST(Synth, WritesNothingIntoAFolderThatIsNotEmpty) {
  const TempDir dir;
  write_file(dir / "mine.txt", "mine");
  const ProcessResult result =
      run_moe_bench({"synth", checkpoint("qwen3moe-a"), "--out", dir.path().string()});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(count_lines(result.err), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Limits, MeasuresEveryLevelOfTheMachine) {
  const Json report = bench_report({"limits", "--time-per-figure", "2ms", "--threads", "2"}, 0);
  for (const std::string threads : {".threads_1", ".threads_2"}) {
    EXPECT_GT(value_of(report, "dram_read_bytes_per_s" + threads), 1e8);
    for (const std::string weights : {"f32", "f16", "bf16", "fp8", "mxfp4", "int8", "int4"}) {
      EXPECT_GT(value_of(report, "peak_flops_per_s.scalar." + weights + ".f32" + threads), 1e5);
    }
  }
  EXPECT_FALSE(report.at("tables").at("limits_peak").at("rows").empty());
}

// The index of a table's column.
std::size_t column_of(const Json& table, const std::string& name) {
  std::size_t idx = 0;
  for (const Json& column : table.at("columns")) {
    if (column.at("name") == name) return idx;
    ++idx;
  }
  ADD_FAILURE() << "no column " << name;
  return 0;
}

TEST(Limits, EverySampleHasAStateAndEveryProcessorItsReadings) {
  const Json report = bench_report({"limits", "--time-per-figure", "1ms", "--threads", "1"}, 0);
  for (const char* name : {"limits_bandwidth", "limits_peak"}) {
    const Json& table = report.at("tables").at(name);
    const std::size_t samples = column_of(table, "samples");
    const std::size_t free = column_of(table, "free_samples");
    const std::size_t shared = column_of(table, "shared_samples");
    for (const Json& row : table.at("rows")) {
      EXPECT_GE(row.at(samples).get<int>(), 3);
      EXPECT_LE(row.at(free).get<int>() + row.at(shared).get<int>(), row.at(samples).get<int>());
    }
  }
#if defined(__x86_64__)
  const Json& cores = report.at("tables").at("core_state");
  ASSERT_FALSE(cores.at("rows").empty());
  for (const Json& row : cores.at("rows")) {
    EXPECT_LE(row.at(column_of(cores, "narrowest")), row.at(column_of(cores, "widest")));
    EXPECT_LE(row.at(column_of(cores, "widest")).get<double>(), 4.2);
    EXPECT_LE(row.at(column_of(cores, "shared_readings")), row.at(column_of(cores, "readings")));
  }
#endif
  EXPECT_TRUE(has_finding(report, "machine.core_state"));
}

}  // namespace
}  // namespace moe::test
