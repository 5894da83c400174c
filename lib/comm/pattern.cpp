#include "lib/comm/pattern.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/rng.hpp"

namespace moe::comm {
namespace {

constexpr std::int64_t kGrain = 16;  // nccl-tests round the part of each pair down to this
// Larger files are no traffic matrix.
constexpr std::int64_t kMaxMatrixRanks = 16384;
// So that the sum of a row fits into 64 bits.
constexpr double kMaxPairBytes = 1e14;

std::int64_t round_down(double bytes) {
  MOE_CHECK(bytes >= 0.0 && bytes < 9e18);
  const auto whole = static_cast<std::int64_t>(bytes);
  return whole - whole % kGrain;
}

TrafficMatrix make_matrix(int num_ranks) {
  MOE_CHECK(num_ranks >= 1);
  TrafficMatrix matrix;
  matrix.num_ranks = num_ranks;
  matrix.bytes.assign(static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_ranks), 0);
  return matrix;
}

}  // namespace

std::int64_t TrafficMatrix::sent_by(int sender) const {
  std::int64_t sum = 0;
  for (int r = 0; r < num_ranks; ++r) sum += at(sender, r);
  return sum;
}

std::int64_t TrafficMatrix::received_by(int receiver) const {
  std::int64_t sum = 0;
  for (int s = 0; s < num_ranks; ++s) sum += at(s, receiver);
  return sum;
}

std::int64_t TrafficMatrix::max_sent() const {
  std::int64_t most = 0;
  for (int s = 0; s < num_ranks; ++s) most = std::max(most, sent_by(s));
  return most;
}

std::int64_t TrafficMatrix::max_received() const {
  std::int64_t most = 0;
  for (int r = 0; r < num_ranks; ++r) most = std::max(most, received_by(r));
  return most;
}

TrafficMatrix TrafficMatrix::transposed() const {
  TrafficMatrix other = make_matrix(num_ranks);
  for (int s = 0; s < num_ranks; ++s) {
    for (int r = 0; r < num_ranks; ++r) other.at(r, s) = at(s, r);
  }
  return other;
}

TrafficSums sum_traffic(const TrafficMatrix& matrix, std::span<const int> nodes) {
  MOE_CHECK(nodes.size() == static_cast<std::size_t>(matrix.num_ranks));
  const int num_nodes = nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end()) + 1;
  std::vector<std::int64_t> node_out(static_cast<std::size_t>(num_nodes), 0);
  std::vector<std::int64_t> node_in(node_out);
  TrafficSums sums;
  for (int s = 0; s < matrix.num_ranks; ++s) {
    for (int r = 0; r < matrix.num_ranks; ++r) {
      const std::int64_t bytes = matrix.at(s, r);
      const auto from = static_cast<std::size_t>(nodes[static_cast<std::size_t>(s)]);
      const auto to = static_cast<std::size_t>(nodes[static_cast<std::size_t>(r)]);
      if (s == r) {
        sums.local_bytes += bytes;
      } else if (from == to) {
        sums.intra_bytes += bytes;
      } else {
        sums.inter_bytes += bytes;
        node_out[from] += bytes;
        node_in[to] += bytes;
      }
    }
    const std::int64_t own = matrix.at(s, s);
    sums.max_rank_send_bytes = std::max(sums.max_rank_send_bytes, matrix.sent_by(s) - own);
    sums.max_rank_recv_bytes = std::max(sums.max_rank_recv_bytes, matrix.received_by(s) - own);
  }
  for (std::size_t n = 0; n < node_out.size(); ++n) {
    sums.max_node_inter_bytes = std::max({sums.max_node_inter_bytes, node_out[n], node_in[n]});
  }
  return sums;
}

TrafficMatrix uniform_traffic(int num_ranks, std::int64_t rank_bytes) {
  TrafficMatrix matrix = make_matrix(num_ranks);
  const std::int64_t part = rank_bytes / num_ranks;
  std::fill(matrix.bytes.begin(), matrix.bytes.end(), part - part % kGrain);
  return matrix;
}

