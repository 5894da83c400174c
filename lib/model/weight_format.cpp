#include "lib/model/weight_format.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"
#include "lib/model/gguf_types.hpp"

namespace moe::model {
namespace {

constexpr std::uint32_t kMaxGgufTypeId = 64;

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return out;
}

WeightFormat plain(std::string_view name, double bits) {
  WeightFormat format;
  format.name = name;
  format.bits = bits;
  return format;
}

WeightFormat quantized(std::string_view name, double bits, std::int64_t rows, std::int64_t cols,
                       double scale_bits) {
  WeightFormat format = plain(name, bits);
  format.block_rows = rows;
  format.block_cols = cols;
  format.scale_bits = scale_bits;
  format.is_quantized = true;
  return format;
}

std::optional<WeightFormat> fixed_format(std::string_view name) {
  if (name == "bf16" || name == "bfloat16") return plain("bf16", 16);
  if (name == "fp16" || name == "f16" || name == "float16" || name == "half") {
    return plain("fp16", 16);
  }
  if (name == "fp32" || name == "f32" || name == "float32") return plain("fp32", 32);
  if (name == "fp8") return quantized("fp8", 8, 0, 0, 32);
  if (name == "fp8-channel") return quantized("fp8-channel", 8, 1, 0, 32);
  if (name == "int8") return quantized("int8", 8, 1, 0, 16);
  if (name == "mxfp4") return quantized("mxfp4", 4, 1, 32, 8);
  if (name == "nvfp4") {
    WeightFormat format = quantized("nvfp4", 4, 1, 16, 8);
    format.tensor_bits = 32;
    return format;
  }
  return std::nullopt;
}

std::optional<std::int64_t> trailing_number(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < 1 || value > (std::int64_t{1} << 20)) return std::nullopt;
  return value;
}

// int4, int4-g128, int4-g32-sym, int8-g128: 16-bit scales, zero points as wide as a code.
std::optional<WeightFormat> integer_format(std::string_view name) {
  std::string_view rest = name;
  const bool is_symmetric = rest.ends_with("-sym");
  if (is_symmetric) rest.remove_suffix(4);
  for (const auto& [prefix, bits] : {std::pair<std::string_view, double>{"int4", 4.0},
                                     {"int8", 8.0},
                                     {"int3", 3.0},
                                     {"int2", 2.0}}) {
    std::int64_t group = 0;
    if (rest != prefix) {
      const auto found = trailing_number(rest, std::string(prefix) + "-g");
      if (!found) continue;
      group = *found;
    }
    WeightFormat format = quantized(name, bits, 1, group, 16);
    format.zero_bits = is_symmetric ? 0.0 : bits;
    return format;
  }
  return std::nullopt;
}

std::optional<WeightFormat> gguf_format(const std::string& name) {
  for (std::uint32_t id = 0; id < kMaxGgufTypeId; ++id) {
    const auto type = find_gguf_block_type(id);
    if (!type || type->block_values == 1 || lower(type->name) != name) continue;
    WeightFormat format = plain(name, static_cast<double>(type->block_bytes) * 8.0 /
                                          static_cast<double>(type->block_values));
    format.row_multiple = type->block_values;
    format.is_quantized = true;
    return format;
  }
  return std::nullopt;
}

std::optional<WeightFormat> known_format(std::string_view text) {
  std::string name = lower(text);
  if (name == "awq" || name == "gptq") name = "int4-g128";
  if (auto format = fixed_format(name)) return format;
  if (const auto block = trailing_number(name, "fp8-block")) {
    return quantized(name, 8, *block, *block, 32);
  }
  if (auto format = integer_format(name)) return format;
  return gguf_format(name);
}

double block_extent(std::int64_t block, std::int64_t extent) {
  return block > 0 ? static_cast<double>(std::min(block, extent)) : static_cast<double>(extent);
}

}  // namespace

std::int64_t matrix_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols,
                          std::int64_t count) {
  if (rows <= 0 || cols <= 0 || count <= 0) return 0;
  const std::int64_t padded = align_up(cols, format.row_multiple);
  double bits = static_cast<double>(rows) * static_cast<double>(padded) * format.bits;
  const std::int64_t row_blocks = format.block_rows > 0 ? div_ceil(rows, format.block_rows) : 1;
  const std::int64_t col_blocks = format.block_cols > 0 ? div_ceil(cols, format.block_cols) : 1;
  if (format.scale_bits + format.zero_bits > 0.0) {
    bits += static_cast<double>(row_blocks) * static_cast<double>(col_blocks) *
            (format.scale_bits + format.zero_bits);
  }
  bits += format.tensor_bits;
  if (format.has_group_index) bits += 32.0 * static_cast<double>(cols);
  // Exact: doubles hold every whole number of bits below 2^53, and larger matrices do not exist.
  const double bytes = std::ceil(bits / 8.0) * static_cast<double>(count);
  constexpr double kLargest = 9.2e18;
  return bytes < kLargest ? static_cast<std::int64_t>(bytes)
                          : std::numeric_limits<std::int64_t>::max();
}

WeightFormat parse_weight_format(std::string_view text) {
  if (auto format = known_format(text)) return *std::move(format);
  throw Error(ErrorCode::kInput,
              fmt::format("weight format \"{}\" is not known; known: {}", printable(text),
                          fmt::join(weight_format_names(), ", ")));
}

std::optional<std::string> find_weight_format(std::string_view name) {
  const auto format = known_format(name);
  if (!format) return std::nullopt;
  return format->name;
}

std::vector<std::string> weight_format_names() {
  std::vector<std::string> names = {"bf16",         "fp16",  "fp32",      "fp8",  "fp8-channel",
                                    "fp8-block128", "int8",  "int8-g128", "int4", "int4-g128",
                                    "int4-g32-sym", "mxfp4", "nvfp4"};
  for (std::uint32_t id = 0; id < kMaxGgufTypeId; ++id) {
    const auto type = find_gguf_block_type(id);
    if (!type || type->block_values == 1) continue;
    std::string name = lower(type->name);
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

double bits_per_weight(const WeightFormat& format) {
  constexpr std::int64_t kLarge = 8192;
  const double block =
      block_extent(format.block_rows, kLarge) * block_extent(format.block_cols, kLarge);
  return format.bits + (format.scale_bits + format.zero_bits) / block;
}

}  // namespace moe::model
