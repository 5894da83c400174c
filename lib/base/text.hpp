#pragma once

// Text from hostile files: what every reader needs of it, and how it goes into a one-line message.

#include <cstddef>
#include <string>
#include <string_view>

namespace moe {

// Control characters and bytes that are not UTF-8 become \xNN; more than 300 bytes are cut and
// marked "...".
[[nodiscard]] std::string printable(std::string_view text);

// Position of the first byte that is not part of well-formed UTF-8; text.size() when all is.
[[nodiscard]] std::size_t first_invalid_utf8(std::string_view text);

[[nodiscard]] inline bool is_utf8(std::string_view text) {
  return first_invalid_utf8(text) == text.size();
}

// Without the blanks, tabs and line ends around it.
[[nodiscard]] std::string_view trim(std::string_view text);

}  // namespace moe
