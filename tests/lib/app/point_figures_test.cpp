// Goal: every figure follows from the times as its definition says. Method: a run made by hand with
// round numbers (TTFT 0.5 s, gaps 0.1 s), so that each expected value can be worked on paper.

#include "lib/app/bench/point_figures.hpp"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moe::app {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::SizeIs;

constexpr std::int32_t kTopK = 2;

ModelFacts two_layers() {
  ModelFacts facts;
  facts.top_k = kTopK;
  facts.num_experts = {0, 4};
  return facts;
}

engine::ForwardStats stats_of(std::int64_t num_tokens, double wall_s) {
  engine::ForwardStats stats;
  stats.num_tokens = num_tokens;
  stats.wall_s = wall_s;
  stats.stage_s[0] = wall_s / 2.0;
  const auto routed = static_cast<std::int32_t>(num_tokens * kTopK);
  stats.expert_tokens = {{}, {routed / 2, routed - routed / 2, 0, 0}};
  stats.weight_bytes_read = 1000;
  stats.expert_weight_bytes_read = 600;
  stats.kv_bytes_read = 10;
  stats.flops = 5000;
  return stats;
}

// `batch` requests of 8 prompt tokens: the first token after ttft_s, then one every gap_s.
engine::RunBatchResult run_of(const BenchPoint& point, double ttft_s, double gap_s) {
  engine::RunBatchResult run;
  const std::int64_t num_gaps = point.output_tokens - 1;
  run.prefill_s = ttft_s;
  run.decode_s = gap_s * static_cast<double>(num_gaps);
  run.total_s = ttft_s + run.decode_s;
  for (std::int64_t r = 0; r < point.batch; ++r) {
    engine::RequestResult request;
    for (std::int64_t i = 0; i < point.output_tokens; ++i) {
      request.token_ids.push_back(static_cast<std::int32_t>(r * 100 + i));
      request.token_times_s.push_back(ttft_s + gap_s * static_cast<double>(i));
    }
    run.requests.push_back(request);
  }
  for (std::int64_t i = 0; i < num_gaps; ++i) {
    engine::DecodeStep step;
    step.begin_s = ttft_s + gap_s * static_cast<double>(i);
    step.duration_s = gap_s * 0.9;
    step.num_sequences = static_cast<std::int32_t>(point.batch);
    step.distinct_experts = {0, i % 2 == 0 ? 2 : 4};
    run.steps.push_back(step);
  }
  run.prefill = stats_of(point.batch * point.prompt_tokens, ttft_s);
  run.decode = stats_of(point.batch * num_gaps, run.decode_s);
  return run;
}

constexpr BenchPoint kPoint = {.batch = 4, .prompt_tokens = 8, .output_tokens = 11};

PointFigures figures_of(const std::vector<engine::RunBatchResult>& runs,
                        const BenchPoint& point = kPoint) {
  return compute_figures(point, runs, two_layers(), true);
}

TEST(PointFigures, FollowTheDefinitions) {
  const PointFigures figures = figures_of({run_of(kPoint, 0.5, 0.1), run_of(kPoint, 0.5, 0.1)});
  EXPECT_THAT(figures.violations, IsEmpty());
  EXPECT_THAT(figures.ttft_s, ElementsAre(0.5, 0.5));
  EXPECT_THAT(figures.itl_s, SizeIs(20));
  EXPECT_THAT(figures.itl_s, Each(DoubleNear(0.1, 1e-12)));
  EXPECT_THAT(figures.tpot_s, Pointwise(DoubleNear(1e-12), {0.1, 0.1}));
  EXPECT_THAT(figures.e2el_s, Pointwise(DoubleNear(1e-12), {1.5, 1.5}));
  // (E2EL - TTFT) / (batch (out - 1)) = 1.0 / 40
  EXPECT_THAT(figures.itl_batch_normalised_s, Pointwise(DoubleNear(1e-12), {0.025, 0.025}));
  EXPECT_THAT(figures.prefill_tokens_per_s, Pointwise(DoubleNear(1e-9), {64.0, 64.0}));
  EXPECT_THAT(figures.decode_tokens_per_s, Pointwise(DoubleNear(1e-9), {40.0, 40.0}));
  // batch (in + out) / latency = 4 * 19 / 1.5
  EXPECT_NEAR(figures.batch_throughput_tokens_per_s[0], 76.0 / 1.5, 1e-9);
  EXPECT_NEAR(figures.duration_s, 3.0, 1e-12);
  EXPECT_NEAR(figures.requests_per_s, 8.0 / 3.0, 1e-12);
  EXPECT_NEAR(figures.input_tokens_per_s, 64.0 / 3.0, 1e-12);
  EXPECT_NEAR(figures.output_tokens_per_s, 88.0 / 3.0, 1e-12);
  EXPECT_NEAR(figures.total_tokens_per_s, 152.0 / 3.0, 1e-12);
  // (0.5, 1.5]: ten steps of four tokens.
  ASSERT_TRUE(figures.peak_output_tokens_per_s.has_value());
  EXPECT_NEAR(*figures.peak_output_tokens_per_s, 40.0, 1e-9);
  EXPECT_THAT(figures.distinct_experts_per_step, ElementsAre(0.0, 3.0));
  EXPECT_EQ(figures.prefill.weight_bytes_read, 2000);
  EXPECT_EQ(figures.decode.flops, 10000);
}

