#pragma once

// Reads of a config for planning: every missing field is remembered and reported together, a field
// may have several names, stand in a nested object, be a scalar or one value a layer. Internal to
// the architecture reader.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/config_parts.hpp"
#include "lib/model/config_reader.hpp"

namespace moe::model {

class ArchitectureFields {
 public:
  using Names = std::initializer_list<std::string_view>;

  // `prefix` is the path of the object in the file ("text_config.").
  ArchitectureFields(const json::Json& object, const std::string& where, std::string prefix = {});

  [[nodiscard]] bool has(std::string_view name) const { return reader_.has(name); }

  // The first name that is there; otherwise remembers it as missing and returns range.low.
  std::int64_t need(Names names, IntRange range);
  std::int32_t need32(Names names, IntRange range) {
    return static_cast<std::int32_t>(need(names, range));
  }
  std::int64_t integer_or(Names names, std::int64_t fallback, IntRange range);
  std::int32_t integer32_or(Names names, std::int32_t fallback, IntRange range) {
    return static_cast<std::int32_t>(integer_or(names, fallback, range));
  }
  bool boolean_or(std::string_view name, bool fallback) {
    return reader_.boolean_or(name, fallback);
  }
  bool need_boolean(std::string_view name);
  std::optional<std::string> text(Names names);
  std::optional<std::vector<std::int64_t>> integers(std::string_view name, IntRange range);
  std::optional<std::vector<std::string>> texts(std::string_view name);
  // A scalar for all layers, or a list with one entry a layer; missing when `fallback` is absent.
  std::vector<std::int64_t> per_layer(Names names, std::int64_t num_layers, IntRange range,
                                      std::optional<std::int64_t> fallback = std::nullopt);
  std::optional<ArchitectureFields> object(std::string_view name);

  // A field that is missing only in this combination, in words ("sliding_window (layer_types has
  // sliding_attention)").
  void add_missing(std::string what);
  [[noreturn]] void fail(std::string_view name, const std::string& what) const {
    reader_.fail(name, what);
  }
  // Throws Error(kInput) "FILE: missing field(s): a, b (or c), ..." when there are any; those of
  // objects read through this one are included.
  void require_complete() const;

  [[nodiscard]] const std::string& where() const { return reader_.where(); }
  [[nodiscard]] const json::Json& json() const { return *object_; }
  [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }

 private:
  ConfigReader reader_;
  const json::Json* object_;
  std::string prefix_;
  std::vector<std::string> missing_;
};

}  // namespace moe::model
