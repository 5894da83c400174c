// Goal: int8 activations run when they are asked for and weights allow it, never by themselves, and
// every report says that the mode is looser. Method: the real binary, its JSON against the schema.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

bool says_looser(const Json& report) {
  for (const Json& finding : report.at("findings")) {
    if (finding.at("code") == "run.int8_activations") {
      return finding.at("message").get<std::string>().find("looser") != std::string::npos;
    }
  }
  return false;
}

std::vector<std::string> eval_in(const std::string& activations) {
  return {"eval",          checkpoint("tinymoe-qwen3"),
          "--text",        "english",
          "--quantize",    "int8",
          "--activations", activations,
          "--max-windows", "2",
          "--isa",         "auto"};
}

TEST(Int8Activations, CostTheTrainedModelLittle) {
  const Json exact = bench_report(eval_in("f32"));
  const Json rounded = bench_report(eval_in("int8"));
  EXPECT_FALSE(says_looser(exact));
  EXPECT_TRUE(says_looser(rounded));
  EXPECT_THAT(rounded.at("settings").at("activations").get<std::string>(), HasSubstr("looser"));
  EXPECT_EQ(value_of(rounded, "perplexity_as_stored"), value_of(exact, "perplexity_as_stored"));
  EXPECT_NE(value_of(rounded, "perplexity"), value_of(exact, "perplexity"));
  EXPECT_NEAR(value_of(rounded, "perplexity_ratio"), value_of(exact, "perplexity_ratio"), 0.01);
}

TEST(Int8Activations, AreNeverChosenByThemselves) {
  const std::vector<std::string> quick = {"run",
                                          checkpoint("ct-w8a8"),
                                          "--batch",
                                          "1",
                                          "--prompt-tokens",
                                          "8",
                                          "--output-tokens",
                                          "2",
                                          "--repeat",
                                          "2",
                                          "--prompts",
                                          "random"};
  const Json by_itself = bench_report(quick);
  EXPECT_NE(by_itself.at("settings").at("activations"), "int8");
  EXPECT_FALSE(says_looser(by_itself));
  std::vector<std::string> asked = quick;
  asked.insert(asked.end(), {"--activations", "int8"});
  const Json rounded = bench_report(asked);
  EXPECT_EQ(rounded.at("settings").at("activations"), "int8");
  EXPECT_TRUE(says_looser(rounded));
}

TEST(Int8Activations, AreNamedInTheReportOfAText) {
  const auto generate = [](const std::string& activations) {
    return bench_report({"generate", checkpoint("ct-w8a8"), "--prompt-ids", "5,6,7", "-n", "2",
                         "--activations", activations});
  };
  EXPECT_FALSE(says_looser(generate("f32")));
  EXPECT_TRUE(says_looser(generate("int8")));
}

TEST(Int8Activations, NeedIntegersInOrder) {
  const auto refusal = [](const std::string& name) {
    const ProcessResult result = run_moe_bench(
        {"generate", checkpoint(name), "--prompt-ids", "5,6", "-n", "2", "--activations", "int8"});
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal("qwen3moe-a"), HasSubstr("--quantize"));
  EXPECT_THAT(refusal("gptoss-mxfp4"), HasSubstr("int8 or int4"));
  EXPECT_THAT(refusal("gptq-desc"), HasSubstr("act-order"));
}

// The golden numbers are those of unrounded activations.
TEST(Int8Activations, VerifyShowsHowFarTheyAreOff) {
  EXPECT_EQ(run_moe_bench({"verify", checkpoint("ct-w8a8"), "--quiet"}).exit_code, 0);
  const ProcessResult rounded =
      run_moe_bench({"verify", checkpoint("ct-w8a8"), "--activations", "int8", "--quiet"});
  EXPECT_EQ(rounded.exit_code, 6) << rounded.err;
  EXPECT_THAT(rounded.out, HasSubstr("looser"));
}

}  // namespace
}  // namespace moe::test
