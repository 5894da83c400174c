#include "lib/balance/plan_text.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/balance/planner.hpp"
#include "lib/base/error.hpp"
#include "tests/lib/balance/support.hpp"

namespace moe::balance {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Plan sample() {
  const LoadMatrix loads = test::random_loads(2, 6, 1);
  return {plan_joint({&loads, 1}, uniform_cluster(3, 8, 1)).placement, {3, 5}};
}

TEST(PlanText, ReadsBackWhatItWrites) {
  const Plan plan = sample();
  for (const PlanFormat format :
       {PlanFormat::kSglangJson, PlanFormat::kTensorRtYaml, PlanFormat::kCsv}) {
    const Plan back = read_plan(write_plan(plan, format), "plan", {.num_gpus = 3});
    EXPECT_EQ(back.placement.slot_begin, plan.placement.slot_begin);
    EXPECT_EQ(rows_of(back, {3, 5}, "plan").slot_expert, plan.placement.slot_expert)
        << plan_format_name(format);
  }
}

TEST(PlanText, GivesSglangARowForEveryLayer) {
  const Plan back =
      read_plan(write_plan(sample(), PlanFormat::kSglangJson), "plan", {.num_gpus = 3});
  EXPECT_EQ(back.layers, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(back.placement.layer(0)[7], 1);  // 7 % 6, the linear placement
}

TEST(PlanText, ReadsTheYamlThatOthersWrite) {
  const Plan plan = read_plan(
      "# made elsewhere\nnum_slots: 4\nlayer_updates_per_iter: 0\n"
      "initial_global_assignments:\n  3: [0, 1,\n      2, 0]\n  4:\n  - 2\n  - 1\n  - 0\n  - 1\n",
      "plan.yaml", {.num_gpus = 2});
  EXPECT_EQ(plan.layers, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(plan.placement.slot_expert, (std::vector<std::int32_t>{0, 1, 2, 0, 2, 1, 0, 1}));
}

std::string refusal(const std::string& text, const ReadPlanOptions& options = {.num_gpus = 2}) {
  try {
    (void)read_plan(text, "plan", options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
  return "";
}

TEST(PlanText, NamesWhatIsWrong) {
  EXPECT_THAT(refusal("hello"), StartsWith("plan: expected a plan: SGLang JSON"));
  EXPECT_THAT(refusal(""), HasSubstr("expected a plan"));
  EXPECT_THAT(refusal("{\"logical_count\": [[1, 2]]}"), HasSubstr("physical_to_logical_map"));
  EXPECT_THAT(refusal("{\"physical_to_logical_map\": []}"), HasSubstr("places nothing"));
  EXPECT_THAT(refusal("{\"physical_to_logical_map\": [[0, -1]]}"), HasSubstr("slot 1"));
  EXPECT_THAT(refusal("{\"physical_to_logical_map\": [[0, 1], [0]]}"), HasSubstr("layer 1 has 1"));
  EXPECT_THAT(refusal("{\"physical_to_logical_map\": [[0, 2]]}"), HasSubstr("expert 1 has no"));
  EXPECT_THAT(refusal("{\"physical_to_logical_map\": [[0, 1]]}", {}), HasSubstr("--gpus"));
  EXPECT_THAT(refusal("{\"physical_to_logical_map\": [[0, 1]]}", {.num_gpus = 2, .num_experts = 3}),
              HasSubstr("expert 2 has no"));
  EXPECT_THAT(refusal("num_slots: 0\ninitial_global_assignments:\n  3: [0]\n"),
              HasSubstr("num_slots of 1 or more"));
  EXPECT_THAT(refusal("num_slots: 3\ninitial_global_assignments:\n  3: [0, 1]\n"),
              HasSubstr("num_slots is 3"));
  EXPECT_THAT(refusal("initial_global_assignments:\n  3: [0, x]\n"), HasSubstr("line 2"));
  EXPECT_THAT(refusal("initial_global_assignments:\n  3: [0, 1\n"), HasSubstr("no end"));
  EXPECT_THAT(refusal("initial_global_assignments:\n  3: [0, 1]\n  3: [0, 1]\n"),
              HasSubstr("a new layer"));
  EXPECT_THAT(refusal("layer,gpu,slot,expert\n0,0,0,0\n0,0,0,1\n"), HasSubstr("slot 1 once"));
  EXPECT_THAT(refusal("layer,gpu,slot,expert\n0,1,0,0\n"), HasSubstr("GPUs must ascend"));
  EXPECT_THAT(refusal("layer,gpu,slot,expert\n0,0,0\n"), HasSubstr("line 2"));
}

TEST(PlanText, RefusesALayerThatIsNotThere) {
  const Plan plan = sample();
  EXPECT_THROW((void)rows_of(plan, {3, 4}, "plan"), Error);
}

}  // namespace
}  // namespace moe::balance
