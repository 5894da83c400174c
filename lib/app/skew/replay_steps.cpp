#include "lib/app/skew/replay_steps.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/rng.hpp"

namespace moe::app {
namespace {

// Above this mean a Poisson count is a rounded normal one to within a percent.
constexpr double kNormalFrom = 64.0;

double poisson(double mean, Rng& rng) {
  if (mean <= 0.0) return 0.0;
  if (mean >= kNormalFrom) {
    return std::max(0.0, std::round(mean + std::sqrt(mean) * rng.next_normal()));
  }
  double probability = std::exp(-mean);
  double sum = probability;
  double count = 0.0;
  const double u = rng.next_uniform();
  while (u > sum && count < 1000.0) {
    count += 1.0;
    probability *= mean / count;
    sum += probability;
  }
  return count;
}

}  // namespace

std::vector<Step> recorded_steps(const LoadedTrace& trace, std::int64_t top_k) {
  std::vector<Step> steps;
  for (std::int64_t window = 0; window < trace.counts.num_windows(); ++window) {
    const auto counts = trace.counts.window(window);
    Step step;
    step.counts.assign(counts.begin(), counts.end());
    const double copies = balance::total(step.counts);
    if (copies <= 0.0) continue;
    step.num_tokens =
        static_cast<double>(trace.counts.windows[static_cast<std::size_t>(window)].num_tokens);
    if (step.num_tokens <= 0.0) {
      step.num_tokens = copies / static_cast<double>(trace.loads.num_layers) /
                        static_cast<double>(std::max<std::int64_t>(1, top_k));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<Step> drawn_steps(const LoadedTrace& trace, std::int64_t top_k,
                              std::int64_t tokens_per_step, std::int64_t num_steps,
                              std::uint64_t seed) {
  const double copies = static_cast<double>(tokens_per_step) * static_cast<double>(top_k);
  std::vector<double> means;
  for (std::int32_t layer = 0; layer < trace.loads.num_layers; ++layer) {
    const auto loads = trace.loads.layer(layer);
    const double sum = balance::total(loads);
    for (const double load : loads) means.push_back(sum > 0.0 ? load / sum * copies : 0.0);
  }
  std::vector<Step> steps(static_cast<std::size_t>(num_steps));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Rng rng(seed, i);
    steps[i].num_tokens = static_cast<double>(tokens_per_step);
    steps[i].counts.reserve(means.size());
    for (const double mean : means) steps[i].counts.push_back(poisson(mean, rng));
  }
  return steps;
}

}  // namespace moe::app
