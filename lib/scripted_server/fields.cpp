#include "lib/scripted_server/fields.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::scripted_server {

Fields::Fields(const json::Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) fail(where_, "expected an object");
}

std::string Fields::at(const std::string& key) const {
  return fmt::format("{}/{}", where_, key);
}

void Fields::fail(const std::string& place, const std::string& what) const {
  throw Error(ErrorCode::kInput, fmt::format("{}: {}", place, what));
}

const json::Json* Fields::find(const char* key) {
  known_.emplace_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

std::optional<double> Fields::number(const char* key, NumberRange range) {
  const json::Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool is_right =
      value->is_number() && value->get<double>() >= range.min && value->get<double>() <= range.max;
  if (!is_right) {
    fail(at(key), fmt::format("expected a number from {} to {}", range.min, range.max));
  }
  return value->get<double>();
}

std::optional<std::int64_t> Fields::integer(const char* key, NumberRange range) {
  const std::optional<double> value = number(key, range);
  if (!value) return std::nullopt;
  if (std::floor(*value) != *value) fail(at(key), "expected a whole number");
  return static_cast<std::int64_t>(*value);
}

void Fields::read(const char* key, double& target, NumberRange range) {
  target = number(key, range).value_or(target);
}

void Fields::read(const char* key, std::int64_t& target, NumberRange range) {
  target = integer(key, range).value_or(target);
}

void Fields::read(const char* key, bool& target) {
  const json::Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) fail(at(key), "expected true or false");
  target = value->get<bool>();
}

void Fields::read(const char* key, std::string& target) {
  const json::Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_string()) fail(at(key), "expected a text");
  target = value->get<std::string>();
}

std::optional<std::size_t> Fields::chosen_of(const char* key,
                                             const std::vector<const char*>& names) {
  const json::Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < names.size() && value->is_string(); ++i) {
    if (value->get_ref<const std::string&>() == names[i]) return i;
  }
  fail(at(key), fmt::format("expected one of {}", fmt::join(names, ", ")));
}

void Fields::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      fail(where_, fmt::format("unknown key \"{}\"; known are {}", printable(key),
                               fmt::join(known_, ", ")));
    }
  }
}

}  // namespace moe::scripted_server
