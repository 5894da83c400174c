#pragma once

// The machine that options describe, as a gate needs it.

#include <cstdint>

#include "lib/app/a2a/a2a_gate.hpp"
#include "lib/app/a2a/a2a_inputs.hpp"
#include "lib/app/report_session.hpp"

namespace moe::app {

// Ceiling and half-bandwidth size of so many ranks; empty when the options name no GPU and no
// topology, and for fewer than two ranks. Adds settings and what is to be known of the GPU.
[[nodiscard]] GateContext machine_context(const ClusterArgs& args, std::int64_t num_ranks,
                                          ReportSession& session);

}  // namespace moe::app
