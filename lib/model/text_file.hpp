#pragma once

// The JSON text files of a checkpoint: checks that come before any parser.

#include <string>
#include <string_view>

#include "lib/base/file_map.hpp"

namespace moe::model {

[[nodiscard]] std::string_view text_of(const FileMap& map);

// Throws Error(kInput) unless the text is UTF-8 without zero bytes (a JSON parser may take a zero
// byte for the end of its input).
void require_json_text(std::string_view text, const std::string& where);

}  // namespace moe::model
