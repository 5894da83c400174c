#pragma once

// What --version and --list-backends say, the same for every tool.

#include <string>

namespace moe::app {

// "moe-plan 0.1.0 (commit ..., Release build, ...; backends: cpu, mpi)\n".
[[nodiscard]] std::string version_text(const std::string& tool);

// One line for each backend: available, or why not.
[[nodiscard]] std::string backends_text();

}  // namespace moe::app
