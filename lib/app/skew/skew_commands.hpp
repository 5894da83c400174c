#pragma once

// The commands of moe-skew about what was recorded: reading, judging, converting and making
// traces. The context outlives the command line.

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"

namespace moe::app {

void add_skew_inspect_command(CommandLine& line, const ToolContext& context);
void add_prune_command(CommandLine& line, const ToolContext& context);
void add_convert_command(CommandLine& line, const ToolContext& context);
void add_skew_synth_command(CommandLine& line, const ToolContext& context);

}  // namespace moe::app
