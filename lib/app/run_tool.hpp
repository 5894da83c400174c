#pragma once

// The frame around every tool: the one place that catches, that owns the signal handlers and that
// knows stdout and stderr.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/interrupt.hpp"

namespace moe::app {

// What a command may ask of the process it runs in.
struct ToolContext {
  std::string tool;               // "moe-bench"
  std::vector<std::string> argv;  // as given, the program's name first
  const Interrupt* interrupt = nullptr;
};

// Runs `body` and returns the exit code: its own, or that of what it threw. An Error, an allocation
// that failed and an unknown exception become one line on stderr. The first SIGINT or SIGTERM sets
// the interrupt, a second one ends the process with 130. A closed stdout is not an error.
[[nodiscard]] int run_tool(std::string_view tool, int argc, const char* const* argv,
                           const std::function<int(const ToolContext&)>& body);

// Writes to stdout. A reader that went away ends the output quietly; any other failure throws
// Error(kRuntime).
void write_stdout(std::string_view text);

// One line on stderr: "moe-bench: warning: ...".
void print_warning(const ToolContext& context, std::string_view message);
void print_note(const ToolContext& context, std::string_view message);

}  // namespace moe::app
