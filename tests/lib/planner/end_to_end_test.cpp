#include "lib/planner/end_to_end.hpp"

#include <map>
#include <set>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/planner/step_fit.hpp"
#include "lib/planner/throughput_anchors.hpp"
#include "tests/lib/planner/step_fixture.hpp"

namespace moe::planner {
namespace {

constexpr const char* kHeader =
    "id,gpu,engine,engine_version,model,precision,mode,isl,osl,concurrency,tp,pp,dp,moe_tp,moe_ep,"
    "ttft_ms,tpot_ms,date,note\n";

const std::vector<OperatingPoint>& rows() {
  static const std::vector<OperatingPoint> points =
      parse_operating_points(test::scenario("measured/end_to_end.csv"), "end_to_end.csv").points;
  return points;
}

TEST(OperatingPoints, AreReadByColumnName) {
  const OperatingPoints read = parse_operating_points(
      std::string(kHeader) +
          "a,h200_sxm,vllm,0.19,x/Model,fp8,agg,1024,512,16,8,1,1,1,8,300.5,12.25,2026-04-01,\n"
          "b,gb200,sglang,1,x/Model,fp4,agg,1024,512,16,8,1,1,1,8,300,12,2026-04-01,doubtful\n"
          "c,gb200,sglang,1,x/Model,,agg,1024,512,16,8,1,1,1,8,300,12,,\n",
      "f");
  ASSERT_EQ(read.points.size(), 1U);
  EXPECT_EQ(read.num_skipped, 2);
  EXPECT_EQ(read.points[0].gpu, "h200-sxm");
  EXPECT_DOUBLE_EQ(read.points[0].ttft_s, 0.3005);
  EXPECT_DOUBLE_EQ(read.points[0].tpot_s, 0.01225);
  EXPECT_EQ(read.points[0].decode.ep, 8);
}

TEST(OperatingPoints, DoubledTensorParallelismIsUndone) {
  const OperatingPoints read = parse_operating_points(
      std::string(kHeader) + "a,b200_sxm,vllm,1,x/M,fp8,agg,1,1,1,16,1,1,4,4,1,1,,\n", "f");
  ASSERT_EQ(read.points.size(), 1U);
  EXPECT_EQ(read.points[0].decode.tp, 4);
  EXPECT_EQ(read.points[0].decode.ep, 4);
}

TEST(OperatingPoints, BadTablesAreRefusedWithLineAndColumn) {
  EXPECT_THROW((void)parse_operating_points("", "f"), Error);
  EXPECT_THROW((void)parse_operating_points("a,b\n1,2\n", "f"), Error);
  try {
    (void)parse_operating_points(
        std::string(kHeader) + "a,b200_sxm,vllm,1,x/M,fp8,agg,1,1,1,16,1,1,4,4,abc,1,,\n", "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("f:2"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("ttft_ms"), std::string::npos);
  }
}

TEST(Split, KeepsAboutAQuarterAndNeverParts) {
  for (const Split split : {Split::kPoints, Split::kDeployments}) {
    std::map<std::string, std::set<bool>> sides;
    int held = 0;
    for (const OperatingPoint& point : rows()) {
      const bool is_held = is_held_out(point, split);
      held += is_held ? 1 : 0;
      sides[split == Split::kPoints ? point_key(point) : deployment_key(point)].insert(is_held);
    }
    const double share = held / static_cast<double>(rows().size());
    EXPECT_GT(share, 0.1);
    EXPECT_LT(share, 0.4);
    for (const auto& [key, found] : sides) EXPECT_EQ(found.size(), 1U) << key;
  }
}

TEST(Split, TheSameMeasurementUnderTwoModelNamesIsOnePoint) {
  OperatingPoint v3;
  v3.model = "deepseek-ai/DeepSeek-V3";
  OperatingPoint r1 = v3;
  r1.model = "deepseek-ai/DeepSeek-R1";
  EXPECT_EQ(point_key(v3), point_key(r1));
}

// Only rows whose checkpoint has the row's precision: no weight format to choose.
PreparedPoints prepared() {
  const RowRules rules = parse_row_rules(test::scenario("measured/row_rules.json"), "rules");
  return prepare_points(
      rows(), test::hardware(),
      [](const OperatingPoint& point) -> const model::Architecture* {
        const std::string name = point.model.substr(point.model.rfind('/') + 1);
        const model::Architecture& found = test::architecture(name);
        return precision_class(found.quant.expert) == point.precision ? &found : nullptr;
      },
      test::measured_times(), rules);
}

TEST(EndToEnd, HeldOutPointsAreWithinTheStatedErrors) {
  const PreparedPoints points = prepared();
  ASSERT_GT(points.points.size(), 300U);
  const std::vector<PointError> errors = point_errors(points.points, Split::kPoints);
  const GroupError held = summarize(errors, [](const PointError& e) { return e.is_held_out; });
  EXPECT_GT(held.num_rows, 60);
  EXPECT_LE(held.tpot_median, 0.10);
  EXPECT_LE(held.ttft_median, 0.25);
}

TEST(EndToEnd, TheFitFindsConstantsThatItIsGiven) {
  PreparedPoints points = prepared();
  points.points.erase(points.points.begin() + 200, points.points.end());
  // Measurements made by the model itself with other constants.
  StepConstants truth = test::measured_times().constants;
  truth.terms[static_cast<std::size_t>(Term::kMoe)].value *= 1.4;
  truth.terms[static_cast<std::size_t>(Term::kPrefill)].value *= 0.7;
  for (PreparedPoint& point : points.points) {
    for (StepModel& model : point.models) model.set_terms(truth.resolve(point.keys()));
    const ServingPoint made = point.predict();
    point.measured.tpot_s = made.tpot_s;
    point.measured.ttft_s = made.ttft_s;
  }
  const StepFitResult fit = fit_step_constants(test::measured_times().constants, points.points,
                                               std::vector<bool>(points.points.size(), true));
  EXPECT_LT(fit.last_loss, fit.first_loss);
  for (PreparedPoint& point : points.points) {
    for (StepModel& model : point.models) model.set_terms(fit.constants.resolve(point.keys()));
  }
  const GroupError after = summarize(point_errors(points.points, Split::kPoints),
                                     [](const PointError&) { return true; });
  EXPECT_LT(after.tpot_median, 0.02);
  EXPECT_LT(after.ttft_median, 0.05);
}

TEST(ThroughputAnchors, LieInsideTheBandOrSayWhyNot) {
  const std::vector<ThroughputAnchor> anchors =
      parse_throughput_anchors(test::scenario("anchors/throughput.json"), "throughput.json");
  EXPECT_GE(anchors.size(), 10U);
  for (const ThroughputAnchor& anchor : anchors) {
    model::ArchitectureOptions options;
    options.weight_format = anchor.weights;
    const model::Architecture architecture = model::parse_architecture(
        test::scenario("models/" + anchor.model + ".json"), anchor.model, options);
    const AnchorResult result =
        check_anchor(anchor, architecture, find_accelerator(test::hardware(), anchor.gpu),
                     test::measured_times());
    EXPECT_LE(result.low, result.predicted);
    EXPECT_GE(result.high, result.predicted);
    EXPECT_TRUE(result.is_inside || !anchor.outside_reason.empty())
        << anchor.id << ": " << anchor.tokens_per_s_per_gpu << " not in " << result.low << " .. "
        << result.high;
  }
}

}  // namespace
}  // namespace moe::planner
