#include "lib/planner/measured_json.hpp"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"

namespace moe::planner {
namespace {

[[noreturn]] void fail(const std::string& where, const char* key, const std::string& expected) {
  throw Error(ErrorCode::kInput, fmt::format("{}: expected \"{}\" to be {}", where, key, expected));
}

const json::Json* find(const json::Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected an object with \"{}\", found {}",
                                               where, key, object.type_name()));
  }
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

const json::Json& array_at(const json::Json& object, const char* key, const std::string& where) {
  const json::Json* value = find(object, key, where);
  if (value == nullptr || !value->is_array()) fail(where, key, "an array");
  return *value;
}

const json::Json& object_at(const json::Json& object, const char* key, const std::string& where) {
  const json::Json* value = find(object, key, where);
  if (value == nullptr || !value->is_object()) fail(where, key, "an object");
  return *value;
}

std::string text_at(const json::Json& object, const char* key, const std::string& where) {
  const json::Json* value = find(object, key, where);
  if (value == nullptr || !value->is_string()) fail(where, key, "a text");
  return value->get<std::string>();
}

double number_at(const json::Json& object, const char* key, double min, double max,
                 const std::string& where) {
  const json::Json* value = find(object, key, where);
  if (value == nullptr || !value->is_number()) {
    fail(where, key, fmt::format("a number from {} to {}", min, max));
  }
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    fail(where, key, fmt::format("a number from {} to {}, found {}", min, max, number));
  }
  return number;
}

double number_or(const json::Json& object, const char* key, double otherwise, double min,
                 double max, const std::string& where) {
  const json::Json* value = find(object, key, where);
  if (value == nullptr || value->is_null()) return otherwise;
  return number_at(object, key, min, max, where);
}

std::string text_or(const json::Json& object, const char* key, const std::string& otherwise,
                    const std::string& where) {
  const json::Json* value = find(object, key, where);
  if (value == nullptr || value->is_null()) return otherwise;
  return text_at(object, key, where);
}

}  // namespace moe::planner
