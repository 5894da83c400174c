#include "lib/model/weight_format.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/error.hpp"
#include "lib/model/module_pattern.hpp"

namespace moe::model {
namespace {

// Bits per weight as the formats define them (README_WEIGHTS of DeepSeek-V3, AutoGPTQ, OCP MX,
// ggml-common.h).
TEST(WeightFormat, BitsPerWeightAreTheDefinitions) {
  const std::vector<std::pair<std::string, double>> formats = {
      {"bf16", 16},          {"fp32", 32},           {"fp8-block128", 8.0 + 32.0 / 16384},
      {"int8-g128", 8.1875}, {"int4-g128", 4.15625}, {"int4-g32-sym", 4.5},
      {"mxfp4", 4.25},       {"nvfp4", 4.5},         {"q4_0", 4.5},
      {"q5_1", 6.0},         {"q8_0", 8.5},          {"q2_k", 2.625},
      {"q3_k", 3.4375},      {"q4_k", 4.5},          {"q6_k", 6.5625},
      {"iq2_xxs", 2.0625},   {"iq4_xs", 4.25},       {"tq1_0", 1.6875}};
  for (const auto& [name, bits] : formats) {
    SCOPED_TRACE(name);
    EXPECT_DOUBLE_EQ(bits_per_weight(parse_weight_format(name)), bits);
  }
}

TEST(WeightFormat, BorderBlocksCountWhole) {
  const WeightFormat fp8 = parse_weight_format("fp8-block128");
  EXPECT_EQ(matrix_bytes(fp8, 128, 128), 128 * 128 + 4);
  EXPECT_EQ(matrix_bytes(fp8, 129, 1), 129 + 8);
  EXPECT_EQ(matrix_bytes(fp8, 256, 256, 3), 3 * (256 * 256 + 16));
  const WeightFormat int4 = parse_weight_format("int4-g128");
  EXPECT_EQ(matrix_bytes(int4, 2, 256), 2 * (128 + 2 * 2 + 1));
  EXPECT_EQ(matrix_bytes(parse_weight_format("q4_k"), 1, 257), 2 * 144);
  EXPECT_EQ(matrix_bytes(fp8, 0, 128), 0);
}

TEST(WeightFormat, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"", "int5-g128", "int4-g0", "fp8-block", "q9_k"}) {
    EXPECT_THROW((void)parse_weight_format(name), Error) << name;
    EXPECT_FALSE(find_weight_format(name)) << name;
  }
  EXPECT_EQ(find_weight_format("Q4_K"), "q4_k");
  for (const std::string& name : weight_format_names()) {
    EXPECT_NO_THROW((void)parse_weight_format(name)) << name;
  }
}

TEST(ModulePatterns, NamesMatchWholeDottedParts) {
  const ModulePatterns patterns({"gate", "model.layers.1", "language_model.lm_head"}, "test");
  EXPECT_TRUE(patterns.matches("model.layers.3.mlp.gate"));
  EXPECT_FALSE(patterns.matches("model.layers.3.mlp.gate_proj"));
  EXPECT_TRUE(patterns.matches("model.layers.1.self_attn.q_proj"));
  EXPECT_FALSE(patterns.matches("model.layers.10.self_attn.q_proj"));
  EXPECT_TRUE(patterns.matches("lm_head"));
}

TEST(ModulePatterns, ExpressionsMatchAsTheLibraryDoes) {
  const ModulePatterns patterns({R"(re:.*mlp\.(gate|up|gate_up|down)_proj.*)", "re:.*self_attn.*"},
                                "test");
  EXPECT_TRUE(patterns.matches("model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(patterns.matches("model.layers.0.mlp.down_proj"));
  EXPECT_FALSE(patterns.matches("model.layers.0.mlp.experts.0.gate_proj"));
  EXPECT_TRUE(patterns.matches("model.layers.9.self_attn.o_proj"));
}

TEST(Expression, KnowsItsSubset) {
  const auto matches = [](const char* pattern, const char* text) {
    return Expression(pattern, "test").matches(text);
  };
  EXPECT_TRUE(matches("a+b*c?$", "aab"));
  EXPECT_TRUE(matches("a+b*c?$", "ac"));
  EXPECT_FALSE(matches("a+b*c?$", "abd"));
  EXPECT_TRUE(matches("(ab|cd)+e", "abcdabe"));
  EXPECT_FALSE(matches("(ab|cd)+e", "abce"));
  EXPECT_TRUE(matches("x(a|b|)y", "xy"));
  EXPECT_TRUE(matches(R"(layers\.[0-9]+\.mlp)", "layers.12.mlp.gate"));
  EXPECT_FALSE(matches(R"(layers\.[^0-9]+\.mlp)", "layers.12.mlp"));
  EXPECT_TRUE(matches(R"(\d\w\s)", "1a b"));
  EXPECT_TRUE(matches("(?:a*)*b", "aaab"));
  // Exponential for a backtracking matcher.
  EXPECT_FALSE(matches("(a*)*(a*)*(a*)*b", std::string(200, 'a').c_str()));
}

TEST(Expression, RefusesWhatItDoesNotKnow) {
  for (const char* pattern : {"(", ")", "[a", "a{2}", "*", "(?!x)", R"(\)", R"(\b)", "[z-a]"}) {
    EXPECT_THROW(Expression(pattern, "test"), Error) << pattern;
  }
}

}  // namespace
}  // namespace moe::model
