#pragma once

// Typed, range-checked reads of one JSON object of a config, which remember what was looked at.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lib/json/read.hpp"

namespace moe::model {

struct IntRange {
  std::int64_t low = 0;
  std::int64_t high = 0;
};

struct NumberRange {
  double low = 0.0;
  double high = 0.0;
  bool low_is_open = false;  // low itself is not allowed
};

// A key that is absent and a key that is null are the same, is_null() excepted. Every failure
// throws Error(kInput): "DIR/config.json: rope_scaling.factor: expected ..., found ...".
class ConfigReader {
 public:
  // `where` is the file, `prefix` the path of this object in it ("rope_scaling.").
  ConfigReader(const json::Json& object, std::string where, std::string prefix = {});

  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

  [[nodiscard]] bool has(std::string_view key) const;
  // Present and null: "none", where an absent key has a default.
  [[nodiscard]] bool is_null(std::string_view key) const;
  // Marks the key as known; nullptr when absent or null.
  [[nodiscard]] const json::Json* find(std::string_view key);

  [[nodiscard]] std::int64_t integer(std::string_view key, IntRange range);
  [[nodiscard]] std::int32_t integer32(std::string_view key, IntRange range);
  [[nodiscard]] std::optional<std::int64_t> optional_integer(std::string_view key, IntRange range);
  [[nodiscard]] double number(std::string_view key, NumberRange range);
  [[nodiscard]] std::optional<double> optional_number(std::string_view key, NumberRange range);
  [[nodiscard]] bool boolean(std::string_view key);
  [[nodiscard]] bool boolean_or(std::string_view key, bool fallback);
  [[nodiscard]] std::optional<std::string> optional_text(std::string_view key);
  [[nodiscard]] std::optional<std::vector<double>> optional_numbers(std::string_view key,
                                                                    NumberRange range);
  [[nodiscard]] std::optional<std::vector<std::int64_t>> optional_integers(std::string_view key,
                                                                           IntRange range);
  [[nodiscard]] std::optional<std::vector<std::string>> optional_texts(std::string_view key);
  // A nested object; its own reader shares `where`.
  [[nodiscard]] std::optional<ConfigReader> optional_object(std::string_view key);

  // The first of several names of one field; two that differ are an error naming both.
  [[nodiscard]] std::int64_t integer_alias(std::initializer_list<std::string_view> keys,
                                           IntRange range);

  // A field that this reader supports with one value only: absent or equal to it.
  void require_boolean(std::string_view key, bool value, std::string_view why);
  void require_text(std::string_view key, std::initializer_list<std::string_view> values);

  void ignore(std::initializer_list<std::string_view> keys);
  // Keys of the object that nothing looked at, in the order of the file.
  [[nodiscard]] std::vector<std::string> unknown_keys() const;

  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  [[nodiscard]] std::int64_t to_integer(std::string_view key, const json::Json& value,
                                        IntRange range) const;
  [[nodiscard]] double to_number(std::string_view key, const json::Json& value,
                                 NumberRange range) const;

  const json::Json* object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace moe::model