TrafficMatrix zipf_traffic(int num_ranks, std::int64_t rank_bytes, double s, std::uint64_t seed) {
  MOE_CHECK(s >= 0.0);
  std::vector<double> shares(static_cast<std::size_t>(num_ranks));
  for (std::size_t k = 0; k < shares.size(); ++k) {
    shares[k] = std::pow(static_cast<double>(k) + 1.0, -s);
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  // Which receiver is popular: a shuffle by the seed.
  Rng rng(seed);
  for (std::size_t k = shares.size(); k > 1; --k) {
    std::swap(shares[k - 1], shares[static_cast<std::size_t>(rng.next_below(k))]);
  }
  TrafficMatrix matrix = make_matrix(num_ranks);
  for (int sender = 0; sender < num_ranks; ++sender) {
    for (int r = 0; r < num_ranks; ++r) {
      const double share = shares[static_cast<std::size_t>(r)] / sum;
      matrix.at(sender, r) = round_down(static_cast<double>(rank_bytes) * share);
    }
  }
  return matrix;
}

TrafficShares parse_traffic(std::string_view text, const std::string& where) {
  TrafficShares shares;
  std::int64_t num_rows = 0;
  std::int64_t line_number = 0;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInput, fmt::format("{}:{}: {}", where, line_number, what));
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    std::int64_t num_columns = 0;
    for (;;) {
      const std::size_t begin = line.find_first_not_of(" \t\r,");
      if (begin == std::string_view::npos || line[begin] == '#') break;
      line.remove_prefix(begin);
      const std::string_view word = line.substr(0, line.find_first_of(" \t\r,"));
      const auto value = parse_number<double>(word);
      if (!value || *value < 0.0 || *value > kMaxPairBytes) {
        refuse(fmt::format("column {}: expected bytes (a number of at least 0), found \"{}\"",
                           num_columns + 1, word.substr(0, 40)));
      }
      if (++num_columns > kMaxMatrixRanks) refuse("more columns than any cluster has ranks");
      shares.bytes.push_back(*value);
      line.remove_prefix(word.size());
    }
    if (num_columns == 0) continue;
    if (num_rows == 0) shares.num_ranks = num_columns;
    if (num_columns != shares.num_ranks) {
      refuse(fmt::format("expected {} columns as in the first row, found {}", shares.num_ranks,
                         num_columns));
    }
    if (++num_rows > shares.num_ranks) refuse("more rows than columns; the matrix is square");
  }
  if (num_rows == 0 || num_rows != shares.num_ranks) {
    refuse(fmt::format("expected a square matrix, found {} rows of {} columns", num_rows,
                       shares.num_ranks));
  }
  return shares;
}

TrafficMatrix scale_traffic(const TrafficShares& shares, int num_ranks, std::int64_t rank_bytes) {
  if (shares.num_ranks < num_ranks) {
    throw Error(ErrorCode::kInput,
                fmt::format("the traffic matrix has {} rows, the run has {} ranks",
                            shares.num_ranks, num_ranks));
  }
  const auto value = [&](int s, int r) {
    return shares.bytes[static_cast<std::size_t>(s) * static_cast<std::size_t>(shares.num_ranks) +
                        static_cast<std::size_t>(r)];
  };
  double most = 0.0;
  for (int s = 0; s < num_ranks; ++s) {
    double sum = 0.0;
    for (int r = 0; r < num_ranks; ++r) sum += value(s, r);
    most = std::max(most, sum);
  }
  if (!(most > 0.0)) {
    throw Error(ErrorCode::kInput, "the traffic matrix sends nothing between the ranks of the run");
  }
  // Shares first: a scale from the smallest numbers there are would be infinite.
  const double unit = rank_bytes > 0 ? most : 1.0;
  const double scale = rank_bytes > 0 ? static_cast<double>(rank_bytes) : 1.0;
  TrafficMatrix matrix = make_matrix(num_ranks);
  for (int s = 0; s < num_ranks; ++s) {
    for (int r = 0; r < num_ranks; ++r) matrix.at(s, r) = round_down(value(s, r) / unit * scale);
  }
  return matrix;
}

}  // namespace moe::comm
