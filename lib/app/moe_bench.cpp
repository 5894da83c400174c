#include "lib/app/moe_bench.hpp"

#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"

namespace moe::app {

int moe_bench_main(int argc, char** argv) {
  return run_tool("moe-bench", argc, argv, [&](const ToolContext& /*context*/) {
    CommandLine line("moe-bench", "Measures Mixture-of-Experts inference in this process.",
                     "moe-bench\n");
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
