#pragma once

// The text files of a checkpoint.

#include <string_view>

#include "lib/base/file_map.hpp"

namespace moe::model {

[[nodiscard]] std::string_view text_of(const FileMap& map);

}  // namespace moe::model
