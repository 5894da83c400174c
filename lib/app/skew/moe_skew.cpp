#include "lib/app/skew/moe_skew.hpp"

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/skew_commands.hpp"
#include "lib/app/tool_info.hpp"

namespace moe::app {

int moe_skew_main(int argc, char** argv) {
  return run_tool("moe-skew", argc, argv, [&](const ToolContext& context) {
    CommandLine line(
        "moe-skew",
        "Replays how tokens were routed to experts: skew, placement, capacity, caches, alarms.",
        version_text("moe-skew"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text(); });
    add_skew_inspect_command(line, context);
    add_plan_command(line, context);
    add_replay_command(line, context);
    add_route_command(line, context);
    add_capacity_command(line, context);
    add_cache_command(line, context);
    add_alarms_command(line, context);
    add_diff_plan_command(line, context);
    add_prune_command(line, context);
    add_convert_command(line, context);
    add_skew_synth_command(line, context);
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
