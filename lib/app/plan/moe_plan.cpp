#include "lib/app/plan/moe_plan.hpp"

#include "lib/app/cli.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/app/tool_info.hpp"

namespace moe::app {

int moe_plan_main(int argc, char** argv) {
  return run_tool("moe-plan", argc, argv, [&](const ToolContext& context) {
    CommandLine line(
        "moe-plan",
        "Plans the capacity of Mixture-of-Experts inference: bytes, step times, GPU counts, cost.",
        version_text("moe-plan"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text(); });
    add_plan_fit_command(line, context);
    add_plan_predict_command(line, context);
    add_plan_size_command(line, context);
    add_plan_sweep_command(line, context);
    add_plan_verify_command(line, context);
    add_plan_calibrate_command(line, context);
    add_plan_quick_command(line, context);
    add_plan_compare_log_command(line, context);
    add_plan_accept_command(line, context);
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
