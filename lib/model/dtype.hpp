#pragma once

// Element types of checkpoint tensors, with the names and widths of the safetensors format.

#include <cstdint>
#include <optional>
#include <string_view>

namespace moe::model {

enum class Dtype : std::uint8_t {
  kBool,
  kF4,
  kF6E2m3,
  kF6E3m2,
  kU8,
  kI8,
  kF8E5m2,
  kF8E4m3,
  kF8E8m0,
  kF8E4m3Fnuz,
  kF8E5m2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// "BF16" and so on, as safetensors spells it; nullopt for an unknown name.
[[nodiscard]] std::optional<Dtype> parse_dtype(std::string_view name);
[[nodiscard]] std::string_view dtype_name(Dtype dtype);
[[nodiscard]] std::int64_t dtype_bits(Dtype dtype);

// One value. bf16 and f16 as stored bits; e4m3 is the "fn" variant (no infinity, 0x7f and 0xff are
// NaN).
[[nodiscard]] float bf16_to_f32(std::uint16_t bits);
[[nodiscard]] float f16_to_f32(std::uint16_t bits);
[[nodiscard]] float f8_e4m3_to_f32(std::uint8_t bits);
// Round to nearest even; NaN stays NaN.
[[nodiscard]] std::uint16_t f32_to_bf16(float value);
[[nodiscard]] std::uint16_t f32_to_f16(float value);
// Saturates at 448.
[[nodiscard]] std::uint8_t f32_to_f8_e4m3(float value);

}  // namespace moe::model
