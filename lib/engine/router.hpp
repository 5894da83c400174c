#pragma once

// From the logits of the router to experts and weights, by the rule of the model.

#include <cstdint>
#include <span>

#include "lib/model/config.hpp"

namespace moe::engine {

// Scratch floats that route() needs.
[[nodiscard]] std::int64_t route_scratch_floats(std::int64_t num_experts);

// Chooses top_k experts of one token. `logits` [num_experts]; `correction_bias` [num_experts] or
// null; ids and weights [top_k], best first by the value used for the selection, ties to the lower
// index; a weight is what the expert's output is multiplied by. Logits must be finite. All in f32.
void route(const model::RouterRule& rule, std::span<const float> logits,
           const float* correction_bias, std::int32_t top_k, float* scratch, std::int32_t* ids,
           float* weights);

}  // namespace moe::engine
