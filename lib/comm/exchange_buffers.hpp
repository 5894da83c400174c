#pragma once

// What one rank needs to run a traffic matrix: counts, offsets, buffers, and the data that proves
// that every byte arrived.

#include <cstdint>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/comm/measure.hpp"
#include "lib/comm/pattern.hpp"

namespace moe::comm {

class ExchangeBuffers {
 public:
  // Collective.
  ExchangeBuffers(Communicator& communicator, const TrafficMatrix& traffic, std::uint64_t seed);

  [[nodiscard]] const Exchange& exchange() const { return exchange_; }
  // Fresh data of this round to send, and nothing of it at the receiving end.
  void fill(std::uint64_t round);
  // Appends what is wrong at this rank; `iteration` is what it is called in the result.
  void check(std::uint64_t round, std::int64_t iteration, std::vector<WrongData>& wrong) const;

 private:
  Communicator& communicator_;
  std::uint64_t seed_;
  std::vector<std::int64_t> send_bytes_;
  std::vector<std::int64_t> send_offsets_;
  std::vector<std::int64_t> recv_bytes_;
  std::vector<std::int64_t> recv_offsets_;
  Buffer send_;
  Buffer recv_;
  Exchange exchange_;
  mutable std::vector<std::byte> host_;  // the largest part, for copies to and from buffers
};

}  // namespace moe::comm
