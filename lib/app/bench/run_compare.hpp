#pragma once

// One choice against another on the first point of a run: both by turns, so that what the machine
// does meanwhile meets both.

#include "lib/app/bench/run_measure.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

// Fused against unfused experts, as --moe-path both asks. Adds fused_moe_speedup_ratio.
void compare_moe_paths(const RunArgs& args, const RunPlan& plan, const model::BoundModel& model,
                       const PromptSource& prompts, const RunTools& tools, report::Report& report);

// Quantised weights against `stored`, the same model as the checkpoint has it. Adds
// quant_speedup_ratio.
void compare_with_stored_weights(const RunArgs& args, const RunPlan& plan,
                                 const model::BoundModel& model, const model::BoundModel& stored,
                                 const PromptSource& prompts, const RunTools& tools,
                                 report::Report& report);

}  // namespace moe::app
