#include "lib/app/plan/moe_plan.hpp"

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/app/tool_info.hpp"

namespace moe::app {

int moe_plan_main(int argc, char** argv) {
  return run_tool("moe-plan", argc, argv, [&](const ToolContext&) {
    CommandLine line(
        "moe-plan",
        "Plans the capacity of Mixture-of-Experts inference: bytes, step times, GPU counts, cost.",
        version_text("moe-plan"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text(); });
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
