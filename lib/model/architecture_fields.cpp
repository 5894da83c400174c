#include "lib/model/architecture_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace moe::model {
namespace {

std::string spell(const std::string& prefix, ArchitectureFields::Names names) {
  std::string text;
  for (const std::string_view name : names) {
    text += text.empty() ? fmt::format("{}{}", prefix, name) : fmt::format(" (or {})", name);
  }
  return text;
}

}  // namespace

ArchitectureFields::ArchitectureFields(const json::Json& object, const std::string& where,
                                       std::string prefix)
    : reader_(object, where, prefix), object_(&object), prefix_(std::move(prefix)) {}

std::int64_t ArchitectureFields::need(Names names, IntRange range) {
  for (const std::string_view name : names) {
    if (const auto value = reader_.optional_integer(name, range)) return *value;
  }
  add_missing(spell(prefix_, names));
  return range.low;
}

std::int64_t ArchitectureFields::integer_or(Names names, std::int64_t fallback, IntRange range) {
  for (const std::string_view name : names) {
    if (const auto value = reader_.optional_integer(name, range)) return *value;
  }
  return fallback;
}

bool ArchitectureFields::need_boolean(std::string_view name) {
  if (has(name)) return reader_.boolean(name);
  add_missing(prefix_ + std::string(name));
  return false;
}

std::optional<std::string> ArchitectureFields::text(Names names) {
  for (const std::string_view name : names) {
    if (auto value = reader_.optional_text(name)) return value;
  }
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> ArchitectureFields::integers(std::string_view name,
                                                                      IntRange range) {
  return reader_.optional_integers(name, range);
}

std::optional<std::vector<std::string>> ArchitectureFields::texts(std::string_view name) {
  return reader_.optional_texts(name);
}

std::vector<std::int64_t> ArchitectureFields::per_layer(Names names, std::int64_t num_layers,
                                                        IntRange range,
                                                        std::optional<std::int64_t> fallback) {
  const auto size = static_cast<std::size_t>(num_layers);
  for (const std::string_view name : names) {
    const json::Json* value = reader_.find(name);
    if (value == nullptr) continue;
    if (!value->is_array()) {
      return std::vector<std::int64_t>(size, *reader_.optional_integer(name, range));
    }
    auto list = *reader_.optional_integers(name, range);
    if (!missing_.empty()) {  // perhaps the number of layers: what is missing is reported first
      list.resize(size, range.low);
    } else if (list.size() != size) {
      fail(name, fmt::format("{} entries for {} layers", list.size(), num_layers));
    }
    return list;
  }
  if (!fallback) add_missing(spell(prefix_, names));
  return std::vector<std::int64_t>(size, fallback.value_or(range.low));
}

std::optional<ArchitectureFields> ArchitectureFields::object(std::string_view name) {
  const json::Json* value = reader_.find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(name, "expected an object");
  return ArchitectureFields(*value, reader_.where(), fmt::format("{}{}.", prefix_, name));
}

void ArchitectureFields::add_missing(std::string what) {
  missing_.push_back(std::move(what));
}

void ArchitectureFields::require_complete() const {
  if (missing_.empty()) return;
  throw Error(ErrorCode::kInput,
              fmt::format("{}: missing {}: {}; sizes are never guessed, add {} to the file",
                          where(), missing_.size() == 1 ? "field" : "fields",
                          fmt::join(missing_, ", "), missing_.size() == 1 ? "it" : "them"));
}

}  // namespace moe::model
