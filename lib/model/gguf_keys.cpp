#include "lib/model/gguf_keys.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "lib/base/text.hpp"

namespace moe::model {

GgufKeys::GgufKeys(const GgufFile& file, std::string_view architecture)
    : file_(file), prefix_(std::string(architecture) + ".") {}

void GgufKeys::fail(std::string_view key, const std::string& what) const {
  file_.fail(full(key), what);
}

std::optional<std::int64_t> GgufKeys::optional_integer(std::string_view key, IntRange range) const {
  const auto value = file_.integer(full(key));
  if (value && (*value < range.low || *value > range.high)) {
    fail(key,
         fmt::format("expected an integer from {} to {}, found {}", range.low, range.high, *value));
  }
  return value;
}

std::int32_t GgufKeys::integer32(std::string_view key, IntRange range) const {
  range.high = std::min<std::int64_t>(range.high, INT32_MAX);
  const auto value = optional_integer(key, range);
  if (!value) {
    fail(key, fmt::format("missing; expected an integer from {} to {}", range.low, range.high));
  }
  return static_cast<std::int32_t>(*value);
}

std::optional<std::int32_t> GgufKeys::uniform(std::string_view key, IntRange range) const {
  const auto values = file_.numbers(full(key));
  if (!values) return std::nullopt;
  if (values->empty()) fail(key, "is an empty list");
  for (const double value : *values) {
    if (value != values->front()) fail(key, "values that differ by layer are not supported");
  }
  const double value = values->front();
  if (!(value >= static_cast<double>(range.low) && value <= static_cast<double>(range.high)) ||
      value != std::floor(value)) {
    fail(key,
         fmt::format("expected an integer from {} to {}, found {}", range.low, range.high, value));
  }
  return static_cast<std::int32_t>(value);
}

std::int32_t GgufKeys::required_uniform(std::string_view key, IntRange range) const {
  const auto value = uniform(key, range);
  if (!value) {
    fail(key, fmt::format("missing; expected an integer from {} to {}", range.low, range.high));
  }
  return *value;
}

std::optional<double> GgufKeys::optional_number(std::string_view key, NumberRange range) const {
  const auto value = file_.number(full(key));
  if (value &&
      !((range.low_is_open ? *value > range.low : *value >= range.low) && *value <= range.high)) {
    fail(key,
         fmt::format("expected a number from {} to {}, found {}", range.low, range.high, *value));
  }
  return value;
}

double GgufKeys::number(std::string_view key, NumberRange range) const {
  const auto value = optional_number(key, range);
  if (!value) fail(key, "missing; expected a number");
  return *value;
}

std::optional<std::string> GgufKeys::text(std::string_view key) const {
  return file_.text(full(key));
}

std::optional<bool> GgufKeys::boolean(std::string_view key) const {
  return file_.boolean(full(key));
}

std::vector<bool> GgufKeys::layer_pattern(std::string_view key, std::int64_t default_period,
                                          std::size_t num_layers) const {
  if (const auto listed = file_.booleans(full(key))) {
    if (listed->size() != num_layers) {
      fail(key, fmt::format("{} entries for {} layers", listed->size(), num_layers));
    }
    return *listed;
  }
  const std::int64_t period = optional_integer(key, {1, INT32_MAX}).value_or(default_period);
  std::vector<bool> marked(num_layers);
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    marked[layer] = static_cast<std::int64_t>(layer) % period < period - 1;
  }
  return marked;
}

std::vector<double> read_gguf_factors(const GgufFile& file, std::string_view name,
                                      std::int64_t count) {
  const std::string label = fmt::format("tensor \"{}\"", name);
  const GgufTensor* tensor = file.find(name);
  if (tensor == nullptr) file.fail(label, "missing");
  if (tensor->type_id != 0 || tensor->dims != std::vector<std::int64_t>{count}) {
    file.fail(label, fmt::format("expected {} numbers of type F32", count));
  }
  const std::span<const std::byte> bytes = file.bytes(*tensor);
  std::vector<double> factors;
  for (std::int64_t i = 0; i < count; ++i) {
    float factor = 0.0F;
    std::memcpy(&factor, bytes.data() + i * static_cast<std::int64_t>(sizeof(factor)),
                sizeof(factor));
    if (!(factor > 0.0F) || !std::isfinite(factor)) {
      file.fail(label, fmt::format("element {} is {}, expected a positive number", i,
                                   static_cast<double>(factor)));
    }
    factors.push_back(static_cast<double>(factor));
  }
  return factors;
}

}  // namespace moe::model
