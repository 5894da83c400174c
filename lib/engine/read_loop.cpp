#include "lib/engine/read_loop.hpp"

#include <array>
#include <cstddef>

#include "kernels/api.hpp"

namespace moe::engine {
namespace {

// Independent sums, so that the loop waits for loads and not for additions. Plain code; only the
// width that the compiler may use differs between the callers.
[[gnu::always_inline]] inline std::uint64_t sum_block_wise(const std::uint64_t* words,
                                                           std::int64_t count) noexcept {
  constexpr std::size_t kLanes = 32;
  std::array<std::uint64_t, kLanes> sums{};
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(kLanes)) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += words[static_cast<std::size_t>(i) + lane];
    }
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

[[gnu::target("avx2")]] std::uint64_t sum_avx2(const std::uint64_t* words,
                                               std::int64_t count) noexcept {
  return sum_block_wise(words, count);
}

}  // namespace

std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) noexcept {
  static const bool has_avx2 = kernels::isa_supported(kernels::Isa::kAvx2);
  return has_avx2 ? sum_avx2(words, count) : sum_block_wise(words, count);
}

}  // namespace moe::engine
