// Angles of every rotary variant against values computed independently (Python, f64) from the
// published formulas, and properties of the rotation.

#include "lib/engine/rope.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace moe::engine {
namespace {

using model::RopeConfig;
using model::RopeKind;
using model::RopeStyle;

RopeConfig base_config(RopeKind kind, std::int32_t dim, double theta) {
  RopeConfig config;
  config.kind = kind;
  config.dim = dim;
  config.theta = theta;
  return config;
}

void expect_frequencies(const RopeConfig& config, RopeMode mode,
                        const std::vector<double>& expected) {
  const RopeTable table = make_rope_table(config, mode);
  ASSERT_EQ(table.inverse_frequencies.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(table.inverse_frequencies[i], expected[i], 1e-9 * expected[i]) << i;
  }
}

TEST(Rope, DefaultFrequenciesAreAGeometricSeries) {
  expect_frequencies(base_config(RopeKind::kDefault, 8, 10000.0), RopeMode::kShort,
                     {1.0, 0.1, 0.01, 0.001});
}

TEST(Rope, LinearDividesByTheFactor) {
  RopeConfig config = base_config(RopeKind::kLinear, 8, 10000.0);
  config.factor = 4.0;
  expect_frequencies(config, RopeMode::kShort, {0.25, 0.025, 0.0025, 0.00025});
}

// Llama-3.1: theta 500000, factor 8, borders 1 and 4 of 8192.
TEST(Rope, Llama3KeepsShortWavelengthsAndStretchesLongOnes) {
  RopeConfig config = base_config(RopeKind::kLlama3, 16, 500000.0);
  config.factor = 8.0;
  config.original_max_position_embeddings = 8192;
  config.low_freq_factor = 1.0;
  config.high_freq_factor = 4.0;
  expect_frequencies(
      config, RopeMode::kShort,
      {1.0, 0.19392274474868576, 0.03760603093086393, 0.007292664737217109, 0.0005248461609929547,
       3.428102195952591e-05, 6.647869871181235e-06, 1.2891731721515574e-06});
}

// DeepSeek-V3 (theta 10000, factor 40, 4096), gpt-oss (theta 150000, factor 32, no truncation) and
// Kimi-K2 (both betas 1: the ramp is a step).
TEST(Rope, YarnMixesInterpolatedAndKeptFrequencies) {
  RopeConfig config = base_config(RopeKind::kYarn, 16, 10000.0);
  config.factor = 40.0;
  config.original_max_position_embeddings = 4096;
  expect_frequencies(config, RopeMode::kShort,
                     {1.0, 0.31622776601683794, 0.1, 0.023914724805023366, 0.005125,
                      0.000849862121170252, 2.5e-05, 7.905694150420949e-06});
  config.theta = 150000.0;
  config.factor = 32.0;
  config.truncate = false;
  expect_frequencies(
      config, RopeMode::kShort,
      {1.0, 0.22541800020287084, 0.050813274815461475, 0.006794959489732219, 0.00045648391922324086,
       1.818833668168956e-05, 4.09997848180298e-06, 9.242089502428302e-07});
  config.theta = 50000.0;
  config.truncate = true;
  config.beta_fast = 1.0;
  expect_frequencies(
      config, RopeMode::kShort,
      {1.0, 0.2586001363063102, 0.0668740304976422, 0.017293633402042617, 0.00447213595499958,
       3.6140467735726306e-05, 9.345929882632628e-06, 2.416858741558015e-06});
}

// Equal band borders leave no room for the smooth step (Llama-4-Scout has them).
TEST(Rope, Llama3WithEqualBordersStaysFinite) {
  RopeConfig config = base_config(RopeKind::kLlama3, 16, 500000.0);
  config.factor = 16.0;
  config.original_max_position_embeddings = 8192;
  config.low_freq_factor = 1.0;
  config.high_freq_factor = 1.0;
  const RopeTable plain =
      make_rope_table(base_config(RopeKind::kDefault, 16, 500000.0), RopeMode::kShort);
  const RopeTable table = make_rope_table(config, RopeMode::kShort);
  for (std::size_t i = 0; i < table.inverse_frequencies.size(); ++i) {
    const double ratio = table.inverse_frequencies[i] / plain.inverse_frequencies[i];
    EXPECT_TRUE(std::abs(ratio - 1.0) < 1e-12 || std::abs(ratio - 1.0 / 16.0) < 1e-12) << ratio;
  }
}

TEST(Rope, LongropeChoosesItsFactorsByLength) {
  RopeConfig config = base_config(RopeKind::kLongrope, 4, 100.0);
  config.original_max_position_embeddings = 32;
  config.short_factor = {1.0, 2.0};
  config.long_factor = {4.0, 8.0};
  config.short_mscale = 1.25;
  config.long_mscale = 1.5;
  EXPECT_EQ(rope_mode(config, 32), RopeMode::kShort);
  EXPECT_EQ(rope_mode(config, 33), RopeMode::kLong);
  expect_frequencies(config, RopeMode::kShort, {1.0, 0.05});
  expect_frequencies(config, RopeMode::kLong, {0.25, 0.0125});
  EXPECT_EQ(make_rope_table(config, RopeMode::kShort).scaling, 1.25);
  EXPECT_EQ(make_rope_table(config, RopeMode::kLong).scaling, 1.5);
}

TEST(Rope, ScalingMultipliesCosineAndSine) {
  RopeTable table{{0.5, 0.25}, 1.5};
  std::vector<float> cosines(2);
  std::vector<float> sines(2);
  rope_angles(table, 3, cosines.data(), sines.data());
  EXPECT_FLOAT_EQ(cosines[0], static_cast<float>(1.5 * std::cos(1.5)));
  EXPECT_FLOAT_EQ(sines[1], static_cast<float>(1.5 * std::sin(0.75)));
}

TEST(Rope, StylesPairDifferentElements) {
  const std::vector<float> cosines = {0.0F, 1.0F};
  const std::vector<float> sines = {1.0F, 0.0F};  // a quarter turn of the first pair
  std::vector<float> x = {1.0F, 2.0F, 3.0F, 4.0F, 9.0F};
  rotate(RopeStyle::kHalf, 2, cosines.data(), sines.data(), x.data());
  EXPECT_EQ(x, (std::vector<float>{-3.0F, 2.0F, 1.0F, 4.0F, 9.0F}));
  x = {1.0F, 2.0F, 3.0F, 4.0F, 9.0F};
  rotate(RopeStyle::kPairs, 2, cosines.data(), sines.data(), x.data());
  EXPECT_EQ(x, (std::vector<float>{-2.0F, 1.0F, 3.0F, 4.0F, 9.0F}));
}

// The reason for rotating at all: scores depend on the distance alone.
TEST(Rope, ScoresDependOnTheDistance) {
  const RopeTable table =
      make_rope_table(base_config(RopeKind::kDefault, 8, 10000.0), RopeMode::kShort);
  const auto score = [&](std::int64_t query_position, std::int64_t key_position) {
    std::vector<float> q = {0.3F, -1.2F, 0.8F, 0.1F, 0.9F, -0.4F, 1.1F, 0.6F};
    std::vector<float> k = {-0.7F, 0.2F, 1.3F, -0.5F, 0.4F, 0.9F, -1.0F, 0.3F};
    std::vector<float> cosines(4);
    std::vector<float> sines(4);
    rope_angles(table, query_position, cosines.data(), sines.data());
    rotate(RopeStyle::kHalf, 4, cosines.data(), sines.data(), q.data());
    rope_angles(table, key_position, cosines.data(), sines.data());
    rotate(RopeStyle::kHalf, 4, cosines.data(), sines.data(), k.data());
    double sum = 0.0;
    for (std::size_t i = 0; i < 8; ++i) sum += static_cast<double>(q[i] * k[i]);
    return sum;
  };
  EXPECT_NEAR(score(17, 5), score(112, 100), 1e-5);
  EXPECT_GT(std::abs(score(17, 5) - score(18, 5)), 1e-3);
}

}  // namespace
}  // namespace moe::engine
