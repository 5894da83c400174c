// moe-skew's commands about placements, capacity, caches and alarms, through the real binary.

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lib/json/read.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

std::string data(const std::string& name) {
  return MOE_SOURCE_DIR "/tests/data/routing/" + name;
}

const std::string kPrefill = data("sglang_dsv3/prefill_in1024.json");
const std::string kLongPrefill = data("sglang_dsv3/prefill_in4096.json");
const std::string kDecode = data("sglang_dsv3/decode_in1000out1000.json");
const std::string kLaw = data("esft/law_topk.npy");
const std::string kIntent = data("esft/intent_topk.npy");

// Cell of the row whose first columns are these.
Json cell(const Json& report, const std::string& table, const std::vector<std::string>& keys,
          const std::string& column) {
  const Json& columns = report.at("tables").at(table).at("columns");
  std::size_t index = 0;
  while (columns.at(index).at("name") != column) ++index;
  for (const Json& row : report.at("tables").at(table).at("rows")) {
    bool matches = true;
    for (std::size_t i = 0; i < keys.size(); ++i) matches = matches && row.at(i) == keys[i];
    if (matches) return row.at(index);
  }
  return nullptr;
}

void expect_one_line(const std::vector<std::string>& args, int exit_code, const std::string& text) {
  EXPECT_THAT(error_line(run_moe_skew(args), exit_code), HasSubstr(text));
}

TEST(SkewPlan, WritesAPlanThatReplayJudges) {
  const TempDir dir;
  for (const char* name : {"plan.json", "plan.yaml", "plan.csv"}) {
    const std::string file = (dir / name).string();
    const Json report = skew_report({"plan", kPrefill, "--gpus", "32", "--slots", "288", "--top-k",
                                     "8", "--judge", kDecode, "--out", file});
    EXPECT_GT(value_of(report, "fitted_gpu_balancedness_ratio"), 0.993);
    EXPECT_LT(value_of(report, "placement_gpu_balancedness_ratio"), 0.85);
    EXPECT_EQ(value_of(report, "placement_colocated_replicas_count"), 0.0);
    EXPECT_EQ(acceptance_of(report, "skew.expert_load"), "fail");
    const Json replayed =
        skew_report({"replay", kPrefill, kDecode, "--plan", "p=" + file, "--gpus", "32"});
    EXPECT_NEAR(cell(replayed, "replay", {"p", "prefill_in1024"}, "mean").get<double>(),
                value_of(report, "fitted_gpu_balancedness_ratio"), 1e-9);
    EXPECT_NEAR(cell(replayed, "replay", {"p", "decode_in1000out1000"}, "mean").get<double>(),
                value_of(report, "placement_gpu_balancedness_ratio"), 1e-9);
  }
}

TEST(SkewPlan, OnePlanForThreePhases) {
  const Json report = skew_report(
      {"plan", kPrefill, kLongPrefill, kDecode, "--gpus", "32", "--slots", "288", "--top-k", "8"});
  EXPECT_GE(value_of(report, "fitted_gpu_balancedness_ratio"), 0.97);
  // Nothing was held back, so nothing is proved about other traffic.
  EXPECT_TRUE(report.at("metrics").at("placement_gpu_balancedness_ratio").at("value").is_null());
  EXPECT_EQ(acceptance_of(report, "skew.expert_load"), "not_measured");
}

TEST(SkewPlan, EplbReachesTheFiguresOnRecord) {
  const Json flat =
      skew_report({"plan", kPrefill, "--policy", "eplb", "--gpus", "32", "--slots", "288"});
  EXPECT_NEAR(value_of(flat, "fitted_gpu_balancedness_ratio"), 0.993, 5e-4);
  EXPECT_GT(value_of(flat, "placement_colocated_replicas_count"), 0.0);
  const Json grouped = skew_report({"plan", kPrefill, "--policy", "eplb", "--gpus", "32", "--slots",
                                    "288", "--nodes", "4", "--groups", "8"});
  EXPECT_NEAR(value_of(grouped, "fitted_gpu_balancedness_ratio"), 0.869, 5e-4);
}

