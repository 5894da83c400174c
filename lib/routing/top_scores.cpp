#include "lib/routing/top_scores.hpp"

#include <cmath>
#include <limits>

#include "lib/base/check.hpp"

namespace moe::routing {

bool pick_top_scores(std::span<const double> scores, std::span<std::int32_t> ids,
                     std::span<float> weights) {
  MOE_CHECK(ids.size() <= scores.size() && weights.size() == ids.size());
  double best = -std::numeric_limits<double>::infinity();
  for (const double score : scores) {
    if (std::isnan(score) || score == std::numeric_limits<double>::infinity()) return false;
    if (score > best) best = score;
  }
  if (std::isinf(best)) return false;
  double sum = 0.0;
  for (const double score : scores) sum += std::exp(score - best);
  // Insertion into a short list: the list holds indices in descending order of score.
  std::size_t num_chosen = 0;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    std::size_t at = num_chosen;
    while (at > 0 && scores[e] > scores[static_cast<std::size_t>(ids[at - 1])]) --at;
    if (at == ids.size()) continue;
    if (num_chosen < ids.size()) ++num_chosen;
    for (std::size_t i = num_chosen - 1; i > at; --i) ids[i] = ids[i - 1];
    ids[at] = static_cast<std::int32_t>(e);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double score = scores[static_cast<std::size_t>(ids[i])];
    weights[i] = static_cast<float>(std::exp(score - best) / sum);
  }
  return true;
}

}  // namespace moe::routing
