#pragma once

// FNV-1a, 64 bits: names contents in reports, splits measurements, seeds by name. Not against an
// adversary.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace moe {

class Fnv1a64 {
 public:
  constexpr void add(std::uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  constexpr void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add(std::to_integer<std::uint8_t>(byte));
  }
  constexpr void add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint8_t>(c));
  }
  [[nodiscard]] constexpr std::uint64_t value() const { return hash_; }
  // "fnv1a64:0123456789abcdef", as reports write it.
  [[nodiscard]] std::string to_string() const;

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

[[nodiscard]] constexpr std::uint64_t fnv1a64(std::string_view text) {
  Fnv1a64 hash;
  hash.add(text);
  return hash.value();
}

}  // namespace moe
