#pragma once

// Text as XML and HTML may hold it.

#include <string>
#include <string_view>

namespace moe {

// With entities for what would be read as markup, in element text and in a quoted attribute.
[[nodiscard]] inline std::string escape_xml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace moe
