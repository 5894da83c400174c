#include "lib/json/read.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/text.hpp"

namespace moe::json {
namespace {

// Builds the document event by event; refuses what nlohmann's own parser lets pass.
class StrictBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  StrictBuilder(const std::string& where, const ReadLimits& limits)
      : where_(where), limits_(limits) {}

  bool null() { return add(Json(nullptr)); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(number_integer_t value) { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t& text) {
    if (!std::isfinite(value)) fail(fmt::format("number {} is too large", text));
    return add(Json(value));
  }
  bool string(string_t& value) { return add(Json(std::move(value))); }
  bool binary(binary_t&) { fail("binary value"); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(string_t& name) {
    if (!stack_.back().keys.insert(name).second)
      fail(fmt::format("duplicate key \"{}\"", printable(name)));
    stack_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    std::string reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..." -> the part in words.
    if (const auto at = reason.find("] "); at != std::string::npos) reason = reason.substr(at + 2);
    fail(fmt::format("not valid JSON at byte {}: {}", position, printable(reason)));
  }

  [[nodiscard]] Json take() { return std::move(root_); }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;  // lookup in an ordered object is linear
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: {}", where_, what));
  }

  bool add(Json&& value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().value.is_array()) {
      stack_.back().value.push_back(std::move(value));
    } else {
      // push_back would look the key up again; it is known to be new.
      stack_.back().value.get_ref<Json::object_t&>().emplace_back(std::move(stack_.back().key),
                                                                  std::move(value));
    }
    return true;
  }

  bool open(Json&& value) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      fail(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    stack_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(stack_.back().value);
    stack_.pop_back();
    return add(std::move(value));
  }

  const std::string& where_;
  const ReadLimits& limits_;
  std::vector<Level> stack_;
  Json root_;
};

// Turns the bare literals Infinity and -Infinity outside strings into strings.
std::string quote_infinity(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      out += c;
      if (c == '\\' && at + 1 < text.size()) out += text[++at];
      if (c == '"') in_string = false;
      continue;
    }
    const std::string_view rest = text.substr(at);
    const bool negative = rest.starts_with("-Infinity");
    if (negative || rest.starts_with("Infinity")) {
      out += negative ? "\"-Infinity\"" : "\"Infinity\"";
      at += negative ? 8 : 7;
      continue;
    }
    if (c == '"') in_string = true;
    out += c;
  }
  return out;
}

}  // namespace

Json parse(std::string_view text, const std::string& where, const ReadLimits& limits) {
  if (static_cast<std::int64_t>(text.size()) > limits.max_bytes) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {} bytes, more than the limit of {}", where,
                                               text.size(), limits.max_bytes));
  }
  if (text.empty()) throw Error(ErrorCode::kInput, fmt::format("{}: the file is empty", where));
  // The parser takes a zero byte for the end of its input and checks UTF-8 inside strings only.
  if (const std::size_t at = std::min(first_invalid_utf8(text), text.find('\0'));
      at < text.size()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected UTF-8 text, found byte 0x{:02x} at offset {}", where,
                            static_cast<unsigned char>(text[at]), at));
  }
  StrictBuilder builder(where, limits);
  if (limits.allow_infinity_literal) {
    const std::string quoted = quote_infinity(text);
    Json::sax_parse(quoted, &builder);
  } else {
    Json::sax_parse(text, &builder);
  }
  return builder.take();
}

Json parse_file(const std::string& path, const ReadLimits& limits) {
  const FileMap file{std::filesystem::path(path)};
  const auto bytes = file.bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, limits);
}

}  // namespace moe::json
