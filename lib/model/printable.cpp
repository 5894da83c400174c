#include "lib/model/printable.hpp"

#include <cstddef>

namespace moe::model {

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxBytes = 300;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 0xf];
    } else {
      out += c;
    }
  }
  if (text.size() > kMaxBytes) out += "...";
  return out;
}

}  // namespace moe::model
