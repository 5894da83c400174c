#include "lib/engine/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lib/base/check.hpp"

namespace moe::engine {
namespace {

using model::RopeConfig;
using model::RopeKind;

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, and a smooth step leads
// from one to the other. Equal band borders leave no room for the step.
double llama3_frequency(const RopeConfig& config, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(config.original_max_position_embeddings);
  if (wavelength > original / config.low_freq_factor) return frequency / config.factor;
  if (wavelength < original / config.high_freq_factor) return frequency;
  const double width = config.high_freq_factor - config.low_freq_factor;
  if (width == 0.0) return frequency;
  const double smooth = (original / wavelength - config.low_freq_factor) / width;
  return (1.0 - smooth) * frequency / config.factor + smooth * frequency;
}

// YaRN: the dimension at which a full context holds `rotations` turns.
double yarn_dimension(const RopeConfig& config, double rotations) {
  const auto original = static_cast<double>(config.original_max_position_embeddings);
  return config.dim * std::log(original / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.theta));
}

// Dimensions below the ramp keep their frequency, those above are interpolated.
void apply_yarn(const RopeConfig& config, std::vector<double>& frequencies) {
  double low = yarn_dimension(config, config.beta_fast);
  double high = yarn_dimension(config, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.dim - 1));
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / config.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
}

}  // namespace

RopeMode rope_mode(const RopeConfig& config, std::int64_t sequence_length) {
  if (config.kind != RopeKind::kLongrope) return RopeMode::kShort;
  return sequence_length > config.original_max_position_embeddings ? RopeMode::kLong
                                                                   : RopeMode::kShort;
}

RopeTable make_rope_table(const RopeConfig& config, RopeMode mode) {
  RopeTable table;
  std::vector<double>& frequencies = table.inverse_frequencies;
  frequencies.resize(static_cast<std::size_t>(config.dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(config.theta, -2.0 * static_cast<double>(i) / config.dim);
  }
  table.scaling = config.attention_scaling;
  switch (config.kind) {
    case RopeKind::kDefault:
      break;
    case RopeKind::kLinear:
      for (double& frequency : frequencies) frequency /= config.factor;
      break;
    case RopeKind::kLlama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(config, frequency);
      break;
    case RopeKind::kYarn:
      apply_yarn(config, frequencies);
      break;
    case RopeKind::kLongrope: {
      const bool is_long = mode == RopeMode::kLong;
      const std::vector<double>& factors = is_long ? config.long_factor : config.short_factor;
      MOE_CHECK(factors.size() == frequencies.size());
      for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      table.scaling = is_long ? config.long_mscale : config.short_mscale;
      break;
    }
  }
  return table;
}

void rope_angles(const RopeTable& table, std::int64_t position, float* cosines, float* sines) {
  for (std::size_t i = 0; i < table.inverse_frequencies.size(); ++i) {
    const double angle = static_cast<double>(position) * table.inverse_frequencies[i];
    cosines[i] = static_cast<float>(std::cos(angle) * table.scaling);
    sines[i] = static_cast<float>(std::sin(angle) * table.scaling);
  }
}

void rotate(model::RopeStyle style, std::int64_t half_dim, const float* cosines, const float* sines,
            float* x) {
  const bool is_half = style == model::RopeStyle::kHalf;
  const std::int64_t step = is_half ? 1 : 2;
  const std::int64_t partner = is_half ? half_dim : 1;
  for (std::int64_t i = 0; i < half_dim; ++i) {
    float& first = x[i * step];
    float& second = x[i * step + partner];
    const float a = first;
    const float b = second;
    first = a * cosines[i] - b * sines[i];
    second = b * cosines[i] + a * sines[i];
  }
}

}  // namespace moe::engine
