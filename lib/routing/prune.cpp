#include "lib/routing/prune.hpp"

#include <algorithm>
#include <numeric>

#include "lib/base/check.hpp"

namespace moe::routing {
namespace {

// Shares of a layer's assignments and mass that fall on these experts.
void set_losses(const UsageProfile& profile, std::size_t begin, std::size_t num_experts,
                PrunedLayer& layer) {
  double all = 0.0;
  double all_mass = 0.0;
  for (std::size_t e = begin; e < begin + num_experts; ++e) {
    all += static_cast<double>(profile.counts[e]);
    if (!profile.mass.empty()) all_mass += profile.mass[e];
  }
  double lost = 0.0;
  double lost_mass = 0.0;
  for (const std::int32_t expert : layer.experts) {
    const std::size_t e = begin + static_cast<std::size_t>(expert);
    lost += static_cast<double>(profile.counts[e]);
    if (!profile.mass.empty()) lost_mass += profile.mass[e];
  }
  layer.lost_share = all > 0.0 ? lost / all : 0.0;
  layer.lost_mass_share = all_mass > 0.0 ? lost_mass / all_mass : layer.lost_share;
}

}  // namespace

UsageProfile usage_profile(RoutingInput& input) {
  UsageProfile profile;
  const InputInfo& info = input.info;
  const auto size = static_cast<std::size_t>(info.num_layers() * info.num_experts);
  profile.counts.assign(size, 0);
  if (input.tokens == nullptr) {
    CountStep step;
    input.counts->rewind();
    while (input.counts->next(step)) {
      for (std::size_t i = 0; i < size; ++i) profile.counts[i] += step.counts[i];
    }
    return profile;
  }
  profile.mass.assign(info.has_weights ? size : 0, 0.0);
  TokenBlock block;
  input.tokens->rewind();
  while (input.tokens->next(block)) {
    profile.num_tokens += block.num_tokens;
    const std::int64_t width = block.num_layers * block.top_k;
    for (std::int64_t i = 0; i < block.num_tokens * width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (block.ids[at] < 0) continue;
      const std::int64_t layer = i % width / block.top_k;
      const auto cell = static_cast<std::size_t>(layer * info.num_experts + block.ids[at]);
      ++profile.counts[cell];
      if (info.has_weights) profile.mass[cell] += static_cast<double>(block.weights[at]);
    }
  }
  return profile;
}

std::vector<PrunedLayer> prune_experts(const UsageProfile& profile, std::int64_t num_layers,
                                       double share, std::int64_t num_kept_min) {
  MOE_CHECK(num_layers > 0 && share > 0.0 && share < 1.0);
  const std::size_t num_experts = profile.counts.size() / static_cast<std::size_t>(num_layers);
  const auto kept_min = static_cast<std::size_t>(std::max<std::int64_t>(num_kept_min, 1));
  std::size_t num_pruned =
      static_cast<std::size_t>(share * static_cast<double>(num_experts) + 1e-9);
  num_pruned = std::min(num_pruned, num_experts - std::min(num_experts, kept_min));
  std::vector<PrunedLayer> layers;
  for (std::size_t begin = 0; begin < profile.counts.size(); begin += num_experts) {
    std::vector<std::int32_t> order(num_experts);
    std::iota(order.begin(), order.end(), 0);
    const auto use = [&](std::int32_t expert) {
      const std::size_t e = begin + static_cast<std::size_t>(expert);
      return profile.mass.empty() ? static_cast<double>(profile.counts[e]) : profile.mass[e];
    };
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return use(a) != use(b) ? use(a) < use(b) : a > b;
    });
    PrunedLayer layer;
    layer.experts.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num_pruned));
    std::sort(layer.experts.begin(), layer.experts.end());
    set_losses(profile, begin, num_experts, layer);
    layers.push_back(std::move(layer));
  }
  return layers;
}

std::vector<PrunedLayer> judge_pruning(const std::vector<PrunedLayer>& pruned,
                                       const UsageProfile& profile) {
  MOE_CHECK(!pruned.empty() && profile.counts.size() % pruned.size() == 0);
  const std::size_t num_experts = profile.counts.size() / pruned.size();
  std::vector<PrunedLayer> judged = pruned;
  for (std::size_t l = 0; l < judged.size(); ++l) {
    set_losses(profile, l * num_experts, num_experts, judged[l]);
  }
  return judged;
}

}  // namespace moe::routing
