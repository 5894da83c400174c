#include "lib/app/a2a/moe_a2a.hpp"

#include "lib/app/a2a/a2a_commands.hpp"
#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/app/tool_info.hpp"

namespace moe::app {

int moe_a2a_main(int argc, char** argv) {
  return run_tool("moe-a2a", argc, argv, [&](const ToolContext& context) {
    CommandLine line("moe-a2a",
                     "Reads, checks and predicts the topology and the All-to-All of a cluster, and "
                     "measures it.",
                     version_text("moe-a2a"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text() + "threads available\nnull    available\n"; });
    add_run_command(line, context);
    add_topo_command(line, context);
    add_model_command(line, context);
    add_what_if_command(line, context);
    add_import_command(line, context);
    add_fit_command(line, context);
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
