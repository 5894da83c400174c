#pragma once

// Single values of the storage formats, in plain C++: what the packed formats mean. Used by
// packing, by the scalar level and by tests; the vector levels have their own forms of these.

#include <bit>
#include <cstdint>

namespace moe::kernels {

[[nodiscard]] inline float bf16_value(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

// Round to nearest even; a NaN stays a NaN (made quiet).
[[nodiscard]] inline std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

// IEEE binary16.
[[nodiscard]] inline float f16_value(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1fU) {
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13U));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

// OCP e4m3fn: no infinity, 0x7f and 0xff are NaN.
[[nodiscard]] inline float e4m3_value(std::uint8_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80U) << 24U;
  const std::uint32_t exponent = (bits >> 3U) & 0xfU;
  const std::uint32_t mantissa = bits & 0x7U;
  if ((bits & 0x7fU) == 0x7fU) {
    return std::bit_cast<float>(sign | 0x7fc00000U);
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-9
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 120U) << 23U) | (mantissa << 20U));
}

// OCP MX element e2m1, code 0 to 15.
[[nodiscard]] inline float e2m1_value(std::uint8_t code) noexcept {
  constexpr float kMagnitude[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float magnitude = kMagnitude[code & 0x7U];
  return (code & 0x8U) != 0 ? -magnitude : magnitude;
}

// OCP MX scale e8m0: 2^(bits - 127); 255 is NaN. 2^-127 is subnormal in f32.
[[nodiscard]] inline float e8m0_value(std::uint8_t bits) noexcept {
  if (bits == 0 || bits == 255) {
    return std::bit_cast<float>((static_cast<std::uint32_t>(bits) << 23U) | 0x00400000U);
  }
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 23U);
}

}  // namespace moe::kernels
