#include "lib/model/tokenizer_json.hpp"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/model/unicode_text.hpp"
#include "lib/model/utf8_stream.hpp"

namespace moe::model::tokenizer_detail {

using json::Json;

void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}", where, what));
}

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxBytes = 80;
  const bool cut = text.size() > kMaxBytes;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (cut) out += "...";
  return to_valid_utf8(out) + '"';
}

JsonFields::JsonFields(const Json& node, std::string where)
    : node_(&node), where_(std::move(where)) {
  if (!node.is_object())
    refuse(where_, fmt::format("expected an object, found {}", node.type_name()));
}

std::string JsonFields::where(std::string_view field) const {
  // "file: a" + "b" -> "file: a.b"; "file" + "a" -> "file: a".
  return fmt::format("{}{}{}", where_, where_.find(": ") == std::string::npos ? ": " : ".", field);
}

const Json* JsonFields::find(const char* field) const {
  const auto it = node_->find(field);
  return it == node_->end() || it->is_null() ? nullptr : &*it;
}

const Json& JsonFields::require(const char* field) const {
  const Json* const value = find(field);
  if (value == nullptr) refuse(where_, fmt::format("field \"{}\" is missing", field));
  return *value;
}

std::string JsonFields::text(const char* field) const {
  const Json& value = require(field);
  if (!value.is_string()) {
    refuse(where(field), fmt::format("expected a string, found {}", value.type_name()));
  }
  return value.get<std::string>();
}

std::optional<std::string> JsonFields::optional_text(const char* field) const {
  if (find(field) == nullptr) return std::nullopt;
  return text(field);
}

bool JsonFields::flag(const char* field, bool absent) const {
  return find(field) == nullptr ? absent : required_flag(field);
}

bool JsonFields::required_flag(const char* field) const {
  const Json& value = require(field);
  if (!value.is_boolean()) {
    refuse(where(field), fmt::format("expected true or false, found {}", value.type_name()));
  }
  return value.get<bool>();
}

std::int64_t JsonFields::count(const char* field, std::int64_t max) const {
  const Json& value = require(field);
  const bool in_range = value.is_number_unsigned()
                            ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(max)
                            : value.is_number_integer() && value.get<std::int64_t>() >= 0;
  if (!in_range) {
    refuse(where(field),
           fmt::format("expected an integer from 0 to {}, found {}", max, quote(value.dump())));
  }
  return value.get<std::int64_t>();
}

std::string JsonFields::character(const char* field) const {
  std::string value = text(field);
  if (value.empty() || first_code_point(value).length != value.size()) {
    refuse(where(field), fmt::format("expected one character, found {}", quote(value)));
  }
  return value;
}

const Json& require_array(const JsonFields& fields, const char* field) {
  const Json& value = fields.require(field);
  if (!value.is_array()) {
    refuse(fields.where(field), fmt::format("expected a list, found {}", value.type_name()));
  }
  return value;
}

std::string element_where(const JsonFields& fields, std::string_view field, std::size_t index) {
  return fmt::format("{}[{}]", fields.where(field), index);
}

}  // namespace moe::model::tokenizer_detail
