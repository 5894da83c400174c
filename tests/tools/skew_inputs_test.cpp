// moe-skew inspect, prune, convert and synth, through the real binary.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

std::string recorded(const std::string& name) {
  return std::string(MOE_SOURCE_DIR "/tests/data/routing/") + name;
}

std::string domain_trace(const std::string& domain) {
  return checkpoint("tinymoe-qwen3") + "/routing-" + domain + ".safetensors";
}

// The figures of this file are those of expected_metrics.json.
TEST(SkewInspect, OfRecordedCountsGivesTheReferenceFigures) {
  const Json report = skew_report(
      {"inspect", recorded("sglang_dsv3/prefill_in1024.json"), "--gpus", "32", "--nodes", "4"}, 0);
  EXPECT_NEAR(value_of(report, "expert_max_over_mean_mean"), 6.532324, 1e-6);
  EXPECT_NEAR(value_of(report, "expert_gini_mean"), 0.374326, 1e-6);
  EXPECT_NEAR(value_of(report, "gpu_balancedness_mean"), 0.459532, 1e-6);
  EXPECT_NEAR(value_of(report, "gpu_balancedness_worst"), 0.246258, 1e-6);
  EXPECT_NEAR(value_of(report, "gpu_balancedness_of_sums"), 0.436783, 1e-6);
  EXPECT_EQ(value_of(report, "moe_layers_count"), 58.0);
  EXPECT_EQ(report.at("tables").at("nodes").at("rows").size(), 4U);
  EXPECT_EQ(report.at("tables").at("experts").at("rows").size(), 58U * 256U);
  EXPECT_TRUE(has_finding(report, "input.layers.zero"));
  EXPECT_TRUE(has_finding(report, "input.counts_only"));
  EXPECT_TRUE(report.at("metrics").at("routed_tokens_count").at("value").is_null());
  EXPECT_EQ(acceptance_of(report, "skew.expert_load"), "not_measured");
}

// Counts without top_k do not tell tokens; with it the item is judged.
TEST(SkewInspect, EvaluatesTheChecklistFromRecordedRouting) {
  const Json report = skew_report(
      {"inspect", recorded("sglang_dsv3/prefill_in1024.json"), "--gpus", "32", "--top-k", "8"}, 0);
  EXPECT_GT(value_of(report, "routed_tokens_count"), 10000.0);
  EXPECT_EQ(acceptance_of(report, "skew.expert_load"), "fail");
  const ProcessResult gated =
      run_moe_skew({"inspect", recorded("sglang_dsv3/prefill_in1024.json"), "--top-k", "8",
                    "--require", "skew.expert_load", "-q", "--format", "none"});
  EXPECT_EQ(gated.exit_code, 1);
}

TEST(SkewInspect, OfTokenRowsGivesWindowsDropsAndReuse) {
  const Json report = skew_report({"inspect", recorded("esft/law_topk.npy"), "--gpus", "8",
                                   "--window", "256tokens", "--drop-partial"},
                                  0);
  EXPECT_NEAR(value_of(report, "reuse_of_previous_token"), 0.29043, 1e-6);
  EXPECT_NEAR(value_of(report, "gpus_per_token_layer"), 4.557502, 1e-6);
  EXPECT_EQ(report.at("tables").at("windows").at("rows").size(), 7U);
  const Json& drops = report.at("tables").at("drops").at("rows");
  EXPECT_EQ(drops.at(0).at(2), 67409);
  EXPECT_EQ(drops.at(3).at(2), 38876);
  EXPECT_TRUE(has_finding(report, "input.no_time"));
}

TEST(SkewInspect, RefusesADumpWithoutRouting) {
  const Json report =
      skew_report({"inspect", recorded("vllm_routed_experts_empty/english_0.npy")}, 7);
  EXPECT_FALSE(report.at("validity").at("valid").get<bool>());
  EXPECT_TRUE(has_finding(report, "input.ids.duplicate"));
}

TEST(SkewInspect, OfNothingRoutedIsInvalid) {
  const TempDir dir;
  write_file(dir / "z.json", "[[0, 0], [0, 0]]");
  const Json report = skew_report({"inspect", (dir / "z.json").string()}, 7);
  EXPECT_TRUE(has_finding(report, "input.counts.none"));
}

TEST(SkewInspect, OfOneExpertTakingAllAndUnevenGpusIsRight) {
  const TempDir dir;
  write_file(dir / "o.json", "[[0, 0, 1000000000, 0, 0, 0, 0]]");
  const Json report = skew_report({"inspect", (dir / "o.json").string(), "--gpus", "3"}, 0);
  EXPECT_DOUBLE_EQ(value_of(report, "expert_max_over_mean_max"), 7.0);
  EXPECT_NEAR(value_of(report, "gpu_balancedness_worst"), 1.0 / 3.0, 1e-12);
  EXPECT_EQ(value_of(report, "idle_experts_count"), 6.0);
  EXPECT_TRUE(report.at("metrics").at("expert_max_over_min_max").at("value").is_null());
}

