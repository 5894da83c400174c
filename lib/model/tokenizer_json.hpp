#pragma once

// Typed access to one component of tokenizer.json; every refusal says where in the file it stands.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lib/json/read.hpp"

namespace moe::model::tokenizer_detail {

// `where` is a path such as "dir/tokenizer.json: pre_tokenizer.pretokenizers[1]".
[[noreturn]] void refuse(const std::string& where, const std::string& what);

// Text of the file in a message: control characters escaped, cut after 80 bytes.
[[nodiscard]] std::string quote(std::string_view text);

// The fields of a JSON object. Absent and null are the same, as in the reference reader.
class JsonFields {
 public:
  // Refuses anything but an object. `node` must outlive this.
  JsonFields(const json::Json& node, std::string where);

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] std::string where(std::string_view field) const;

  [[nodiscard]] const json::Json* find(const char* field) const;
  [[nodiscard]] const json::Json& require(const char* field) const;

  [[nodiscard]] std::string text(const char* field) const;
  [[nodiscard]] std::optional<std::string> optional_text(const char* field) const;
  [[nodiscard]] bool flag(const char* field, bool absent) const;
  [[nodiscard]] bool required_flag(const char* field) const;
  // 0 <= value <= max
  [[nodiscard]] std::int64_t count(const char* field, std::int64_t max) const;
  // Exactly one character.
  [[nodiscard]] std::string character(const char* field) const;

 private:
  const json::Json* node_;
  std::string where_;
};

// Refuses anything but an array.
[[nodiscard]] const json::Json& require_array(const JsonFields& fields, const char* field);
[[nodiscard]] std::string element_where(const JsonFields& fields, std::string_view field,
                                        std::size_t index);

}  // namespace moe::model::tokenizer_detail
