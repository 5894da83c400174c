#pragma once

// The commands of moe-plan; each lives in a file of its name.

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"

namespace moe::app {

// `context` must outlive the command line.
void add_plan_fit_command(CommandLine& line, const ToolContext& context);
void add_plan_compare_log_command(CommandLine& line, const ToolContext& context);
void add_plan_size_command(CommandLine& line, const ToolContext& context);
void add_plan_predict_command(CommandLine& line, const ToolContext& context);
void add_plan_sweep_command(CommandLine& line, const ToolContext& context);
void add_plan_verify_command(CommandLine& line, const ToolContext& context);
void add_plan_calibrate_command(CommandLine& line, const ToolContext& context);
void add_plan_quick_command(CommandLine& line, const ToolContext& context);
void add_plan_accept_command(CommandLine& line, const ToolContext& context);

}  // namespace moe::app
