#include "lib/app/moe_bench.hpp"

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/app/bench_commands.hpp"
#include "lib/app/cli.hpp"
#include "lib/app/run_tool.hpp"
#include "lib/sysinfo/build_info.hpp"

namespace moe::app {
namespace {

std::string version_text(const std::string& tool) {
  const sysinfo::BuildInfo build = sysinfo::build_info();
  std::string backends;
  for (const sysinfo::Backend& backend : sysinfo::list_backends()) {
    if (!backend.is_compiled_in) continue;
    backends += backends.empty() ? backend.name : ", " + backend.name;
  }
  return fmt::format("{} {} (commit {}, {} build, {}; backends: {})\n", tool, build.version,
                     build.commit.empty() ? "unknown" : build.commit, build.build_type,
                     build.compiler, backends);
}

std::string backends_text() {
  std::string text;
  for (const sysinfo::Backend& backend : sysinfo::list_backends()) {
    // The reason of what is not compiled in begins with these words.
    const std::string state = backend.is_available     ? "available"
                              : backend.is_compiled_in ? "not available: " + backend.reason
                                                       : backend.reason;
    text += fmt::format("{:<8}{}\n", backend.name, state);
  }
  return text;
}

}  // namespace

int moe_bench_main(int argc, char** argv) {
  return run_tool("moe-bench", argc, argv, [&](const ToolContext& context) {
    CommandLine line("moe-bench", "Measures Mixture-of-Experts inference, in this process.",
                     version_text("moe-bench"));
    line.add_info_flag("--list-backends", "Print what this build and machine can use, and why not",
                       [] { return backends_text(); });
    add_run_command(line, context);
    add_inspect_command(line, context);
    add_limits_command(line, context);
    add_verify_command(line, context);
    add_generate_command(line, context);
    add_eval_command(line, context);
    add_synth_command(line, context);
    return line.run(argc, argv);
  });
}

}  // namespace moe::app
