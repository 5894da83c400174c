#include "lib/client_reports/json_values.hpp"

#include <nlohmann/json.hpp>

#include "lib/base/text.hpp"

namespace moe::client_reports {
namespace {

using json::Json;

constexpr double kMaxCount = 9e15;

}  // namespace

const Json* member(const Json& object, std::initializer_list<const char*> path) {
  const Json* at = &object;
  for (const char* key : path) {
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

std::optional<double> number(const Json& object, std::initializer_list<const char*> path) {
  const Json* value = member(object, path);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const auto result = value->get<double>();
  return std::isfinite(result) ? std::optional(result) : std::nullopt;
}

std::optional<std::int64_t> count(const Json& object, std::initializer_list<const char*> path) {
  const std::optional<double> value = number(object, path);
  if (!value || *value < 0.0 || *value > kMaxCount) return std::nullopt;
  return static_cast<std::int64_t>(std::llround(*value));
}

std::string text(const Json& object, std::initializer_list<const char*> path) {
  const Json* value = member(object, path);
  if (value == nullptr || !value->is_string()) return {};
  return printable(value->get_ref<const std::string&>());
}

std::vector<double> numbers(const Json& object, std::initializer_list<const char*> path) {
  std::vector<double> values;
  const Json* array = member(object, path);
  if (array == nullptr || !array->is_array()) return values;
  values.reserve(array->size());
  for (const Json& one : *array) {
    if (one.is_number() && std::isfinite(one.get<double>())) values.push_back(one.get<double>());
  }
  return values;
}

}  // namespace moe::client_reports