TEST(SkewPlan, MovesNoMoreThanAsked) {
  const TempDir dir;
  const std::string from = (dir / "from.csv").string();
  (void)skew_report({"plan", kPrefill, "--gpus", "32", "--slots", "288", "--out", from});
  const Json report = skew_report({"plan", kLongPrefill, "--gpus", "32", "--slots", "288", "--from",
                                   from, "--max-moved", "20%", "--expert-bytes", "44MB", "--out",
                                   (dir / "to.csv").string()});
  EXPECT_LE(value_of(report, "placement_moved_slots_ratio"), 0.2);
  EXPECT_GE(value_of(report, "fitted_gpu_balancedness_ratio"), 0.97);
  const Json diff = skew_report({"diff-plan", from, (dir / "to.csv").string(), "--expert-bytes",
                                 "44MB", "--link-bytes-per-s", "25e9"});
  EXPECT_EQ(value_of(diff, "placement_moved_slots_count"),
            value_of(report, "placement_moved_slots_count"));
  EXPECT_GT(value_of(diff, "migration_s"), 0.0);
}

TEST(SkewPlan, AffinityStaysAboveItsBound) {
  const Json report = skew_report(
      {"plan", kLaw, "--experts", "64", "--policy", "affinity", "--gpus", "8", "--nodes", "2"});
  const double reached = value_of(report, "transition_cross_gpu_ratio");
  EXPECT_LT(reached, cell(report, "transitions", {"linear"}, "cross_gpu").get<double>());
  EXPECT_GE(reached, value_of(report, "transition_cross_gpu_bound_ratio"));
}

TEST(SkewPlan, RefusesInOneLine) {
  expect_one_line({"plan", "/nowhere.json", "--gpus", "4"}, 3, "/nowhere.json");
  expect_one_line({"plan", kPrefill}, 2, "--gpus");
  expect_one_line({"plan", kPrefill, "--gpus", "32", "--slots", "200"}, 2, "256 experts");
  expect_one_line({"plan", kPrefill, "--gpus", "3", "--policy", "eplb"}, 2, "258");
  expect_one_line({"plan", kPrefill, "--gpus", "2", "--gpu-speeds", "1,inf"}, 2, "--gpu-speeds");
  expect_one_line({"plan", kPrefill, "--gpus", "32", "--max-moved", "10%"}, 2, "--from");
  expect_one_line({"plan", kPrefill, "--gpus", "32", "--policy", "affinity"}, 3, "counts alone");
  expect_one_line({"plan", kPrefill, kLaw, "--experts", "64", "--gpus", "8"}, 3, "law_topk");
}

TEST(SkewReplay, ShowsHowFarEachPlanCarries) {
  const Json report = skew_report({"replay", kPrefill, kLongPrefill, kDecode, "--fit", "--gpus",
                                   "32", "--slots", "288", "--top-k", "8"});
  const Json& rows = report.at("tables").at("matrix").at("rows");
  EXPECT_EQ(rows.size(), 1U + 3U + 1U + 3U);  // linear, one each, all, all but one
  const auto mean = [&](const char* plan, const char* trace) {
    return cell(report, "replay", {plan, trace}, "mean").get<double>();
  };
  EXPECT_GT(mean("fit prefill_in1024", "prefill_in1024"), 0.99);
  EXPECT_LT(mean("fit prefill_in1024", "decode_in1000out1000"), 0.8);
  EXPECT_GT(mean("robust, all", "decode_in1000out1000"), 0.97);
  EXPECT_THAT(report.at("findings").dump(), HasSubstr("replay.stale"));
  // Plans that leave one trace out are judged by the worst of them, not by the best.
  double worst = 1.0;
  for (const char* trace : {"prefill_in1024", "prefill_in4096", "decode_in1000out1000"}) {
    worst = std::min(worst, mean(("robust, without " + std::string(trace)).c_str(), trace));
  }
  EXPECT_GE(value_of(report, "placement_gpu_balancedness_ratio"), worst - 1e-12);
  EXPECT_LT(value_of(report, "placement_gpu_balancedness_ratio"), 0.9);
}

TEST(SkewReplay, DecodeGetsCheaperWithSkewAndPrefillDearer) {
  const auto step_s = [&](const char* tokens, const char* plan) {
    const Json report =
        skew_report({"replay", kDecode, "--fit", "--gpus", "32", "--slots", "256", "--top-k", "8",
                     "--tokens-per-step", tokens, "--gpu", "h100_sxm", "--quant", "fp8_block",
                     "--hidden-size", "7168", "--moe-intermediate-size", "2048"});
    EXPECT_FALSE(cell(report, "replay", {plan, "decode_in1000out1000"}, "step_s_p99").is_null());
    return cell(report, "replay", {plan, "decode_in1000out1000"}, "step_s_p50").get<double>();
  };
  const double linear = step_s("16384", "linear");
  const double fitted = step_s("16384", "fit decode_in1000out1000");
  EXPECT_GT(linear, 1.3 * fitted);
  // Small batches: what counts is which experts are read, so balance gains little.
  EXPECT_LT(step_s("64", "linear"), 1.3 * step_s("64", "fit decode_in1000out1000"));
}

