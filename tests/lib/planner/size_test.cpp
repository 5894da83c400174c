#include "lib/planner/size.hpp"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_dir.hpp"

namespace moe::planner {
namespace {

std::string scenario_text(const std::string& path) {
  return test::read_file(std::string(MOE_SOURCE_DIR) + "/scenarios/" + path);
}

class Size : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    architecture_ = new model::Architecture(
        model::parse_architecture(scenario_text("models/Mixtral-8x7B-v0.1.json"), "config.json"));
    hardware_ = new HardwareFile(parse_hardware(scenario_text("hardware.json"), "hardware.json"));
    measured_ = new MeasuredTimes;
    measured_->kernels = parse_kernel_table(scenario_text("measured/kernels.json"), "kernels");
    measured_->collectives =
        parse_collective_table(scenario_text("measured/collectives.json"), "collectives");
    measured_->constants =
        parse_step_constants(scenario_text("measured/step_constants.json"), "constants");
  }
  static void TearDownTestSuite() {
    delete architecture_;
    delete hardware_;
    delete measured_;
  }

  static SizeCase size_case(double peak_requests_per_s) {
    SizeCase c;
    c.architecture = architecture_;
    c.gpu = &find_accelerator(*hardware_, "h100-sxm");
    c.measured = measured_;
    c.fit.memory_bytes = c.gpu->usable_memory_bytes();
    c.demand.shape.input_tokens = 1000.0;
    c.demand.shape.output_tokens = 300.0;
    c.demand.request_tokens = 4096;
    c.demand.mean_requests_per_s = peak_requests_per_s;
    c.demand.peak_requests_per_s = peak_requests_per_s;
    return c;
  }
  static Layout tp(std::int32_t n) {
    Layout layout;
    layout.tp = n;
    return layout;
  }

  static model::Architecture* architecture_;
  static HardwareFile* hardware_;
  static MeasuredTimes* measured_;
};
model::Architecture* Size::architecture_ = nullptr;
HardwareFile* Size::hardware_ = nullptr;
MeasuredTimes* Size::measured_ = nullptr;

