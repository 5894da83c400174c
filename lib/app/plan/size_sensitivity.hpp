#pragma once

// The inputs that a plan's sensitivity looks at, and by how much each is moved.

#include "lib/app/plan/size_result.hpp"

namespace moe::app {

// Fills base, unit and rows of a result that works: the same layout, without rounding to whole
// deployments, so that small changes show.
void add_sensitivity(const SizeInputs& inputs, GpuResult& result);

}  // namespace moe::app
