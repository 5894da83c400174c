#pragma once

// Who sends how much to whom. Sizes are in the terms of nccl-tests: the bytes that one rank sends
// in all, its own part included; of an uneven pattern, those of the rank that sends most.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::comm {

struct TrafficMatrix {
  int num_ranks = 0;
  std::vector<std::int64_t> bytes;  // [sender, receiver]

  [[nodiscard]] std::int64_t at(int sender, int receiver) const {
    return bytes[index(sender, receiver)];
  }
  [[nodiscard]] std::int64_t& at(int sender, int receiver) {
    return bytes[index(sender, receiver)];
  }
  [[nodiscard]] std::int64_t sent_by(int sender) const;
  [[nodiscard]] std::int64_t received_by(int receiver) const;
  [[nodiscard]] std::int64_t max_sent() const;
  [[nodiscard]] std::int64_t max_received() const;
  [[nodiscard]] TrafficMatrix transposed() const;
  bool operator==(const TrafficMatrix&) const = default;

 private:
  [[nodiscard]] std::size_t index(int sender, int receiver) const {
    return static_cast<std::size_t>(sender) * static_cast<std::size_t>(num_ranks) +
           static_cast<std::size_t>(receiver);
  }
};

// Bytes of a matrix by where they go, the own part of each rank apart. `nodes[r]` is the node of
// rank r, counted from 0.
struct TrafficSums {
  std::int64_t local_bytes = 0;  // a rank to itself
  std::int64_t intra_bytes = 0;  // between ranks of one node
  std::int64_t inter_bytes = 0;  // between nodes
  // Of the busiest rank, without its own part.
  std::int64_t max_rank_send_bytes = 0;
  std::int64_t max_rank_recv_bytes = 0;
  // Of the busiest node, to or from others.
  std::int64_t max_node_inter_bytes = 0;
};
[[nodiscard]] TrafficSums sum_traffic(const TrafficMatrix& matrix, std::span<const int> nodes);

// The same to each, rounded down to a multiple of 16 bytes a pair as nccl-tests do.
[[nodiscard]] TrafficMatrix uniform_traffic(int num_ranks, std::int64_t rank_bytes);

// Receiver of popularity rank k gets a share proportional to (k + 1)^-s of what every rank sends;
// which rank is the most popular follows from the seed. s = 0 is uniform.
[[nodiscard]] TrafficMatrix zipf_traffic(int num_ranks, std::int64_t rank_bytes, double s,
                                         std::uint64_t seed);

// A square matrix of numbers separated by blanks, one line for each sender, as nccl-tests'
// alltoallv takes it; lines that begin with # are comments. More rows and columns than ranks: the
// first ones count. Throws Error(kInput) with line and column.
struct TrafficShares {
  std::int64_t num_ranks = 0;
  std::vector<double> bytes;  // [sender, receiver], >= 0
};
[[nodiscard]] TrafficShares parse_traffic(std::string_view text, const std::string& where);
// Scaled so that the rank that sends most sends about rank_bytes; 0: as it is. Rounded down to 16
// bytes. Throws Error(kInput) when there are fewer rows than ranks or nothing is sent.
[[nodiscard]] TrafficMatrix scale_traffic(const TrafficShares& shares, int num_ranks,
                                          std::int64_t rank_bytes);

}  // namespace moe::comm
