#pragma once

// The commands of moe-bench; each lives in a file of its name.

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"

namespace moe::app {

// `context` must outlive the command line.
void add_run_command(CommandLine& line, const ToolContext& context);
void add_limits_command(CommandLine& line, const ToolContext& context);
void add_verify_command(CommandLine& line, const ToolContext& context);
void add_generate_command(CommandLine& line, const ToolContext& context);
void add_eval_command(CommandLine& line, const ToolContext& context);
void add_inspect_command(CommandLine& line, const ToolContext& context);
void add_client_import_command(CommandLine& line, const ToolContext& context);
void add_scripted_server_command(CommandLine& line, const ToolContext& context);
void add_serve_command(CommandLine& line, const ToolContext& context);
void add_compare_command(CommandLine& line, const ToolContext& context);
void add_synth_command(CommandLine& line, const ToolContext& context);

}  // namespace moe::app
