// Goal: a benchmark run leaves one valid report, whatever happens to it. Method: the real binary on
// small checkpoints, its JSON against the schema.

#include <algorithm>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/routing/trace.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> quick_run(const std::vector<std::string>& more) {
  std::vector<std::string> args = {
      "run",        checkpoint("qwen3moe-a"), "--batch", "1,3",      "--prompt-tokens",
      "8,20",       "--output-tokens",        "5",       "--repeat", "3",
      "--no-limits"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Run, JudgesTheConfiguredBatchByTheSweep) {
  const std::vector<std::string> args = {"run",
                                         checkpoint("qwen3moe-a"),
                                         "--batch",
                                         "1,2,8",
                                         "--prompt-tokens",
                                         "8",
                                         "--output-tokens",
                                         "5",
                                         "--repeat",
                                         "3",
                                         "--no-limits",
                                         "--format",
                                         "json"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = args;
    all.insert(all.end(), more.begin(), more.end());
    return run_moe_bench(all);
  };
  const Json judged = checked_report(with({"--configured-batch", "1"}));
  EXPECT_EQ(value_of(judged, "batch_sweep_points_count"), 3.0);
  EXPECT_GT(value_of(judged, "batch_throughput_ratio"), 0.0);
  EXPECT_LE(value_of(judged, "batch_throughput_ratio"), 1.0);
  EXPECT_NE(acceptance_of(judged, "batch.tuned"), "not_measured");
  const Json impossible = checked_report(with({"--configured-batch", "1", "--target-ttft", "1us"}));
  EXPECT_TRUE(impossible.at("metrics").at("batch_throughput_ratio").at("value").is_null());
  EXPECT_EQ(acceptance_of(impossible, "batch.tuned"), "not_measured");
  EXPECT_EQ(acceptance_of(checked_report(with({})), "batch.tuned"), "not_measured");
  EXPECT_EQ(with({"--configured-batch", "5"}).exit_code, 2);
}

TEST(Run, OfAnMoeFamilyWithEveryLayerDenseHasNoFiguresOfExperts) {
  const TempDir dir;
  Json config = Json::parse(read_file(checkpoint("qwen3moe-a") + "/config.json"));
  config["mlp_only_layers"] = Json::array();
  for (int layer = 0; layer < config.at("num_hidden_layers").get<int>(); ++layer) {
    config["mlp_only_layers"].push_back(layer);
  }
  write_file(dir / "config.json", config.dump());
  const std::string model = (dir / "model").string();
  (void)bench_report({"synth", (dir / "config.json").string(), "--out", model});
  const Json report =
      bench_report({"run", model, "--prompts", "random", "--batch", "1,3", "--prompt-tokens", "8",
                    "--output-tokens", "4", "--repeat", "2", "--no-limits"});
  EXPECT_FALSE(report.at("tables").contains("routing_distinct_experts"));
  EXPECT_EQ(report.at("validity").at("valid"), true);
}

// LongRoPE's border at 32 tokens lies inside the output: the text runs again.
TEST(Run, AcrossTheBorderOfLongRopeIsValid) {
  const Json report =
      bench_report({"run", checkpoint("phimoe-a"), "--batch", "1,2", "--prompt-tokens", "30",
                    "--output-tokens", "8", "--repeat", "2", "--no-limits"});
  EXPECT_EQ(report.at("validity").at("valid"), true);
}

TEST(Run, MemoryIsJudgedAgainstALimitThatSomebodySet) {
  const Json limited = bench_report(quick_run({"--max-memory", "1GB"}));
  EXPECT_GT(value_of(limited, "memory_use_ratio"), 0.0);
  EXPECT_LT(value_of(limited, "memory_use_ratio"), 0.5);
  EXPECT_EQ(acceptance_of(limited, "memory.utilization"), "fail");
  EXPECT_EQ(acceptance_of(bench_report(quick_run({})), "memory.utilization"), "not_measured");
}

TEST(Run, WritesOneValidDocument) {
  const Json report = bench_report(quick_run({"--raw-samples"}));
  EXPECT_TRUE(report.at("validity").at("valid").get<bool>());
  EXPECT_FALSE(report.at("validity").at("partial").get<bool>());
  EXPECT_EQ(report.at("subject").at("kind"), "checkpoint");
  EXPECT_EQ(report.at("tables").at("latency").at("rows").size(), 4U);
  // 4 points x 3 repetitions x 5 tokens
  EXPECT_EQ(report.at("tables").at("samples").at("rows").size(), 60U);
  EXPECT_EQ(report.at("metrics").at("ttft_s").at("distribution").at("count"), 3);
  EXPECT_EQ(report.at("metrics")
                .at("itl_s.batch_3.prompt_tokens_20.output_tokens_5")
                .at("distribution")
                .at("count"),
            12);
  for (const auto& [name, metric] : report.at("metrics").items()) {
    EXPECT_THAT(metric.at("how").get<std::string>(), Not(IsEmpty())) << name;
  }
  EXPECT_TRUE(has_finding(report, "run.fixed_output_lengths"));
  EXPECT_TRUE(has_finding(report, "run.no_chat_template"));
}

