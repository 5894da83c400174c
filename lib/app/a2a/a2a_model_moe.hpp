#pragma once

// Prediction of MoE dispatch and combine.

#include <cstdint>
#include <string>

#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/cli.hpp"
#include "lib/app/report_session.hpp"
#include "lib/topology/a2a_model.hpp"

namespace moe::app {

struct MoeArgs {
  std::int64_t tokens = 0;  // of one rank; 0: no dispatch and combine
  std::int64_t hidden = 7168;
  std::int64_t top_k = 8;
  std::int64_t experts = 256;
  std::int64_t sms = 0;
  std::string dtype = "fp8";
};
void add_moe_options(Options& options, MoeArgs& args);

// One table: what every measured library would take, and the flat and node-deduplicated all-to-all
// of the model.
void add_moe_prediction(const MoeArgs& args, const topology::MeasuredLaws& laws,
                        const topology::A2aModel& model, const ClusterFacts& facts,
                        std::int64_t ranks, ReportSession& session);

}  // namespace moe::app
