#include "lib/model/config_reader.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::model {
namespace {

using json::Json;

std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string where, std::string prefix)
    : object_(&object), where_(std::move(where)), prefix_(std::move(prefix)) {}

void ConfigReader::fail(std::string_view key, const std::string& what) const {
  throw Error(ErrorCode::kInput,
              fmt::format("{}: {}{}: {}", where_, prefix_, printable(key), what));
}

bool ConfigReader::has(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

bool ConfigReader::is_null(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && found->is_null();
}

const Json* ConfigReader::find(std::string_view key) {
  known_.emplace(key);
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null() ? &*found : nullptr;
}

std::int64_t ConfigReader::to_integer(std::string_view key, const Json& value,
                                      IntRange range) const {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value.get<std::int64_t>() < range.low || value.get<std::int64_t>() > range.high) {
    fail(key, fmt::format("expected an integer from {} to {}, found {}", range.low, range.high,
                          shown(value)));
  }
  return value.get<std::int64_t>();
}

double ConfigReader::to_number(std::string_view key, const Json& value, NumberRange range) const {
  const bool in_range =
      value.is_number() && value.get<double>() <= range.high &&
      (range.low_is_open ? value.get<double>() > range.low : value.get<double>() >= range.low);
  if (!in_range) {
    fail(key, fmt::format("expected a number {} {} and at most {}, found {}",
                          range.low_is_open ? "above" : "of at least", range.low, range.high,
                          shown(value)));
  }
  return value.get<double>();
}

std::optional<std::int64_t> ConfigReader::optional_integer(std::string_view key, IntRange range) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return to_integer(key, *value, range);
}

std::int64_t ConfigReader::integer(std::string_view key, IntRange range) {
  const auto value = optional_integer(key, range);
  if (!value)
    fail(key, fmt::format("missing; expected an integer from {} to {}", range.low, range.high));
  return *value;
}

std::int32_t ConfigReader::integer32(std::string_view key, IntRange range) {
  range.high = std::min<std::int64_t>(range.high, INT32_MAX);
  return static_cast<std::int32_t>(integer(key, range));
}

std::optional<double> ConfigReader::optional_number(std::string_view key, NumberRange range) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return to_number(key, *value, range);
}

double ConfigReader::number(std::string_view key, NumberRange range) {
  const auto value = optional_number(key, range);
  if (!value) fail(key, "missing; expected a number");
  return *value;
}

bool ConfigReader::boolean(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) fail(key, "missing; expected true or false");
  if (!value->is_boolean())
    fail(key, fmt::format("expected true or false, found {}", shown(*value)));
  return value->get<bool>();
}

bool ConfigReader::boolean_or(std::string_view key, bool fallback) {
  return find(key) == nullptr ? fallback : boolean(key);
}

std::optional<std::string> ConfigReader::optional_text(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, fmt::format("expected a string, found {}", shown(*value)));
  return value->get<std::string>();
}

std::optional<std::vector<double>> ConfigReader::optional_numbers(std::string_view key,
                                                                  NumberRange range) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail(key, fmt::format("expected an array, found {}", shown(*value)));
  std::vector<double> numbers;
  for (const Json& element : *value) numbers.push_back(to_number(key, element, range));
  return numbers;
}

std::optional<std::vector<std::int64_t>> ConfigReader::optional_integers(std::string_view key,
                                                                         IntRange range) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail(key, fmt::format("expected an array, found {}", shown(*value)));
  std::vector<std::int64_t> integers;
  for (const Json& element : *value) integers.push_back(to_integer(key, element, range));
  return integers;
}

std::optional<std::vector<std::string>> ConfigReader::optional_texts(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail(key, fmt::format("expected an array, found {}", shown(*value)));
  std::vector<std::string> texts;
  for (const Json& element : *value) {
    if (!element.is_string()) fail(key, fmt::format("expected strings, found {}", shown(element)));
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

std::optional<ConfigReader> ConfigReader::optional_object(std::string_view key) {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(key, fmt::format("expected an object, found {}", shown(*value)));
  return ConfigReader(*value, where_, prefix_ + std::string(key) + ".");
}

std::int64_t ConfigReader::integer_alias(std::initializer_list<std::string_view> keys,
                                         IntRange range) {
  std::optional<std::int64_t> value;
  std::string_view value_key;
  for (const std::string_view key : keys) {
    const auto found = optional_integer(key, range);
    if (!found) continue;
    if (value && *value != *found) {
      fail(key, fmt::format("{} contradicts {} = {}", *found, value_key, *value));
    }
    value = found;
    value_key = key;
  }
  if (!value)
    fail(*keys.begin(),
         fmt::format("missing; expected an integer from {} to {}", range.low, range.high));
  return *value;
}

void ConfigReader::require_boolean(std::string_view key, bool value, std::string_view why) {
  if (find(key) != nullptr && boolean(key) != value) {
    fail(key, fmt::format("{} is not supported: {}", !value, why));
  }
}

void ConfigReader::require_text(std::string_view key,
                                std::initializer_list<std::string_view> values) {
  const auto text = optional_text(key);
  if (text && std::ranges::find(values, *text) == values.end()) {
    fail(key, fmt::format("\"{}\" is not supported; supported: {}", printable(*text),
                          fmt::join(values, ", ")));
  }
}

void ConfigReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) known_.emplace(key);
}

std::vector<std::string> ConfigReader::unknown_keys() const {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : object_->items()) {
    if (!known_.contains(key)) unknown.push_back(printable(key));
  }
  return unknown;
}

}  // namespace moe::model
