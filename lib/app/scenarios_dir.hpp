#pragma once

// Where the inputs that come with the toolkit are: model configs, tiny checkpoints, texts.

#include <filesystem>
#include <string>

namespace moe::app {

// --scenarios when given, else MOE_SCENARIOS, else the installed folder beside the binary
// (../share/moekit/scenarios), else the source tree this binary was built from. Empty when none of
// them is a directory.
[[nodiscard]] std::filesystem::path scenarios_dir(const std::string& option);

// A path as it is when it exists; otherwise a name below scenarios/FOLDER, with or without SUFFIX
// ("Mixtral-8x7B-v0.1" -> scenarios/models/Mixtral-8x7B-v0.1.json). Throws Error(kInput) naming
// both places when neither is there.
[[nodiscard]] std::filesystem::path find_scenario(const std::string& path_or_name,
                                                  const std::filesystem::path& scenarios,
                                                  const std::string& folder,
                                                  const std::string& suffix);

}  // namespace moe::app
