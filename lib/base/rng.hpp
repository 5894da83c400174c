#pragma once

// Seeded, counter-based random numbers: value i of stream (seed, stream) is a pure function of the
// three, so any part of a sequence can be made on any thread and on any machine with the same
// result. The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood 2014). Not for
// cryptography.

#include <cmath>
#include <cstdint>
#include <numbers>

namespace moe {

class Rng {
 public:
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0)
      : key_(mix(seed ^ mix(stream + 0x9e3779b97f4a7c15ULL))) {}

  // Random bits of position `index`; does not move the sequence.
  [[nodiscard]] std::uint64_t bits_at(std::uint64_t index) const {
    return mix(key_ + (index + 1) * 0x9e3779b97f4a7c15ULL);
  }

  [[nodiscard]] std::uint64_t next_bits() { return bits_at(counter_++); }

  // Uniform in [0, 1).
  [[nodiscard]] double next_uniform() { return to_uniform(next_bits()); }

  // Uniform integer in [0, bound); bound > 0. Bias below 2^-32 for bounds below 2^32.
  [[nodiscard]] std::uint64_t next_below(std::uint64_t bound) {
    return multiply_high(next_bits(), bound);
  }

  // Standard normal (Box-Muller, one value per call).
  [[nodiscard]] double next_normal() {
    const double u1 = 1.0 - next_uniform();
    const double u2 = next_uniform();
    return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
  }

  [[nodiscard]] static double to_uniform(std::uint64_t bits) {
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
  }

 private:
  // The upper 64 bits of a 128-bit product.
  [[nodiscard]] static std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64);
  }

  [[nodiscard]] static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace moe
