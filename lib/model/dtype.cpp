#include "lib/model/dtype.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "lib/base/check.hpp"

namespace moe::model {
namespace {

struct DtypeEntry {
  std::string_view name;
  std::int64_t bits;
};

// In the order of the enumerators.
constexpr std::array<DtypeEntry, 22> kDtypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

const DtypeEntry& entry(Dtype dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  MOE_CHECK(index < kDtypes.size());
  return kDtypes[index];
}

}  // namespace

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (std::size_t index = 0; index < kDtypes.size(); ++index) {
    if (kDtypes[index].name == name) return static_cast<Dtype>(index);
  }
  return std::nullopt;
}

std::string_view dtype_name(Dtype dtype) {
  return entry(dtype).name;
}

std::int64_t dtype_bits(Dtype dtype) {
  return entry(dtype).bits;
}

float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact in f32
    const float value = static_cast<float>(mantissa) * 0x1.0p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float f8_e4m3_to_f32(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t exponent = (bits >> 3) & 0xfu;
  const std::uint32_t mantissa = bits & 0x7u;
  if (exponent == 0xf && mantissa == 0x7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1.0p-9f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  const float magnitude = std::fabs(value);
  // 65520 is halfway between the largest f16 (65504) and the next step: the tie goes to infinity.
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x1.0p-14f) {
    // Subnormal: adding 2^-1 * ulp-aligned 0.5 lets the f32 adder round to a multiple of 2^-24.
    const float rounded = magnitude + 0.5f;
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(0.5f)));
  }
  const std::uint32_t magnitude_bits = bits & 0x7fffffffu;
  const std::uint32_t rounded =
      (magnitude_bits - (112u << 23) + 0xfffu + ((magnitude_bits >> 13) & 1u)) >> 13;
  return static_cast<std::uint16_t>(sign | rounded);
}

std::uint8_t f32_to_f8_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80u);
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7fu);
  const float magnitude = std::fabs(value);
  if (magnitude >= 448.0f) return static_cast<std::uint8_t>(sign | 0x7eu);
  if (magnitude < 0x1.0p-6f) {
    // Multiples of 2^-9: 2^14 has an ulp of 2^-9 in f32.
    const float rounded = magnitude + 0x1.0p14f;
    return static_cast<std::uint8_t>(
        sign | (std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(0x1.0p14f)));
  }
  const std::uint32_t magnitude_bits = bits & 0x7fffffffu;
  const std::uint32_t rounded =
      (magnitude_bits - (120u << 23) + 0x7ffffu + ((magnitude_bits >> 20) & 1u)) >> 20;
  return static_cast<std::uint8_t>(sign | (rounded > 0x7eu ? 0x7eu : rounded));
}

}  // namespace moe::model
