#pragma once

// The commands of moe-a2a; each lives in a file of its name.

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"

namespace moe::app {

// `context` must outlive the command line.
void add_topo_command(CommandLine& line, const ToolContext& context);
void add_model_command(CommandLine& line, const ToolContext& context);
void add_what_if_command(CommandLine& line, const ToolContext& context);
void add_run_command(CommandLine& line, const ToolContext& context);
void add_import_command(CommandLine& line, const ToolContext& context);
void add_fit_command(CommandLine& line, const ToolContext& context);

}  // namespace moe::app
