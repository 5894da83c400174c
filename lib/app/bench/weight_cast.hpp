#pragma once

// The same model with its big matrices in another dtype.

#include "lib/app/bench/engine_setup.hpp"
#include "lib/base/aligned_buffer.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/model/bound_model.hpp"
#include "lib/model/dtype.hpp"

namespace moe::app {

// Converts projections, feed-forward blocks, experts and head to `dtype` (F32, F16 or BF16, rounded
// to nearest even), dequantised where they are quantised; router, norms, biases and the embedding
// stay. Returns the copies, which must outlive the model's use. Throws Error(kUsage) against
// --max-memory and Error(kInput) against the machine when there is no memory for them,
// Error(kRuntime) when interrupted.
[[nodiscard]] AlignedBytes cast_weights(model::Dtype dtype, const EngineArgs& args,
                                        Progress& progress, const Interrupt& interrupt,
                                        model::BoundModel& model);

}  // namespace moe::app