// What readers see first is what a run gives today.
TEST(Run, TheExampleReportHasTheFiguresOfARun) {
  const Json example =
      checked_report(read_file(MOE_SOURCE_DIR "/reports/examples/moe-bench-run.json"));
  auto args = example.at("run").at("argv").get<std::vector<std::string>>();
  args = {args.begin() + 1, args.end()};
  // Where the example was made is not where this runs.
  args.at(1) = checkpoint("tinymoe-qwen3");
  args.insert(args.end(), {"--repeat", "2"});
  const Json report = checked_report(run_moe_bench(args));
  const auto keys = [](const Json& object) {
    std::vector<std::string> names;
    for (const auto& entry : object.items()) names.push_back(entry.key());
    return names;
  };
  for (const std::string& name : keys(report.at("metrics"))) {
    // Whether there are steps on free cores depends on the moment.
    if (name.find("_free_cores_s") != std::string::npos) continue;
    EXPECT_TRUE(example.at("metrics").contains(name)) << name;
  }
  EXPECT_EQ(keys(example.at("settings")), keys(report.at("settings")));
  EXPECT_EQ(keys(example.at("subject")), keys(report.at("subject")));
}

TEST(Run, KeepsItsOwnArithmetic) {
  const Json report = bench_report(quick_run({}));
  const std::string point = ".batch_3.prompt_tokens_20.output_tokens_5";
  const auto mean = [&](const std::string& metric) {
    return report.at("metrics").at(metric + point).at("distribution").at("mean").get<double>();
  };
  EXPECT_NEAR(mean("itl_batch_normalised_s") * 3.0, mean("tpot_s"), 1e-9);
  EXPECT_NEAR(mean("ttft_s") + 4.0 * mean("tpot_s"), mean("e2el_s"), 1e-6);
  EXPECT_NEAR(value_of(report, "input_tokens_per_s" + point),
              4.0 * value_of(report, "output_tokens_per_s" + point), 1e-6);
}

TEST(Run, GivesTheSameTokensWhateverTheThreadsAndTheChunks) {
  const auto hashes = [](const std::vector<std::string>& more) {
    std::vector<std::string> found;
    const Json notes = bench_report(quick_run(more)).at("tables").at("notes");
    for (const Json& row : notes.at("rows")) found.push_back(row.back().get<std::string>());
    return found;
  };
  const std::vector<std::string> one = hashes({"--threads", "1"});
  EXPECT_EQ(one, hashes({"--threads", "2", "--chunk-tokens", "7"}));
  EXPECT_EQ(one.size(), 4U);
}

TEST(Run, WritesEveryFormat) {
  const TempDir dir;
  std::vector<std::string> more = {"-q"};
  for (const std::string ending : {"txt", "json", "md", "csv", "html", "xml", "prom"}) {
    more.push_back("--output");
    more.push_back((dir / ("report." + ending)).string());
  }
  const ProcessResult result = run_moe_bench(quick_run(more));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_THAT(result.out, HasSubstr("Latency and throughput"));
  (void)checked_report(read_file(dir / "report.json"));
  EXPECT_THAT(read_file(dir / "report.html"), StartsWith("<!doctype html>"));
  EXPECT_THAT(read_file(dir / "report.xml"), StartsWith("<?xml"));
  EXPECT_THAT(read_file(dir / "report.prom"), HasSubstr("moekit_ttft_s"));
  EXPECT_THAT(read_file(dir / "report.md"), HasSubstr("|"));
  EXPECT_THAT(read_file(dir / "report.csv"), HasSubstr("latency"));
}

TEST(Run, ShowsPointsThatDoNotFitAsRows) {
  const Json rows =
      bench_report({"run", checkpoint("qwen3moe-a"), "--batch", "1", "--prompt-tokens", "8,1000000",
                    "--output-tokens", "3", "--repeat", "1", "--no-limits"})
          .at("tables")
          .at("notes")
          .at("rows");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows.at(0).at(4), "measured");
  EXPECT_EQ(rows.at(1).at(4), "skipped");
  EXPECT_THAT(rows.at(1).at(5).get<std::string>(), HasSubstr("context"));
}

