#pragma once

// Integer arithmetic on sizes: checked where an input decides the operands, and divisions that say
// how they round.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lib/base/check.hpp"

namespace moe {

// An id or a count that is known not to be negative, where a container wants its own type.
[[nodiscard]] constexpr std::size_t as_index(std::int32_t value) {
  return static_cast<std::size_t>(value);
}

[[nodiscard]] constexpr double as_real(std::int64_t value) {
  return static_cast<double>(value);
}

// nullopt on overflow.
[[nodiscard]] inline std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

[[nodiscard]] inline std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// Rounds up. a >= 0, b > 0.
[[nodiscard]] constexpr std::int64_t div_ceil(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Division that must not leave a remainder.
[[nodiscard]] inline std::int64_t div_exact(std::int64_t a, std::int64_t b) {
  MOE_CHECK(b != 0 && a % b == 0);
  return a / b;
}

// The smallest multiple of `alignment` that is >= value. value >= 0, alignment > 0.
[[nodiscard]] constexpr std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
  return div_ceil(value, alignment) * alignment;
}

}  // namespace moe
