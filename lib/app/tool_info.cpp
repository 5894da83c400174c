#include "lib/app/tool_info.hpp"

#include <fmt/format.h>

#include "lib/sysinfo/build_info.hpp"

namespace moe::app {

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

}  // namespace moe::app
