#include "lib/planner/serving.hpp"

#include <gtest/gtest.h>

#include "lib/planner/sweep.hpp"
#include "tests/lib/planner/step_fixture.hpp"

namespace moe::planner {
namespace {

Layout tp(std::int32_t n) {
  Layout layout;
  layout.tp = n;
  return layout;
}

StepModel model() {
  return test::step_model("Mixtral-8x7B-v0.1", "h100-sxm", tp(2));
}

TEST(ClosedLoop, MoreClientsWaitLongerAndGiveMoreInAll) {
  const StepModel server = model();
  ServingPoint last;
  for (const double clients : {1.0, 4.0, 16.0, 64.0}) {
    const ServingPoint point = serve_closed_loop(server, {}, clients, 0.0);
    EXPECT_GT(point.ttft_s, last.ttft_s);
    EXPECT_GT(point.tpot_s, last.tpot_s);
    EXPECT_GT(point.output_tokens_per_s, last.output_tokens_per_s);
    EXPECT_LE(point.tpot_full_overlap_s, point.tpot_s);
    EXPECT_GE(point.tpot_no_overlap_s, point.tpot_s * (1.0 - 1e-9));
    EXPECT_LE(point.ttft_low_s, point.ttft_s);
    EXPECT_GE(point.ttft_high_s, point.ttft_s * (1.0 - 1e-9));
    EXPECT_LE(point.ttft_p50_s, point.ttft_p99_s);
    last = point;
  }
}

TEST(ClosedLoop, LittlesLawHolds) {
  const ServingPoint point = serve_closed_loop(model(), {}, 32.0, 0.0);
  // Requests in the system = rate x time in the system; the first token is counted in TTFT.
  EXPECT_NEAR(point.requests_per_s * point.request_s, 32.0, 0.5);
}

TEST(ClosedLoop, ClientsBeyondTheCacheWaitOutside) {
  const StepModel server = model();
  const ServingPoint roomy = serve_closed_loop(server, {}, 64.0, 64.0);
  const ServingPoint tight = serve_closed_loop(server, {}, 64.0, 16.0);
  EXPECT_EQ(roomy.limit, ServingLimit::kNone);
  EXPECT_EQ(tight.limit, ServingLimit::kKvCache);
  EXPECT_GT(tight.ttft_s, 10.0 * roomy.ttft_s);
  EXPECT_LT(tight.tpot_s, roomy.tpot_s);
}

TEST(ClosedLoop, CachedPromptsAnswerSooner) {
  RequestShape cold;
  cold.input_tokens = 8000.0;
  RequestShape warm = cold;
  warm.cached_input_tokens = 7000.0;
  EXPECT_LT(serve_closed_loop(model(), warm, 8.0, 0.0).ttft_s,
            serve_closed_loop(model(), cold, 8.0, 0.0).ttft_s);
}

TEST(OpenLoop, QueuesGrowWithTheRateUntilNothingIsStable) {
  const StepModel server = model();
  ServingPoint last = serve_open_loop(server, {}, 0.01, 0.0);
  EXPECT_TRUE(last.is_stable);
  bool was_unstable = false;
  for (double rate = 0.5; rate < 1e4; rate *= 4.0) {
    const ServingPoint point = serve_open_loop(server, {}, rate, 200.0);
    if (point.is_stable) {
      EXPECT_GE(point.ttft_s, last.ttft_s);
      EXPECT_NEAR(point.requests_per_s, rate, 1e-9 * rate);
    } else {
      was_unstable = true;
      EXPECT_LT(point.requests_per_s, rate);
    }
    last = point;
  }
  EXPECT_TRUE(was_unstable);
}

TEST(OpenLoop, AClosedLoopAtTheSameRateHasTheSameBatch) {
  const StepModel server = model();
  const ServingPoint closed = serve_closed_loop(server, {}, 24.0, 0.0);
  const ServingPoint open = serve_open_loop(server, {}, closed.requests_per_s, 0.0);
  EXPECT_NEAR(open.batch_per_rank, closed.batch_per_rank, 0.15 * closed.batch_per_rank);
  EXPECT_NEAR(open.tpot_s, closed.tpot_s, 0.1 * closed.tpot_s);
}

TEST(Disaggregation, DecodeIsNotDisturbedAndTooFewPrefillWorkersQueue) {
  const StepModel worker = model();
  RequestShape shape;
  shape.input_tokens = 8000.0;
  shape.output_tokens = 500.0;
  Disaggregation many{&worker, &worker, 8, 2};
  Disaggregation few{&worker, &worker, 1, 2};
  const ServingPoint wide = serve_closed_loop(many, shape, 128.0, 0.0);
  const ServingPoint narrow = serve_closed_loop(few, shape, 128.0, 0.0);
  EXPECT_LT(wide.ttft_s, narrow.ttft_s);
  EXPECT_EQ(narrow.limit, ServingLimit::kPrefill);
  EXPECT_LT(wide.tpot_s, serve_closed_loop(worker, shape, 64.0, 0.0).tpot_s);
  EXPECT_EQ(wide.num_gpus, 20);
}

TEST(CapacityRate, IsTheLargestRateThatMeetsTheTarget) {
  const StepModel server = model();
  const ServiceTarget target{.ttft_s = 1.0, .tpot_s = 0.04};
  const CapacityPoint found = max_request_rate(server, {}, target, 100.0);
  ASSERT_GT(found.requests_per_s, 0.0);
  EXPECT_LE(found.point.tpot_s, target.tpot_s);
  EXPECT_LE(found.point.ttft_s, target.ttft_s);
  const ServingPoint beyond = serve_open_loop(server, {}, found.requests_per_s * 1.05, 100.0);
  EXPECT_TRUE(!beyond.is_stable || beyond.tpot_s > target.tpot_s || beyond.ttft_s > target.ttft_s ||
              beyond.prefill_utilization > target.max_utilization);
  EXPECT_FALSE(found.limited_by.empty());
  const ServiceTarget impossible{.ttft_s = 1.0, .tpot_s = 1e-5};
  EXPECT_EQ(max_request_rate(server, {}, impossible, 100.0).requests_per_s, 0.0);
}

TEST(Sweep, FrontHoldsNoDominatedPointAndNoPointIsMissing) {
  SweepSpace space;
  space.gpus = {&find_accelerator(test::hardware(), "h100-sxm"),
                &find_accelerator(test::hardware(), "b200-sxm")};
  space.max_gpus = 16;
  space.batches = {1, 8, 64};
  std::vector<SweepPoint> seen;
  const SweepResult result =
      sweep(test::architecture("Mixtral-8x7B-v0.1"), space, test::measured_times(),
            [&](const SweepPoint& point) { seen.push_back(point); });
  ASSERT_FALSE(result.front.empty());
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), result.num_points);
  for (const SweepPoint& candidate : seen) {
    bool is_covered = false;
    for (const SweepPoint& kept : result.front) {
      if (kept.gpu != candidate.gpu) continue;
      is_covered |=
          kept.serving.tpot_s <= candidate.serving.tpot_s &&
          kept.serving.output_tokens_per_s_per_gpu >= candidate.serving.output_tokens_per_s_per_gpu;
      const bool dominates =
          candidate.serving.tpot_s < kept.serving.tpot_s &&
          candidate.serving.output_tokens_per_s_per_gpu > kept.serving.output_tokens_per_s_per_gpu;
      EXPECT_FALSE(dominates);
    }
    EXPECT_TRUE(is_covered) << describe(candidate.layout);
  }
}

TEST(Sweep, CandidateLayoutsUseEveryGpuCountOnceAndSpreadExpertsOverRanks) {
  for (const Layout& layout :
       candidate_layouts(test::architecture("Mixtral-8x7B-v0.1"), 32, 8, 4)) {
    EXPECT_LE(layout.gpus(), 32);
    EXPECT_LE(layout.ep, 8);
    EXPECT_EQ(layout.stage_gpus() % layout.ep, 0);
  }
}

}  // namespace
}  // namespace moe::planner
