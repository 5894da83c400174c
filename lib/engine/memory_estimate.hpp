#pragma once

// What a model with given options needs, and what the machine can give.

#include <cstdint>

#include "lib/engine/engine.hpp"
#include "lib/engine/model_weights.hpp"
#include "lib/engine/workspace.hpp"

namespace moe::engine {

[[nodiscard]] WorkspaceShape workspace_shape(const model::ModelConfig& config,
                                             const EngineOptions& options);

// `weights` and `plan` are those of plan_weights().
[[nodiscard]] MemoryEstimate estimate_memory(const model::BoundModel& model,
                                             const EngineOptions& options,
                                             const ModelWeights& weights, const PackPlan& plan);

// sysinfo::usable_memory_bytes; 0 when the system does not say.
[[nodiscard]] std::int64_t available_memory_bytes();

// Throws Error(kRuntime) when the estimate exceeds `max_bytes`, or, when that is 0, the available
// memory.
void check_memory(const MemoryEstimate& estimate, std::int64_t max_bytes);

}  // namespace moe::engine
