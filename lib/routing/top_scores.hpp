#pragma once

// From router scores to chosen experts.

#include <cstdint>
#include <span>

namespace moe::routing {

// The ids.size() largest scores, best first, ties to the smaller id; weights are the softmax over
// all scores, as Mixtral and OLMoE take it before any renormalisation. False, and nothing chosen,
// when a score is NaN or +infinity or all are -infinity. ids.size() <= scores.size().
[[nodiscard]] bool pick_top_scores(std::span<const double> scores, std::span<std::int32_t> ids,
                                   std::span<float> weights);

}  // namespace moe::routing
