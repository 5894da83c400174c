#pragma once

// Fits the constants of the step-time model to measured operating points: damped least squares on
// the logarithms of TTFT and TPOT, with a loss that lets single odd rows go, and every factor drawn
// towards 1 with the strength that its prior states. Small groups therefore stay near their
// engine's mean, and nothing is fitted to a single deployment.

#include <cstdint>
#include <vector>

#include "lib/planner/end_to_end.hpp"
#include "lib/planner/step_constants.hpp"

namespace moe::planner {

struct StepFitOptions {
  int max_rounds = 60;
  double tpot_scale = 0.06;  // spread of log TPOT that counts as one unit of misfit
  double ttft_scale = 0.15;
  double robust_width = 2.0;  // units beyond which a row loses its pull
};

struct StepFitResult {
  StepConstants constants;
  double first_loss = 0.0;
  double last_loss = 0.0;
  int num_rounds = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_parameters = 0;
};

// `start` gives priors, levels and where to begin. Rows with `use` false are not looked at.
[[nodiscard]] StepFitResult fit_step_constants(const StepConstants& start,
                                               std::vector<PreparedPoint> points,
                                               const std::vector<bool>& use,
                                               const StepFitOptions& options = {});

}  // namespace moe::planner