TEST(BurstWait, PoissonIsOneAndManyServersThinBurstsOut) {
  EXPECT_DOUBLE_EQ(burst_wait_factor(1.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(burst_wait_factor(2.0, 1.0), 2.5);
  EXPECT_DOUBLE_EQ(burst_wait_factor(0.0, 1.0), 0.5);
  EXPECT_NEAR(burst_wait_factor(3.0, 1000.0), 1.0, 0.01);
}

TEST_F(Size, OneGpuIsTooSmallAndSaysByHowMuch) {
  const SizePlan plan = size_layout(size_case(1.0), tp(1));
  EXPECT_FALSE(plan.works());
  EXPECT_NE(plan.problem.find("GiB"), std::string::npos);
  EXPECT_FALSE(plan.fit.stages.empty());
}

TEST_F(Size, CountsAreConsistent) {
  const SizePlan plan = size_layout(size_case(40.0), tp(4));
  ASSERT_TRUE(plan.works()) << plan.problem;
  EXPECT_EQ(plan.gpus, plan.deployments * 4);
  EXPECT_EQ(plan.gpus_bought % 8, 0);
  EXPECT_GE(plan.gpus_bought, plan.gpus);
  EXPECT_GE(static_cast<double>(plan.deployments_for_load), plan.deployments_exact - 1e-9);
  EXPECT_NEAR(plan.planned_requests_per_s, 0.8 * plan.capacity.requests_per_s, 1e-9);
  EXPECT_LE(plan.at_peak.tpot_s, 0.05);
  EXPECT_LE(plan.at_peak.ttft_s, 2.0);
}

TEST_F(Size, ASpareNodeCarriesTheDemandAndNoneDoesNot) {
  SizeCase c = size_case(40.0);
  EXPECT_TRUE(size_layout(c, tp(8)).slo_met_after_failure);
  c = size_case(0.5);
  c.rules.num_spare_domains = 0;
  const SizePlan plan = size_layout(c, tp(8));
  ASSERT_TRUE(plan.works()) << plan.problem;
  EXPECT_EQ(plan.deployments, 1);
  EXPECT_FALSE(plan.slo_met_after_failure);
}

TEST_F(Size, ASpareIsOnAnotherNode) {
  SizeCase c = size_case(0.5);
  const SizePlan plan = size_layout(c, tp(2));
  ASSERT_TRUE(plan.works()) << plan.problem;
  EXPECT_EQ(plan.deployments_for_load, 1);
  EXPECT_EQ(plan.deployments, 2);
  EXPECT_EQ(plan.nodes, 2);
  EXPECT_EQ(plan.deployments_lost, 1);
  EXPECT_TRUE(plan.slo_met_after_failure);
  c.rules.failure_domain = FailureDomain::kRack;
  EXPECT_EQ(size_layout(c, tp(2)).racks, 2);
  c.rules.failure_domain = FailureDomain::kDeployment;
  EXPECT_EQ(size_layout(c, tp(2)).nodes, 1);
}

TEST_F(Size, NoMoreSparesThanNeeded) {
  for (const double rate : {5.0, 20.0, 60.0, 200.0}) {
    const SizePlan plan = size_layout(size_case(rate), tp(2));
    ASSERT_TRUE(plan.works()) << plan.problem;
    // Left after a failure: enough. With one deployment fewer: not enough.
    EXPECT_GE(plan.deployments - plan.deployments_lost, plan.deployments_for_load);
    const std::int64_t fewer = plan.deployments - 1;
    EXPECT_LT(fewer - (fewer + plan.nodes - 1) / plan.nodes, plan.deployments_for_load);
  }
}

TEST_F(Size, MoreDemandNeverTakesFewerGpus) {
  std::int64_t before = 0;
  for (const double rate : {1.0, 3.0, 10.0, 30.0, 100.0, 300.0}) {
    const SizePlan plan = size_layout(size_case(rate), tp(4));
    ASSERT_TRUE(plan.works()) << plan.problem;
    EXPECT_GE(plan.gpus, before);
    before = plan.gpus;
  }
}

TEST_F(Size, ALooserServiceLevelNeverCarriesLess) {
  double before = 0.0;
  for (const double tpot_s : {0.01, 0.02, 0.05, 0.1}) {
    SizeCase c = size_case(10.0);
    c.rules.target.tpot_s = tpot_s;
    const double rate = size_layout(c, tp(4)).capacity.requests_per_s;
    EXPECT_GE(rate, before * (1.0 - 1e-6));
    before = rate;
  }
  EXPECT_GT(before, 0.0);
}

TEST_F(Size, AFrontAgreesWithThePlan) {
  const SizeCase c = size_case(10.0);
  const SizePlan plan = size_layout(c, tp(4));
  const std::vector<double> rates = rates_within(c, plan, std::vector<double>{0.02, 0.05, 0.2});
  EXPECT_NEAR(rates[1], plan.capacity.requests_per_s, 1e-9 * rates[1]);
  EXPECT_LE(rates[0], rates[1]);
  EXPECT_LE(rates[1], rates[2]);
}

TEST_F(Size, MoreMemoryNeverCarriesLess) {
  double before = 0.0;
  for (const double gib : {60.0, 80.0, 141.0, 180.0}) {
    SizeCase c = size_case(10.0);
    c.fit.memory_bytes = static_cast<std::int64_t>(gib * (1 << 30));
    const double rate = size_layout(c, tp(2)).capacity.requests_per_s;
    EXPECT_GE(rate, before * (1.0 - 1e-6));
    before = rate;
  }
}

TEST_F(Size, BurstsAndSlowerTimesCarryLess) {
  SizeCase c = size_case(10.0);
  const double calm = size_layout(c, tp(4)).capacity.requests_per_s;
  c.demand.gap_cv = 4.0;
  EXPECT_LE(size_layout(c, tp(4)).capacity.requests_per_s, calm);
  c = size_case(10.0);
  c.time_factor = 1.3;
  EXPECT_LT(size_layout(c, tp(4)).capacity.requests_per_s, calm);
}

TEST_F(Size, GivenGpusAreFilledAndTheRestIsSaid) {
  SizeCase c = size_case(1000.0);
  c.rules.fixed_gpus = 2;
  const SizePlan plan = size_layout(c, tp(2));
  ASSERT_TRUE(plan.works()) << plan.problem;
  EXPECT_EQ(plan.gpus, 2);
  EXPECT_LT(plan.headroom_ratio, 0.0);
  EXPECT_FALSE(size_layout(c, tp(4)).works());
}

TEST_F(Size, TheFirstPlanNeedsTheFewestGpus) {
  const SizeCase c = size_case(20.0);
  const std::vector<SizePlan> plans = size_all(c);
  ASSERT_FALSE(plans.empty());
  ASSERT_TRUE(plans.front().works());
  bool is_working = true;
  for (const SizePlan& plan : plans) {
    EXPECT_TRUE(is_working || !plan.works());  // those that work come first
    is_working = plan.works();
    if (plan.works()) {
      EXPECT_GE(plan.gpus_bought, plans.front().gpus_bought);
    }
  }
}

TEST_F(Size, LayoutsAreLegalAndWithinTheLimit) {
  for (const Layout& layout :
       size_layouts(*architecture_, find_accelerator(*hardware_, "h100-sxm"), 32)) {
    EXPECT_EQ(layout_problem(*architecture_, layout), "");
    EXPECT_LE(layout.gpus(), 32);
  }
}

}  // namespace
}  // namespace moe::planner
