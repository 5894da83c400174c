#pragma once

// Opening what a command was pointed at.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/bound_model.hpp"
#include "lib/model/tokenizer.hpp"

namespace moe::app {

// The checkpoint itself, or one of scenarios/checkpoints by name. Throws Error(kInput).
[[nodiscard]] std::filesystem::path find_checkpoint(const std::string& path_or_name,
                                                    const std::string& scenarios_option);

// The checkpoint's tokenizer, checked against its embedding; nullopt when there is no
// tokenizer.json. Throws Error(kInput).
[[nodiscard]] std::optional<model::Tokenizer> load_tokenizer(const std::filesystem::path& directory,
                                                             const model::BoundModel& model);

// The same, but Error(kInput) when there is none; `what` needs it ("--prompt").
[[nodiscard]] model::Tokenizer require_tokenizer(const std::filesystem::path& directory,
                                                 const model::BoundModel& model,
                                                 const std::string& what);

// The token ids of a text, without special tokens; messages start with the file's name.
[[nodiscard]] std::vector<std::int32_t> encode_file_text(const model::Tokenizer& tokenizer,
                                                         std::string_view text,
                                                         const std::filesystem::path& file);

// Keys of generation_config.json that would change what is sampled, such as temperature; the
// engine is told by options alone, so a report lists what was found and not used.
[[nodiscard]] std::vector<std::string> unused_generation_settings(
    const std::filesystem::path& directory);

}  // namespace moe::app
