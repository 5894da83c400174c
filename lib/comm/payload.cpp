#include "lib/comm/payload.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/rng.hpp"

namespace moe::comm {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::uint64_t first_word(std::uint64_t seed, const PayloadKey& key) {
  const std::uint64_t pair = static_cast<std::uint64_t>(static_cast<std::uint32_t>(key.sender))
                                 << 32 |
                             static_cast<std::uint32_t>(key.receiver);
  return Rng(seed, pair).bits_at(key.round);
}

}  // namespace

void fill_payload(std::span<std::byte> bytes, std::uint64_t seed, const PayloadKey& key) {
  std::uint64_t word = first_word(seed, key);
  std::size_t at = 0;
  for (; at + kWord <= bytes.size(); at += kWord, word += kStep) {
    std::memcpy(bytes.data() + at, &word, kWord);
  }
  if (at < bytes.size()) std::memcpy(bytes.data() + at, &word, bytes.size() - at);
}

std::optional<PayloadFault> check_payload(std::span<const std::byte> bytes, std::uint64_t seed,
                                          const PayloadKey& key) {
  std::uint64_t word = first_word(seed, key);
  std::optional<PayloadFault> fault;
  for (std::size_t at = 0; at < bytes.size(); at += kWord, word += kStep) {
    const std::size_t count = std::min(kWord, bytes.size() - at);
    if (std::memcmp(bytes.data() + at, &word, count) == 0) continue;
    std::byte expected[kWord];
    std::memcpy(expected, &word, kWord);
    for (std::size_t i = 0; i < count; ++i) {
      if (bytes[at + i] == expected[i]) continue;
      if (!fault) fault = PayloadFault{0, static_cast<std::int64_t>(at + i)};
      ++fault->num_wrong_bytes;
    }
  }
  return fault;
}

}  // namespace moe::comm
