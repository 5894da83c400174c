#pragma once

// What a random checkpoint holds: every file tensor and how it is filled. Internal to the
// checkpoint writer.

#include <vector>

#include "lib/model/config.hpp"
#include "lib/model/safetensors_writer.hpp"
#include "lib/model/synth.hpp"
#include "lib/model/synth_fill.hpp"

namespace moe::model {

struct PlannedTensor {
  TensorDeclaration declaration;
  FillPlan fill;
};

[[nodiscard]] std::vector<PlannedTensor> plan_synthetic_tensors(const ModelConfig& config,
                                                                const SynthOptions& options);

}  // namespace moe::model