TEST(SkewReplay, NeedsAPlan) {
  expect_one_line({"replay", kPrefill, "--gpus", "32"}, 2, "--plan");
  const TempDir dir;
  write_file(dir / "cut.json", "{\"physical_to_logical_map\": [[0, 1");
  expect_one_line({"replay", kPrefill, "--plan", (dir / "cut.json").string(), "--gpus", "2"}, 3,
                  "cut.json");
}

TEST(SkewRoute, NoPolicyBeatsTheBound) {
  const Json report = skew_report(
      {"route", kLaw, "--experts", "64", "--gpus", "8", "--slots", "72", "--nodes", "2"});
  const double bound = value_of(report, "route_balancedness_bound_ratio");
  for (const char* policy : {"even", "hash", "least_loaded", "local_first", "two_level"}) {
    const double reached = value_of(report, std::string("route_balancedness_") + policy + "_ratio");
    EXPECT_LE(reached, bound + 1e-9) << policy;
    EXPECT_GT(reached, 0.2) << policy;
  }
  EXPECT_GE(cell(report, "route", {"even"}, "cross_gpu").get<double>(),
            cell(report, "route", {"local_first"}, "cross_gpu").get<double>());
  expect_one_line({"route", kPrefill, "--gpus", "8"}, 3, "counts alone");
}

TEST(SkewCapacity, ReproducesTheControlSeries) {
  const Json expected =
      json::parse_file(data("expected_metrics.json")).at("capacity_control_law_intent_summary");
  const Json report = skew_report({"capacity", kLaw, kIntent, data("esft/summary_topk.npy"),
                                   "--experts", "64", "--target-drop", "6%"});
  std::size_t i = 0;
  for (const Json& row : report.at("tables").at("factor_series").at("rows")) {
    if (row.at(0) != "bounded") continue;
    EXPECT_NEAR(row.at(2).get<double>(), expected.at("proposed").at(i).at(0).get<double>(), 2e-6);
    EXPECT_NEAR(row.at(4).get<double>(), expected.at("proposed").at(i).at(1).get<double>(), 1e-6);
    ++i;
  }
  EXPECT_EQ(i, expected.at("proposed").size());
  EXPECT_EQ(cell(report, "laws", {"literal_count"}, "end_factor").get<double>(), 1.0);
  EXPECT_THAT(report.at("findings").dump(), HasSubstr("capacity.at_bound"));
  // Windows of tokens are not windows of 500 ms: no evidence.
  EXPECT_EQ(acceptance_of(report, "capacity.adaptive"), "not_measured");
}

TEST(SkewCapacity, IsJudgedOnWindowsOfTime) {
  const TempDir dir;
  const std::string trace = (dir / "trace.safetensors").string();
  ASSERT_EQ(run_moe_bench({"run", checkpoint("tinymoe-qwen3"), "--batch", "4", "--prompt-tokens",
                           "64", "--output-tokens", "16", "--repeat", "1", "--no-limits",
                           "--dump-routing", trace, "-q", "--format", "none"})
                .exit_code,
            0);
  const Json report = skew_report({"capacity", trace, "--window", "500ms"});
  EXPECT_EQ(value_of(report, "capacity_window_s"), 0.5);
  EXPECT_NE(acceptance_of(report, "capacity.adaptive"), "not_measured");
  EXPECT_EQ(acceptance_of(skew_report({"capacity", trace, "--window", "500ms", "--dropless"}),
                          "capacity.adaptive"),
            "not_applicable");
}

TEST(SkewCapacity, RefusesOptionsWithoutSense) {
  expect_one_line({"capacity", kLaw, "--experts", "64", "--start", "5"}, 2, "outside its bounds");
  expect_one_line({"capacity", kLaw, "--experts", "64", "--window", "9999999tokens"}, 3, "window");
}

