#pragma once

// Reads of the keys "ARCHITECTURE.KEY" of a GGUF file in ranges. Internal to the config reader.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/config_reader.hpp"
#include "lib/model/gguf_file.hpp"

namespace moe::model {

// Every failure throws Error(kInput) naming the file and the whole key.
class GgufKeys {
 public:
  GgufKeys(const GgufFile& file, std::string_view architecture);

  [[nodiscard]] const GgufFile& file() const { return file_; }
  [[nodiscard]] std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  [[nodiscard]] bool has(std::string_view key) const { return file_.has(full(key)); }
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

  [[nodiscard]] std::optional<std::int64_t> optional_integer(std::string_view key,
                                                             IntRange range) const;
  [[nodiscard]] std::int32_t integer32(std::string_view key, IntRange range) const;
  // One value for all layers: a number, or a list of equal ones.
  [[nodiscard]] std::optional<std::int32_t> uniform(std::string_view key, IntRange range) const;
  [[nodiscard]] std::int32_t required_uniform(std::string_view key, IntRange range) const;
  [[nodiscard]] std::optional<double> optional_number(std::string_view key,
                                                      NumberRange range) const;
  [[nodiscard]] double number(std::string_view key, NumberRange range) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  // A number of layers after which a pattern repeats, or a truth value per layer: whether each of
  // `num_layers` layers is marked. Of a period P, the first P - 1 of each P layers are.
  [[nodiscard]] std::vector<bool> layer_pattern(std::string_view key, std::int64_t default_period,
                                                std::size_t num_layers) const;

 private:
  const GgufFile& file_;
  std::string prefix_;
};

// `count` positive numbers of a tensor of type F32 that the configuration depends on.
[[nodiscard]] std::vector<double> read_gguf_factors(const GgufFile& file, std::string_view tensor,
                                                    std::int64_t count);

}  // namespace moe::model
