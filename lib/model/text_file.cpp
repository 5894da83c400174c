#include "lib/model/text_file.hpp"

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::model {

std::string_view text_of(const FileMap& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

void require_json_text(std::string_view text, const std::string& where) {
  if (const std::size_t at = first_invalid_utf8(text); at != text.size()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: byte {} is not valid UTF-8", where, at));
  }
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    throw Error(ErrorCode::kInput, fmt::format("{}: not valid JSON: byte {} is zero", where, at));
  }
}

}  // namespace moe::model