TEST(SkewCache, HitsAsOftenAsTheReference) {
  const Json expected = json::parse_file(data("expected_metrics.json"))
                            .at("esft")
                            .at("law")
                            .at("cache_per_layer")
                            .at("16");
  const Json report = skew_report({"cache", kLaw, "--experts", "64", "--slots", "16", "--train",
                                   kIntent, "--expert-bytes", "17MB", "--layer-time", "100us"});
  for (const char* policy : {"lru", "lfu", "belady"}) {
    const double hits = expected.at(policy).at("hits").get<double>();
    EXPECT_NEAR(cell(report, "demand", {policy}, "hit_ratio").get<double>(),
                hits / expected.at(policy).at("accesses").get<double>(), 1e-12);
  }
  EXPECT_GT(value_of(report, "cold_miss_ratio"), value_of(report, "cold_miss_bound_ratio"));
  EXPECT_EQ(acceptance_of(report, "tiering.cold_miss"), "fail");
  EXPECT_LT(cell(report, "timed", {"cooccurrence"}, "miss_ratio").get<double>(),
            cell(report, "timed", {"none"}, "miss_ratio").get<double>());
}

TEST(SkewCache, EverythingResidentIsNoTiering) {
  const Json report = skew_report({"cache", kLaw, "--experts", "64", "--slots", "64"});
  EXPECT_EQ(acceptance_of(report, "tiering.cold_miss"), "not_applicable");
  expect_one_line({"cache", kLaw, "--experts", "64", "--slots", "65"}, 2, "64 experts");
  expect_one_line({"cache", kPrefill}, 3, "counts alone");
}

TEST(SkewAlarms, RingsOnAssumedTimeAndScoresLabels) {
  const TempDir dir;
  write_file(dir / "labels.csv", "begin_s,end_s\n0,200\n");
  write_file(dir / "series.csv", "time_s,comm_share\n0,0.2\n300,0.2\n400,0.9\n500,0.9\n");
  const Json report = skew_report({"alarms",
                                   kLaw,
                                   "--experts",
                                   "64",
                                   "--gpus",
                                   "8",
                                   "--window",
                                   "64tokens",
                                   "--assumed-window-s",
                                   "20",
                                   "--rule",
                                   "balancedness_mean < 0.95 over 1min",
                                   "--rule",
                                   "comm_share > 0.35 over 5min",
                                   "--labels",
                                   (dir / "labels.csv").string(),
                                   "--series",
                                   (dir / "series.csv").string(),
                                   "--prometheus",
                                   (dir / "rules.yaml").string()});
  const Json first = report.at("tables").at("rules").at("rows").at(0);
  EXPECT_GE(first.at(2).get<int>(), 1);
  EXPECT_EQ(first.at(3).get<double>(), 60.0);  // the first whole minute
  EXPECT_EQ(report.at("tables").at("rules").at("rows").at(1).at(2).get<int>(), 1);
  EXPECT_THAT(read_file(dir / "rules.yaml"), HasSubstr("vllm:eplb_balancedness_avg"));
  EXPECT_NE(acceptance_of(report, "alarm.gpu_load"), "not_measured");
}

TEST(SkewAlarms, SaysThatThereIsNoTime) {
  expect_one_line({"alarms", kLaw, "--experts", "64", "--gpus", "8", "--window", "64tokens"}, 3,
                  "no time stamps");
  expect_one_line({"alarms", kLaw, "--experts", "64", "--gpus", "8", "--window", "64tokens",
                   "--assumed-window-s", "1", "--rule", "nonsense > 1"},
                  2, "no metric");
}

TEST(SkewDiffPlan, ComparesEqualShapesOnly) {
  const TempDir dir;
  write_file(dir / "a.csv", "layer,gpu,slot,expert\n0,0,0,0\n0,1,1,1\n");
  write_file(dir / "b.csv", "layer,gpu,slot,expert\n0,0,0,1\n0,1,1,0\n");
  write_file(dir / "c.csv", "layer,gpu,slot,expert\n0,0,0,1\n0,0,1,0\n");
  const std::string a = (dir / "a.csv").string();
  const Json report = skew_report({"diff-plan", a, (dir / "b.csv").string()});
  EXPECT_EQ(value_of(report, "placement_moved_slots_ratio"), 1.0);
  expect_one_line({"diff-plan", a, (dir / "c.csv").string()}, 3, "one shape");
  expect_one_line({"diff-plan", a, "/nowhere.csv"}, 3, "/nowhere.csv");
}

TEST(SkewPlacement, EveryCommandExplainsItself) {
  for (const char* command :
       {"plan", "replay", "route", "capacity", "cache", "alarms", "diff-plan"}) {
    const ProcessResult result = run_moe_skew({command, "--help"});
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr("moe-skew"));
  }
}

}  // namespace
}  // namespace moe::test