TEST(PointFigures, OfOneOutputTokenHaveNoGaps) {
  const BenchPoint point = {.batch = 2, .prompt_tokens = 8, .output_tokens = 1};
  const PointFigures figures = figures_of({run_of(point, 0.5, 0.1)}, point);
  EXPECT_THAT(figures.violations, IsEmpty());
  EXPECT_THAT(figures.itl_s, IsEmpty());
  EXPECT_THAT(figures.tpot_s, IsEmpty());
  EXPECT_THAT(figures.decode_tokens_per_s, IsEmpty());
  EXPECT_THAT(figures.e2el_s, ElementsAre(0.5));
  EXPECT_FALSE(figures.peak_output_tokens_per_s.has_value());
  EXPECT_THAT(figures.peak_absent_reason, HasSubstr("0.5 s"));
}

engine::CoreProbe probe_of(double width) {
  return {{engine::WidthReading{width, 0}}};
}

// Cores of width 3.5 that fall to 2.4 when they are shared.
engine::WidthReference cores_of_two_levels() {
  engine::WidthReference cores;
  for (int i = 0; i < 8; ++i) {
    cores.add(probe_of(3.5));
    cores.add(probe_of(2.4));
  }
  return cores;
}

engine::RooflineSample limits_of(double read_bytes_per_s, double ops_per_s) {
  engine::RooflineSample sample;
  sample.read_bytes_per_s = read_bytes_per_s;
  sample.ops_per_s = ops_per_s;
  sample.probes.fill(probe_of(3.5));
  return sample;
}

TEST(PointFigures, ShareOfTheRooflineIsTheLargerBoundOverTheTime) {
  const engine::WidthReference cores = cores_of_two_levels();
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  // Prefill: 1000 weight and 10 KV bytes, 5000 operations in 0.5 s.
  for (engine::DecodeStep& step : run.steps) {
    step.weight_bytes_read = 90;
    step.kv_bytes_read = 10;
    step.flops = 1000;
  }
  // One step in ten is bound by its operations.
  run.steps[3].flops = 5000;
  const std::vector<engine::RunBatchResult> runs = {run, run};
  // The first repetition lies between samples of 2000 and 4000 bytes/s, the second of 4000 and
  // 6000.
  const std::vector<engine::RooflineSample> limits = {
      limits_of(2000.0, 100000.0), limits_of(4000.0, 100000.0), limits_of(6000.0, 100000.0)};
  const PointFigures figures = compute_figures(kPoint, runs, two_layers(), true, {limits, &cores});
  // max(1010 / 3000, 5000 / 100000) / 0.5, then with 5000 bytes/s.
  EXPECT_THAT(figures.prefill_roofline_ratios,
              Pointwise(DoubleNear(1e-9), {1010.0 / 3000.0 / 0.5, 1010.0 / 5000.0 / 0.5}));
  // Nine steps of max(100 / read, 0.01), one of max(100 / read, 0.05), over 1 s.
  EXPECT_THAT(figures.decode_roofline_ratios,
              Pointwise(DoubleNear(1e-9), {9.0 * 100.0 / 3000.0 + 0.05, 9.0 * 0.02 + 0.05}));
  EXPECT_THAT(figures.read_limits_bytes_per_s, ElementsAre(2000.0, 4000.0, 6000.0));
  EXPECT_THAT(figures.peak_limits_ops_per_s, Each(100000.0));
  EXPECT_THAT(figures.limit_states, Each(engine::CoreState::kFree));
  EXPECT_THAT(figures_of({run}).prefill_roofline_ratios, IsEmpty());
}

TEST(PointFigures, EverySampleCarriesTheStateOfTheCores) {
  using engine::CoreState;
  const engine::WidthReference cores = cores_of_two_levels();
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  // Free until somebody comes during the third decode step and stays.
  for (int i = 0; i < 12; ++i) run.probes.push_back(probe_of(i < 4 ? 3.5 : 2.4));
  run.prefill_probes = {0, 2};
  for (std::size_t i = 0; i < run.steps.size(); ++i) run.steps[i].probes = {i + 1, 2};
  run.probe_s = 0.25;
  const PointFigures figures =
      compute_figures(kPoint, std::vector{run, run}, two_layers(), true, {{}, &cores});
  EXPECT_THAT(figures.violations, IsEmpty());
  EXPECT_THAT(figures.ttft_states, ElementsAre(CoreState::kFree, CoreState::kFree));
  ASSERT_EQ(figures.itl_states.size(), figures.itl_s.size());
  EXPECT_EQ(std::count(figures.itl_states.begin(), figures.itl_states.end(), CoreState::kFree), 4);
  EXPECT_EQ(figures.itl_states[1], CoreState::kFree);
  EXPECT_EQ(figures.itl_states[2], CoreState::kShared);
  EXPECT_THAT(samples_in_state(figures.itl_s, figures.itl_states, CoreState::kFree), SizeIs(4));
  EXPECT_THAT(samples_in_state(figures.itl_s, figures.itl_states, CoreState::kUnknown), IsEmpty());
  EXPECT_EQ(figures.probe_s, 0.5);
  EXPECT_THAT(figures_of({run}).ttft_states, IsEmpty());
}

