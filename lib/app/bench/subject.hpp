#pragma once

// What a report says it examined.

#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "lib/json/read.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::app {

// "fnv1a64:...": over config.json, every weight file's name, size and header, and sixteen pages of
// 4 KiB of each, evenly spread. Milliseconds on a checkpoint of any size; two checkpoints that
// differ only between those pages hash alike, which a report says.
[[nodiscard]] std::string checkpoint_hash(const std::filesystem::path& directory,
                                          const model::BoundModel& model);

// The report's subject: kind, name, hash, and the model's shape in words and numbers.
[[nodiscard]] json::Json describe_checkpoint(const std::filesystem::path& directory,
                                             const model::BoundModel& model);

}  // namespace moe::app
