#include "lib/json/write.hpp"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/atomic_file.hpp"
#include "lib/base/error.hpp"

namespace moe::json {
namespace {

// The pointer of the first number that is not finite, empty text for the root; nullptr when all
// are.
const Json* find_not_finite(const Json& value, std::string& pointer) {
  if (value.is_number_float()) return std::isfinite(value.get<double>()) ? nullptr : &value;
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      std::string deeper = pointer_to(pointer, key);
      if (const Json* found = find_not_finite(member, deeper)) {
        pointer = std::move(deeper);
        return found;
      }
    }
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      std::string deeper = pointer_to(pointer, std::to_string(i));
      if (const Json* found = find_not_finite(value[i], deeper)) {
        pointer = std::move(deeper);
        return found;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::string pointer_to(const std::string& parent, const std::string& key) {
  std::string pointer = parent + '/';
  for (const char c : key) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
  return pointer;
}

void require_finite(const Json& document, const std::string& what) {
  std::string pointer;
  if (const Json* bad = find_not_finite(document, pointer)) {
    throw Error(ErrorCode::kRuntime,
                fmt::format("{}: {} is {}, and JSON has no such number", what,
                            pointer.empty() ? "the document" : pointer, bad->get<double>()));
  }
}

std::string dump(const Json& document, const std::string& what, const WriteOptions& options) {
  require_finite(document, what);
  return document.dump(options.indent, ' ', false, Json::error_handler_t::replace);
}

void write_file(const std::filesystem::path& path, const Json& document,
                const WriteOptions& options) {
  write_file_atomically(path, dump(document, path.string(), options) + '\n');
}

}  // namespace moe::json