TEST(SkewInspect, MistakesAreOneLineEach) {
  const ProcessResult missing = run_moe_skew({"inspect", "/nowhere.pt"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_EQ(count_lines(missing.err), 1);
  const ProcessResult window =
      run_moe_skew({"inspect", recorded("esft/law_topk.npy"), "--window", "5m"});
  EXPECT_EQ(window.exit_code, 3);
  EXPECT_THAT(window.err, HasSubstr("time stamps"));
  const ProcessResult word =
      run_moe_skew({"inspect", recorded("esft/law_topk.npy"), "--window", "often"});
  EXPECT_EQ(word.exit_code, 2);
  const ProcessResult gpus =
      run_moe_skew({"inspect", recorded("esft/law_topk.npy"), "--gpus", "65"});
  EXPECT_EQ(gpus.exit_code, 2);
  EXPECT_EQ(count_lines(gpus.err), 1);
}

TEST(SkewPrune, JudgesOtherTraffic) {
  const TempDir dir;
  const std::string list = (dir / "list.json").string();
  const Json report =
      skew_report({"prune", domain_trace("english"), "--judge", domain_trace("python"), "--judge",
                   domain_trace("c"), "--list", list},
                  0);
  EXPECT_EQ(value_of(report, "pruning_profile_tokens_count"), 8192.0);
  const double here = value_of(report, "pruned_50_percent_lost_mass_ratio");
  EXPECT_LT(value_of(report, "pruned_25_percent_lost_mass_ratio"), here);
  EXPECT_LT(here, value_of(report, "pruned_50_percent_lost_mass_elsewhere_ratio"));
  EXPECT_EQ(acceptance_of(report, "experts.pruned"), "not_measured");
  const Json experts = json::parse_file(list);
  EXPECT_EQ(experts.at("50").size(), 6U);
  EXPECT_EQ(experts.at("50").at("0").size(), 8U);
  EXPECT_EQ(experts.at("75").at("5").size(), 12U);  // of 16, four stay
}

TEST(SkewConvert, WritesWhatInspectReadsAlike) {
  const TempDir dir;
  const std::string trace = (dir / "t.safetensors").string();
  const ProcessResult result =
      run_moe_skew({"convert", recorded("esft/summary_topk.npy"), "--to", trace, "-q"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json before = skew_report({"inspect", recorded("esft/summary_topk.npy")}, 0);
  const Json after = skew_report({"inspect", trace}, 0);
  for (const char* metric :
       {"expert_gini_mean", "reuse_of_previous_token", "routed_tokens_count"}) {
    EXPECT_EQ(value_of(before, metric), value_of(after, metric)) << metric;
  }
  const ProcessResult counts =
      run_moe_skew({"convert", recorded("sglang_dsv3/prefill_in1024.json"), "--to", trace});
  EXPECT_EQ(counts.exit_code, 3);
  EXPECT_THAT(counts.err, HasSubstr("counts only"));
}

TEST(SkewConvert, RefusesWhatIsNoRoutingUnlessForced) {
  const TempDir dir;
  const std::string empty = recorded("vllm_routed_experts_empty/english_0.npy");
  const std::string to = (dir / "o.csv").string();
  EXPECT_EQ(run_moe_skew({"convert", empty, "--form", "csv", "--to", to}).exit_code, 3);
  EXPECT_EQ(run_moe_skew({"convert", empty, "--form", "csv", "--to", to, "--force"}).exit_code, 0);
}

TEST(SkewSynth, WritesATraceAndItsTruth) {
  const TempDir dir;
  const std::string trace = (dir / "t.safetensors").string();
  const std::string truth = (dir / "truth.json").string();
  const Json report =
      skew_report({"synth", "--kind", "burst", "--tokens", "20000", "--layers", "2", "--step",
                   "50ms", "--event", "2s", "--ramp", "5s", "--to", trace, "--truth", truth},
                  0);
  EXPECT_NEAR(value_of(report, "synthetic_duration_s"), 15.65, 1e-9);
  const Json known = json::parse_file(truth);
  EXPECT_EQ(known.at("burst").at("experts").size(), 2U);
  EXPECT_EQ(known.at("burst").at("peak_s"), 7.0);
  const Json seen = skew_report({"inspect", trace, "--window", "1s"}, 0);
  EXPECT_EQ(seen.at("tables").at("windows").at("rows").size(), 16U);
  EXPECT_FALSE(has_finding(seen, "input.no_time"));
  const ProcessResult late =
      run_moe_skew({"synth", "--kind", "switch", "--event", "1000s", "--to", trace});
  EXPECT_EQ(late.exit_code, 2);
}

TEST(SkewInspect, SpeaksToPipesAndPeople) {
  ProcessOptions early;
  early.closes_stdout_early = true;
  EXPECT_EQ(run_moe_skew({"inspect", recorded("esft/law_topk.npy")}, early).exit_code, 0);
  const ProcessResult help = run_moe_skew({"inspect", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--window"));
  EXPECT_THAT(run_moe_skew({"inspect", recorded("esft/law_topk.npy")}).out,
              HasSubstr("Load of the experts by layer"));
}

}  // namespace
}  // namespace moe::test
