#include "lib/engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lib/base/check.hpp"

namespace moe::engine {
namespace {

// Indices of all logits, or of the top_k best, best first; ties to the lower id.
std::vector<std::int32_t> candidates(std::span<const float> logits,
                                     const SamplingOptions& options) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < ids.size()) {
    std::partial_sort(ids.begin(), ids.begin() + options.top_k, ids.end(), better);
    ids.resize(static_cast<std::size_t>(options.top_k));
  } else if (options.top_p < 1.0) {
    std::sort(ids.begin(), ids.end(), better);
  }
  return ids;
}

}  // namespace

std::int32_t argmax(std::span<const float> logits) {
  MOE_CHECK(!logits.empty());
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::int32_t sample(std::span<const float> logits, const SamplingOptions& options, Rng& rng) {
  const std::int32_t best = argmax(logits);
  if (options.temperature <= 0.0) return best;
  std::vector<std::int32_t> ids = candidates(logits, options);
  const double largest = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  std::vector<double> weights(ids.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(ids[i])]);
    weights[i] = std::exp((logit - largest) / options.temperature);
    sum += weights[i];
  }
  if (options.top_p < 1.0) {
    double kept = 0.0;
    std::size_t count = 0;
    while (count < ids.size() && (count == 0 || kept < options.top_p * sum)) {
      kept += weights[count++];
    }
    ids.resize(count);
    sum = kept;
  }
  double left = rng.next_uniform() * sum;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    left -= weights[i];
    if (left < 0.0) return ids[i];
  }
  return ids.back();
}

}  // namespace moe::engine
