#pragma once

// The commands of moe-skew about placements, capacity, caches and alarms, one file each. The
// context outlives the command line.

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"

namespace moe::app {

void add_plan_command(CommandLine& line, const ToolContext& context);
void add_replay_command(CommandLine& line, const ToolContext& context);
void add_route_command(CommandLine& line, const ToolContext& context);
void add_capacity_command(CommandLine& line, const ToolContext& context);
void add_cache_command(CommandLine& line, const ToolContext& context);
void add_alarms_command(CommandLine& line, const ToolContext& context);
void add_diff_plan_command(CommandLine& line, const ToolContext& context);

}  // namespace moe::app
