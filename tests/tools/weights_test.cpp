// Goal: what --quantize and --moe-path do is right and said in the report. Method: the real binary
// on small checkpoints and the trained one, its JSON against the schema.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/tool_report.hpp"

namespace moe::test {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> eval_of_trained(const std::string& quantize) {
  return {"eval",
          checkpoint("tinymoe-qwen3"),
          "--text",
          "english",
          "--window-tokens",
          "128",
          "--max-windows",
          "6",
          "--quantize",
          quantize};
}

// Eight bits cost the trained model next to nothing, four bits little; both are compared with the
// weights as stored in the same report.
TEST(Quantize, PerplexityStandsBesideThatOfTheStoredWeights) {
  const Json eight = bench_report(eval_of_trained("int8"));
  EXPECT_NEAR(value_of(eight, "perplexity_ratio"), 1.0, 0.005);
  EXPECT_LT(value_of(eight, "quantization_relative_error"), 0.01);
  const Json four = bench_report(eval_of_trained("int4"));
  EXPECT_NEAR(value_of(four, "perplexity_ratio"), 1.0, 0.05);
  EXPECT_NE(value_of(four, "perplexity"), value_of(four, "perplexity_as_stored"));
  EXPECT_GT(value_of(four, "quantization_relative_error"),
            value_of(eight, "quantization_relative_error"));
  EXPECT_EQ(value_of(four, "perplexity_as_stored"), value_of(eight, "perplexity_as_stored"));
  EXPECT_THAT(four.at("settings").at("quantize").get<std::string>(), HasSubstr("int4"));
  EXPECT_THAT(four.at("subject").at("weights_in_use").get<std::string>(), HasSubstr("int4"));
  EXPECT_EQ(value_of(four, "weight_bits"), 4.0);
  EXPECT_GE(value_of(four, "quant_router_bits"), 16.0);
}

// One scale for a row of weights, and with int8 activations one for a token: looser, and said.
TEST(Quantize, ScalesOfWholeRowsAreLooser) {
  const Json groups = bench_report(eval_of_trained("int8"));
  const Json rows = bench_report(eval_of_trained("int8-channel"));
  EXPECT_GT(value_of(rows, "quantization_relative_error"),
            1.2 * value_of(groups, "quantization_relative_error"));
  EXPECT_NEAR(value_of(rows, "perplexity_ratio"), 1.0, 0.005);
  EXPECT_THAT(rows.at("settings").at("quantize").get<std::string>(), HasSubstr("looser"));
  std::vector<std::string> args = eval_of_trained("int8-channel");
  args.insert(args.end(), {"--activations", "int8"});
  EXPECT_NEAR(value_of(bench_report(args), "perplexity_ratio"), 1.0, 0.02);
}

TEST(Quantize, WeightsThatAreCodesAlreadyAreRefused) {
  const ProcessResult result = run_moe_bench({"generate", checkpoint("mixtral-gguf-q4_0"), "-n",
                                              "2", "--prompt-ids", "5,6", "--quantize", "int8"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("Q4_0"));
}

TEST(Quantize, ChangesTheGoldenNumbers) {
  EXPECT_EQ(run_moe_bench({"verify", checkpoint("qwen3moe-a"), "--quiet"}).exit_code, 0);
  EXPECT_EQ(run_moe_bench({"verify", checkpoint("qwen3moe-a"), "--quantize", "int4", "--quiet"})
                .exit_code,
            6);
}

std::vector<std::string> compared_run(const std::vector<std::string>& more) {
  std::vector<std::string> args = {
      "run",        checkpoint("qwen3moe-a"), "--batch", "2",        "--prompt-tokens",
      "8",          "--output-tokens",        "4",       "--repeat", "3",
      "--no-limits"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Compare, RatiosOfBothComparisonsAreMeasured) {
  const Json report =
      bench_report(compared_run({"--quantize", "int8", "--compare-stored", "--moe-path", "both"}));
  EXPECT_GT(value_of(report, "fused_moe_speedup_ratio"), 0.0);
  EXPECT_GT(value_of(report, "quant_speedup_ratio"), 0.0);
  EXPECT_EQ(value_of(report, "model_experts_count"), 8.0);
  EXPECT_EQ(report.at("settings").at("moe_path"), "both");
}

TEST(Compare, StoredWeightsNeedQuantizedOnesBesideThem) {
  EXPECT_EQ(run_moe_bench(compared_run({"--compare-stored"})).exit_code, 2);
}

// A GGUF file by its own path: text in, text out, with the tokenizer that it carries.
TEST(Gguf, GeneratesFromAFileAlone) {
  const ProcessResult result =
      run_moe_bench({"generate", checkpoint("mixtral-gguf-q8_0") + "/model.gguf", "-n", "4",
                     "--prompt", "the experts", "--format", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(run_moe_bench({"inspect", checkpoint("qwen3moe-gguf-q4_k_m")}).exit_code, 0);
}

}  // namespace
}  // namespace moe::test