TEST(PointFigures, NoticeAMissingToken) {
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  run.requests[1].token_ids.pop_back();
  EXPECT_THAT(figures_of({run}).violations,
              ::testing::Contains(HasSubstr("batch x output tokens")));
}

TEST(PointFigures, NoticeTimesThatRunBackwards) {
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  for (engine::RequestResult& request : run.requests) request.token_times_s[3] = 0.55;
  EXPECT_THAT(figures_of({run}).violations, ::testing::Contains(HasSubstr("ascend")));
}

TEST(PointFigures, NoticeADurationThatIsNotTheLastTokensTime) {
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  run.total_s = 2.0;
  EXPECT_THAT(figures_of({run}).violations, ::testing::Contains(HasSubstr("last token")));
}

TEST(PointFigures, NoticeExpertCountsThatDoNotAddUp) {
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  run.decode.expert_tokens[1][0] += 1;
  EXPECT_THAT(figures_of({run}).violations, ::testing::Contains(HasSubstr("layer 1")));
}

// LongRoPE runs a text again at its border; its last layer gives those tokens to no expert.
TEST(PointFigures, TokensThatRanAgainAreNotOutput) {
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  run.decode.num_tokens += 12;
  run.decode.num_recomputed_tokens = 12;
  EXPECT_THAT(figures_of({run}).violations, IsEmpty());
  run.decode.num_recomputed_tokens = 11;
  EXPECT_THAT(figures_of({run}).violations, Not(IsEmpty()));
}

TEST(PointFigures, NoticeStagesLongerThanTheirPass) {
  engine::RunBatchResult run = run_of(kPoint, 0.5, 0.1);
  run.prefill.stage_s[1] = 3.0;
  EXPECT_THAT(figures_of({run}).violations, ::testing::Contains(HasSubstr("stages")));
}

TEST(PointFigures, NoticeRepetitionsThatDiffer) {
  engine::RunBatchResult other = run_of(kPoint, 0.5, 0.1);
  other.requests[0].token_ids[5] = 7;
  EXPECT_THAT(figures_of({run_of(kPoint, 0.5, 0.1), other}).violations,
              ElementsAre(HasSubstr("different tokens")));
}

TEST(PeakRate, FindsABurst) {
  // Ten tokens a second for three seconds, but thirty within the second one.
  std::vector<TokenEvent> events;
  for (int i = 1; i <= 30; ++i) {
    events.push_back({0.1 * i, i > 10 && i <= 20 ? 3 : 1});
  }
  EXPECT_NEAR(*peak_rate(events, 1.0), 30.0, 1e-6);
}

TEST(PeakRate, IsNeverBelowTheMean) {
  // Sparse events: no stretch of exactly one second holds more than one token.
  const std::vector<TokenEvent> events = {{0.4, 1}, {1.9, 1}};
  EXPECT_GE(*peak_rate(events, 1.0), 2.0 / 1.9);
}

TEST(PeakRate, NeedsAsMuchTimeAsTheWindow) {
  EXPECT_FALSE(peak_rate({}, 1.0).has_value());
  const std::vector<TokenEvent> events = {{0.5, 100}};
  EXPECT_FALSE(peak_rate(events, 1.0).has_value());
}

TEST(ExpectedDistinctExperts, IsTopKForOneTokenAndAllForMany) {
  EXPECT_DOUBLE_EQ(expected_distinct_experts(16, 4, 1), 4.0);
  EXPECT_NEAR(expected_distinct_experts(16, 4, 1000), 16.0, 1e-9);
  // Two tokens with 4 of 16 each: 16 (1 - 0.75^2).
  EXPECT_DOUBLE_EQ(expected_distinct_experts(16, 4, 2), 7.0);
}

TEST(OutputHash, SeesOrderAndBorders) {
  const auto hash = [](std::vector<std::vector<std::int32_t>> tokens) {
    std::vector<engine::RequestResult> requests;
    for (auto& ids : tokens) {
      requests.emplace_back();
      requests.back().token_ids = ids;
    }
    return output_hash(requests);
  };
  EXPECT_EQ(hash({{1, 2}, {3}}), hash({{1, 2}, {3}}));
  EXPECT_NE(hash({{1, 2}, {3}}), hash({{1}, {2, 3}}));
  EXPECT_NE(hash({{1, 2}}), hash({{2, 1}}));
}

}  // namespace
}  // namespace moe::app
