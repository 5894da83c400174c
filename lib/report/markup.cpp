#include "lib/report/markup.hpp"

#include "lib/base/xml_text.hpp"
#include "lib/report/human.hpp"

namespace moe::report {

std::string escape_markup(std::string_view text) {
  std::string out;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find('\n', begin);
    const std::size_t count = end == std::string_view::npos ? end : end - begin;
    out += escape_xml(printable(text.substr(begin, count)));
    if (end == std::string_view::npos) return out;
    out += '\n';
    begin = end + 1;
  }
}

std::string escape_script_json(std::string_view json_text) {
  std::string out;
  for (const char c : json_text) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace moe::report
