#pragma once

// Reads memory as fast as the machine can: for machine_limits only.

#include <cstdint>

namespace moe::engine {

// The sum of `count` 64-bit words; count is a multiple of 32. The result must be used, or the
// compiler drops the loop.
[[nodiscard]] std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) noexcept;

}  // namespace moe::engine
