#include "lib/comm/second_pass.hpp"

#include <algorithm>
#include <set>

#include "lib/comm/figures.hpp"

namespace moe::comm {
namespace {

using Rounds = std::vector<std::vector<std::pair<int, int>>>;

// Rank 0's rounds at every rank: for each its number of pairs, then the pairs. Where ranks share a
// host, and so its port, one pair runs at a time.
Rounds share_rounds(Communicator& communicator, const std::vector<topology::PairRound>& rounds,
                    std::span<const int> nodes) {
  const std::set<int> hosts(nodes.begin(), nodes.end());
  const bool is_single = hosts.size() < nodes.size();
  std::vector<std::int64_t> numbers;
  for (const topology::PairRound& round : rounds) {
    numbers.push_back(static_cast<std::int64_t>(round.size()));
    for (const auto& [suspect, partner] : round) {
      numbers.push_back(suspect);
      numbers.push_back(partner);
    }
  }
  numbers = from_text<std::int64_t>(communicator.broadcast_text(to_text(numbers)));
  Rounds shared;
  std::size_t at = 0;
  while (at < numbers.size()) {
    const auto count = static_cast<std::size_t>(numbers[at++]);
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 0 || is_single) shared.emplace_back();
      shared.back().emplace_back(static_cast<int>(numbers.at(at)),
                                 static_cast<int>(numbers.at(at + 1)));
      at += 2;
    }
  }
  return shared;
}

}  // namespace

topology::PairMatrix matrix_of(const std::vector<PairFigure>& figures, std::span<const int> nodes) {
  topology::PairMatrix matrix =
      topology::PairMatrix::of_nodes(static_cast<std::int64_t>(nodes.size()));
  const bool is_one_host =
      std::all_of(nodes.begin(), nodes.end(), [&](int node) { return node == nodes.front(); });
  // On one host there is one kind of pair.
  if (!is_one_host) matrix.host_of.assign(nodes.begin(), nodes.end());
  for (const PairFigure& figure : figures) {
    matrix.set(figure.sender, figure.receiver, figure.bytes_per_s);
  }
  return matrix;
}

SecondPass run_second_pass(Communicator& communicator, const PairOptions& options,
                           const std::vector<PairFigure>& first, std::span<const int> nodes,
                           double min_share) {
  SecondPass pass;
  std::vector<topology::PairRound> rounds;
  if (communicator.rank() == 0) {
    const topology::PairMatrix matrix = matrix_of(first, nodes);
    topology::SuspectOptions judging;
    judging.tolerance = 1.0 - min_share;
    pass.first = topology::find_suspects(matrix, judging);
    rounds = topology::second_pass_rounds(pass.first, matrix);
  }
  pass.figures = measure_rounds(communicator, options, share_rounds(communicator, rounds, nodes));
  if (communicator.rank() != 0) return pass;
  pass.verdict = pass.figures.empty()
                     ? pass.first
                     : topology::judge_second_pass(pass.first, matrix_of(pass.figures, nodes));
  return pass;
}

}  // namespace moe::comm