TEST(Run, WarnsOfIdenticalPrompts) {
  const ProcessResult result =
      run_moe_bench({"run", checkpoint("tinymoe-qwen3"), "--batch", "8", "--prompt-tokens", "16",
                     "--output-tokens", "8", "--repeat", "2", "--no-limits", "--prompts", "repeat",
                     "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = checked_report(result);
  EXPECT_TRUE(has_finding(report, "prompts.identical"));
  EXPECT_THAT(result.err, HasSubstr("collapses routing"));
  // Eight requests with one prompt touch what one token touches: top_k experts.
  EXPECT_NEAR(value_of(report, "decode_distinct_experts"), 4.0, 1e-9);
}

TEST(Run, TopKChangesTheExpertsThatWork) {
  const Json report =
      bench_report({"run", checkpoint("tinymoe-qwen3"), "--batch", "1", "--prompt-tokens", "16",
                    "--output-tokens", "4", "--repeat", "1", "--no-limits", "--top-k", "2"});
  EXPECT_NEAR(value_of(report, "decode_distinct_experts"), 2.0, 1e-9);
  EXPECT_EQ(report.at("settings").at("experts_per_token"), 2);
}

TEST(Run, SaysWhereItsMemoryLies) {
  const Json report =
      bench_report({"run", checkpoint("tinymoe-qwen3"), "--batch", "4", "--prompt-tokens", "64",
                    "--output-tokens", "4", "--repeat", "2", "--no-limits"});
  const double resident_bytes = value_of(report, "memory_resident_bytes");
  EXPECT_GE(value_of(report, "memory_huge_page_bytes"), 0.0);
  EXPECT_LE(value_of(report, "memory_huge_page_bytes"), resident_bytes);
  // All weights are written when they are packed; some may have been swapped out.
  EXPECT_GT(resident_bytes, 0.0);
  const Json& settings = report.at("settings");
  ASSERT_FALSE(settings.at("numa_nodes").empty());
  // Nothing is interleaved on one node.
  if (settings.at("numa_nodes").size() == 1) {
    EXPECT_TRUE(settings.at("numa_interleaved_nodes").empty());
  }
  EXPECT_THAT(settings.at("numa_placement").get<std::string>(), HasSubstr("memory"));
}

TEST(Run, ConvertsWeightsOnRequest) {
  EXPECT_EQ(bench_report(quick_run({"--dtype", "f32"})).at("settings").at("dtype"), "f32");
}

TEST(Run, MeasuresItselfAgainstTheMachine) {
  const Json report =
      bench_report({"run", checkpoint("qwen3moe-a"), "--batch", "1", "--prompt-tokens", "8",
                    "--output-tokens", "4", "--repeat", "3"});
  EXPECT_GT(value_of(report, "decode_read_limit_ratio"), 0.0);
  EXPECT_GT(value_of(report, "prefill_flops_limit_ratio"), 0.0);
  const auto count = [&report](const char* metric) {
    return report.at("metrics").at(metric).at("distribution").at("count").get<int>();
  };
  // One share a repetition; the limits once more than that.
  EXPECT_EQ(count("prefill_roofline_ratio"), 3);
  EXPECT_EQ(count("decode_roofline_ratio"), 3);
  EXPECT_EQ(count("roofline_read_bytes_per_s"), 4);
  EXPECT_EQ(count("roofline_ops_per_s"), 4);
  for (const char* metric : {"prefill_roofline_ratio", "decode_roofline_ratio"}) {
    EXPECT_EQ(report.at("metrics").at(metric).at("kind"), "measured");
    EXPECT_GT(report.at("metrics").at(metric).at("distribution").at("min").get<double>(), 0.0);
  }
  int num_samples = 0;
  for (const Json& row : report.at("tables").at("limits_sampled").at("rows")) {
    num_samples += row.at(5).get<int>();
  }
  EXPECT_EQ(num_samples, 4);
}

TEST(Run, WithoutLimitsSaysThatTheyAreMissing) {
  const Json report = bench_report(quick_run({}));
  for (const char* metric : {"prefill_roofline_ratio", "decode_read_limit_ratio"}) {
    EXPECT_TRUE(report.at("metrics").at(metric).at("value").is_null());
    EXPECT_THAT(report.at("metrics").at(metric).at("reason").get<std::string>(),
                HasSubstr("not measured"));
  }
  EXPECT_FALSE(report.at("tables").contains("limits_sampled"));
}

TEST(Run, EverySampleCarriesTheStateOfTheCores) {
  const Json report = bench_report(quick_run({}));
  const Json& rows = report.at("tables").at("core_states").at("rows");
  ASSERT_EQ(rows.size(), 8U);  // four points, prefill and decode step
  for (const Json& row : rows) {
    const bool is_prefill = row.at(4) == "prefill";
    EXPECT_EQ(row.at(5).get<int>(), is_prefill ? 3 : 12);
    EXPECT_LE(row.at(6).get<int>() + row.at(7).get<int>(), row.at(5).get<int>());
  }
  EXPECT_LE(
      value_of(report, "core_free_samples_ratio") + value_of(report, "core_shared_samples_ratio"),
      1.0);
  EXPECT_GT(value_of(report, "core_probe_s"), 0.0);
}

TEST(Run, AForcedLevelStays) {
  const Json report = bench_report(quick_run({"--isa", "scalar"}));
  EXPECT_EQ(report.at("settings").at("isa"), "scalar");
  EXPECT_EQ(report.at("settings").at("isa_reason"), "scalar as requested");
  EXPECT_FALSE(report.at("tables").contains("kernel_choice"));
}

TEST(Run, DumpsARoutingTraceThatAgreesWithItsCounts) {
  const TempDir dir;
  const std::string file = (dir / "trace.safetensors").string();
  const Json report = bench_report(quick_run({"--dump-routing", file}));
  const routing::Trace trace = routing::read_trace(file);
  EXPECT_EQ(trace.info.model, "qwen3moe-a");
  const auto prefill = trace.expert_counts(routing::Phase::kPrefill);
  const auto decode = trace.expert_counts(routing::Phase::kDecode);
  for (const Json& row : report.at("tables").at("routing_expert_load").at("rows")) {
    const auto layer = row.at(0).get<std::size_t>();
    const auto expert = row.at(1).get<std::size_t>();
    EXPECT_EQ(prefill.at(layer).at(expert), row.at(2).get<std::int64_t>());
    EXPECT_EQ(decode.at(layer).at(expert), row.at(3).get<std::int64_t>());
  }
  EXPECT_EQ(*std::max_element(trace.request.begin(), trace.request.end()), 3 * (1 + 1 + 3 + 3) - 1);
}

TEST(Run, InterruptedLeavesAPartialValidReport) {
  const TempDir dir;
  const std::string file = (dir / "report.json").string();
  const std::string trace = (dir / "trace.safetensors").string();
  ProcessOptions options;
  options.interrupt_after_s = 4.0;
  const ProcessResult result =
      run_moe_bench({"run", checkpoint("tinymoe-qwen3"), "--batch", "1,2", "--prompt-tokens", "8",
                     "--output-tokens", "8", "--repeat", "100000", "--max-time", "1h",
                     "--no-limits", "-o", file, "--dump-routing", trace, "--format", "none"},
                    options);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const Json report = checked_report(read_file(file));
  EXPECT_TRUE(report.at("validity").at("valid").get<bool>());
  EXPECT_TRUE(report.at("validity").at("partial").get<bool>());
  EXPECT_EQ(report.at("run").at("exit_code"), 5);
  const Json rows = report.at("tables").at("notes").at("rows");
  EXPECT_EQ(rows.at(0).at(4), "measured");
  EXPECT_EQ(rows.at(1).at(4), "not run");
  EXPECT_GT(routing::read_trace(trace).num_rows(), 0);
}

TEST(Run, ASecondInterruptEndsAtOnceAndLeavesNoReport) {
  const TempDir dir;
  const std::string file = (dir / "report.json").string();
  ProcessOptions options;
  options.interrupt_after_s = 3.0;
  options.interrupts_twice = true;
  const ProcessResult result = run_moe_bench(
      {"run", checkpoint("tinymoe-qwen3"), "--batch", "32", "--prompt-tokens", "960",
       "--output-tokens", "8", "--repeat", "100000", "--max-time", "1h", "--no-limits", "-o", file},
      options);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Run, RequiredChecksThatWereNotMeasuredCloseTheGate) {
  const ProcessResult result =
      run_moe_bench(quick_run({"--require", "spec.speedup", "--format", "json"}));
  EXPECT_EQ(result.exit_code, 1);
  (void)checked_report(result);
  EXPECT_THAT(result.err, HasSubstr("spec.speedup"));
}

TEST(Run, StopsWhenTheIntervalIsNarrowOrTheTimeIsUp) {
  const Json report = bench_report({"run", checkpoint("qwen3moe-a"), "--batch", "1",
                                    "--prompt-tokens", "8", "--output-tokens", "4", "--until-ci",
                                    "0.0001%", "--max-time", "100ms", "--no-limits"});
  EXPECT_TRUE(has_finding(report, "run.not_converged"));
  EXPECT_THAT(report.at("tables").at("notes").at("rows").at(0).at(5).get<std::string>(),
              HasSubstr("time budget"));
}

}  // namespace
}  // namespace moe::test
