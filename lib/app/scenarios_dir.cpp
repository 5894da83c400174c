#include "lib/app/scenarios_dir.hpp"

#include <array>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

#include "lib/base/error.hpp"

namespace moe::app {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

}  // namespace

fs::path scenarios_dir(const std::string& option) {
  if (!option.empty()) {
    if (!is_folder(option)) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--scenarios {}: there is no such directory", option));
    }
    return option;
  }
  if (const char* variable = std::getenv("MOE_SCENARIOS");
      variable != nullptr && *variable != '\0') {
    return variable;
  }
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    const fs::path installed = binary.parent_path().parent_path() / "share/moekit/scenarios";
    if (is_folder(installed)) return installed;
  }
  if (is_folder(MOE_SOURCE_SCENARIOS)) return MOE_SOURCE_SCENARIOS;
  return {};
}

fs::path find_scenario(const std::string& path_or_name, const fs::path& scenarios,
                       const std::string& folder, const std::string& suffix) {
  std::error_code ignored;
  if (fs::exists(path_or_name, ignored)) return path_or_name;
  const bool is_name = path_or_name.find('/') == std::string::npos;
  if (is_name && !scenarios.empty()) {
    for (const std::string& end : {std::string(), suffix}) {
      const fs::path candidate = scenarios / folder / (path_or_name + end);
      if (fs::exists(candidate, ignored)) return candidate;
    }
  }
  throw Error(ErrorCode::kInput,
              fmt::format("{}: no such file, and no {}/{} in the scenarios folder {}", path_or_name,
                          folder, path_or_name + suffix,
                          scenarios.empty() ? "(not found; set --scenarios)" : scenarios.string()));
}

}  // namespace moe::app
