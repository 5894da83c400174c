#pragma once

// Bytes whose every word says from whom, to whom, of which round and at which place it is: a part
// that is lost, stale, shifted or swapped cannot pass for right.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace moe::comm {

struct PayloadKey {
  int sender = 0;
  int receiver = 0;
  std::uint64_t round = 0;
};

// Word i of the stream is hash(seed, key) + i x an odd constant, so two places of one stream always
// differ and two streams agree by chance in 2^-64.
void fill_payload(std::span<std::byte> bytes, std::uint64_t seed, const PayloadKey& key);

struct PayloadFault {
  std::int64_t num_wrong_bytes = 0;
  std::int64_t first_offset = 0;
};
[[nodiscard]] std::optional<PayloadFault> check_payload(std::span<const std::byte> bytes,
                                                        std::uint64_t seed, const PayloadKey& key);

}  // namespace moe::comm
