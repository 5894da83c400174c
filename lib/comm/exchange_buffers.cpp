#include "lib/comm/exchange_buffers.hpp"

#include <algorithm>
#include <numeric>

#include "lib/comm/payload.hpp"

namespace moe::comm {
namespace {

// Parts begin at multiples of this, as an allocation would.
constexpr std::int64_t kAlignment = 16;

std::int64_t lay_out(const std::vector<std::int64_t>& bytes, std::vector<std::int64_t>& offsets) {
  std::int64_t total = 0;
  for (const std::int64_t part : bytes) {
    offsets.push_back(total);
    total += (part + kAlignment - 1) / kAlignment * kAlignment;
  }
  return total;
}

}  // namespace

ExchangeBuffers::ExchangeBuffers(Communicator& communicator, const TrafficMatrix& traffic,
                                 std::uint64_t seed)
    : communicator_(communicator), seed_(seed) {
  const int rank = communicator.rank();
  for (int peer = 0; peer < communicator.num_ranks(); ++peer) {
    send_bytes_.push_back(traffic.at(rank, peer));
    recv_bytes_.push_back(traffic.at(peer, rank));
  }
  send_ = communicator.allocate(lay_out(send_bytes_, send_offsets_));
  recv_ = communicator.allocate(lay_out(recv_bytes_, recv_offsets_));
  exchange_ = {send_.data, recv_.data, send_bytes_, send_offsets_, recv_bytes_, recv_offsets_};
  const std::int64_t first = traffic.bytes.front();
  const bool is_uniform = first > 0 && first % kAlignment == 0 &&
                          std::all_of(traffic.bytes.begin(), traffic.bytes.end(),
                                      [first](std::int64_t bytes) { return bytes == first; });
  if (is_uniform) exchange_.uniform_bytes = first;
  if (!communicator.moves_data()) return;
  const std::int64_t most = std::max(*std::max_element(send_bytes_.begin(), send_bytes_.end()),
                                     *std::max_element(recv_bytes_.begin(), recv_bytes_.end()));
  host_.resize(static_cast<std::size_t>(most));
}

void ExchangeBuffers::fill(std::uint64_t round) {
  if (!communicator_.moves_data()) return;
  for (int peer = 0; peer < communicator_.num_ranks(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    const std::span<std::byte> part(host_.data(), static_cast<std::size_t>(send_bytes_[p]));
    fill_payload(part, seed_, {communicator_.rank(), peer, round});
    communicator_.copy_in(send_.data + send_offsets_[p], part.data(), send_bytes_[p]);
  }
  for (std::size_t p = 0; p < recv_bytes_.size(); ++p) {
    std::fill_n(host_.begin(), recv_bytes_[p], std::byte{0});
    communicator_.copy_in(recv_.data + recv_offsets_[p], host_.data(), recv_bytes_[p]);
  }
}

void ExchangeBuffers::check(std::uint64_t round, std::int64_t iteration,
                            std::vector<WrongData>& wrong) const {
  if (!communicator_.moves_data()) return;
  for (int peer = 0; peer < communicator_.num_ranks(); ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    communicator_.copy_out(host_.data(), recv_.data + recv_offsets_[p], recv_bytes_[p]);
    const std::span<const std::byte> part(host_.data(), static_cast<std::size_t>(recv_bytes_[p]));
    const auto fault = check_payload(part, seed_, {peer, communicator_.rank(), round});
    if (!fault) continue;
    wrong.push_back(
        {peer, communicator_.rank(), fault->num_wrong_bytes, fault->first_offset, iteration});
  }
}

}  // namespace moe::comm
