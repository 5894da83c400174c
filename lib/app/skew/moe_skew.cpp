#include "lib/app/skew/moe_skew.hpp"

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/app/tool_info.hpp"

namespace moe::app {

int moe_skew_main(int argc, char** argv) {
  return run_tool("moe-skew", argc, argv, [&](const ToolContext&) {
    CommandLine line(
        "moe-skew",
        "Replays how tokens were routed to experts: skew, placement, capacity, caches, alarms.",
        version_text("moe-skew"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text(); });
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
