#pragma once

// Escaping for XML and HTML.

#include <string>
#include <string_view>

namespace moe::report {

// Safe as element text and inside a quoted attribute. Characters that XML 1.0 forbids and bytes
// that are not UTF-8 become '?'; newlines stay.
[[nodiscard]] std::string escape_markup(std::string_view text);

// JSON text safe inside a <script> element: <, > and & as \u escapes, so neither "</script>" nor
// "<!--" can end or change it.
[[nodiscard]] std::string escape_script_json(std::string_view json_text);

}  // namespace moe::report
