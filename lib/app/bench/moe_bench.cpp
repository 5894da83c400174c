#include "lib/app/bench/moe_bench.hpp"

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/app/tool_info.hpp"

namespace moe::app {
int moe_bench_main(int argc, char** argv) {
  return run_tool("moe-bench", argc, argv, [&](const ToolContext& context) {
    CommandLine line(
        "moe-bench",
        "Measures Mixture-of-Experts inference: checkpoints in this process, and servers.",
        version_text("moe-bench"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text(); });
    add_run_command(line, context);
    add_serve_command(line, context);
    add_compare_command(line, context);
    add_inspect_command(line, context);
    add_limits_command(line, context);
    add_verify_command(line, context);
    add_generate_command(line, context);
    add_eval_command(line, context);
    add_synth_command(line, context);
    add_client_import_command(line, context);
    add_scripted_server_command(line, context);
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
