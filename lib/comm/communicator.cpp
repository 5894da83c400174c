#include "lib/comm/communicator.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/aligned_buffer.hpp"
#include "lib/base/check.hpp"

namespace moe::comm {

Buffer Communicator::allocate(std::int64_t size_bytes) {
  MOE_CHECK(size_bytes >= 0);
  auto bytes = std::make_shared<AlignedBytes>(size_bytes);
  return {bytes->data(), size_bytes, bytes};
}

void Communicator::copy_in(std::byte* buffer, const std::byte* host, std::int64_t size_bytes) {
  if (size_bytes > 0) std::memcpy(buffer, host, static_cast<std::size_t>(size_bytes));
}

void Communicator::copy_out(std::byte* host, const std::byte* buffer, std::int64_t size_bytes) {
  if (size_bytes > 0) std::memcpy(host, buffer, static_cast<std::size_t>(size_bytes));
}

void Communicator::all_gather(const std::byte* send, std::byte* recv, std::int64_t size_bytes) {
  const auto count = static_cast<std::size_t>(num_ranks());
  const std::vector<std::int64_t> bytes(count, size_bytes);
  const std::vector<std::int64_t> send_offsets(count, 0);
  std::vector<std::int64_t> recv_offsets(count);
  for (std::size_t i = 0; i < count; ++i) {
    recv_offsets[i] = static_cast<std::int64_t>(i) * size_bytes;
  }
  all_to_all({send, recv, bytes, send_offsets, bytes, recv_offsets});
}

void Communicator::reduce_scatter_sum(const float* send, float* recv, std::int64_t count) {
  const auto ranks = static_cast<std::size_t>(num_ranks());
  const std::int64_t block_bytes = count * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t total_bytes = block_bytes * num_ranks();
  // All ranks call with the same count: they allocate together.
  if (scratch_.size_bytes < total_bytes) scratch_ = allocate(total_bytes);
  const std::vector<std::int64_t> bytes(ranks, block_bytes);
  std::vector<std::int64_t> offsets(ranks);
  for (std::size_t i = 0; i < ranks; ++i) offsets[i] = static_cast<std::int64_t>(i) * block_bytes;
  all_to_all(
      {reinterpret_cast<const std::byte*>(send), scratch_.data, bytes, offsets, bytes, offsets});
  // In pieces that stay in the cache, through the host: the buffer may be a device's.
  constexpr std::int64_t kPiece = 4096;
  std::vector<float> sum(static_cast<std::size_t>(std::min(kPiece, count)));
  std::vector<float> part(sum.size());
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t num = std::min(kPiece, count - begin);
    const std::int64_t num_bytes = num * static_cast<std::int64_t>(sizeof(float));
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::size_t r = 0; r < ranks; ++r) {
      copy_out(reinterpret_cast<std::byte*>(part.data()),
               scratch_.data + offsets[r] + begin * static_cast<std::int64_t>(sizeof(float)),
               num_bytes);
      for (std::size_t i = 0; i < static_cast<std::size_t>(num); ++i) sum[i] += part[i];
    }
    copy_in(reinterpret_cast<std::byte*>(recv + begin),
            reinterpret_cast<const std::byte*>(sum.data()), num_bytes);
  }
}

std::string Communicator::broadcast_text(const std::string& of_rank_0) {
  return exchange_texts(rank() == 0 ? of_rank_0 : std::string()).front();
}

}  // namespace moe::comm
