#pragma once

// The machine's limits as a report shows them.

#include <cstdint>

#include "lib/engine/machine_limits.hpp"
#include "lib/report/report.hpp"

namespace moe::app {

// Cache sizes of this machine filled in, DRAM buffer sized to it.
[[nodiscard]] engine::LimitsOptions limits_options(std::int32_t num_threads);

// Tables "limits_bandwidth", "limits_instruction" and "limits_peak".
void add_limits_tables(const engine::MachineLimits& limits, report::Report& report);

// Table "core_state": what was read of each processor, and how many readings were shared.
void add_core_table(const engine::WidthReference& cores, report::Report& report);

}  // namespace moe::app
