#include "lib/comm/pairs.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lib/base/check.hpp"
#include "lib/base/clock.hpp"
#include "lib/comm/exchange_buffers.hpp"
#include "lib/comm/figures.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::comm {
namespace {

constexpr std::int64_t kLatencyBytes = 8;

using Pair = std::pair<int, int>;

std::vector<std::vector<Pair>> rounds_of(int num_ranks, std::span<const int> nodes) {
  std::vector<std::vector<Pair>> rounds = pair_rounds(num_ranks);
  const std::set<int> distinct(nodes.begin(), nodes.end());
  if (distinct.size() == nodes.size()) return rounds;
  std::vector<std::vector<Pair>> single;
  for (const std::vector<Pair>& round : rounds) {
    for (const Pair& pair : round) single.push_back({pair});
  }
  return single;
}

// Time at this rank of one direction of all pairs of a round.
double time_round(Communicator& communicator, const TrafficMatrix& traffic, std::int64_t repeats) {
  const SteadyClock clock;
  const ExchangeBuffers buffers(communicator, traffic, 0);
  std::vector<double> times_s;
  // The first one opens the connection and is not counted.
  for (std::int64_t i = 0; i <= repeats; ++i) {
    communicator.barrier();
    const double begin_s = clock.now_s();
    communicator.all_to_all(buffers.exchange());
    if (i > 0) times_s.push_back(clock.now_s() - begin_s);
  }
  return stats::median(times_s);
}

TrafficMatrix only(int num_ranks, const std::vector<Pair>& pairs, bool is_reverse,
                   std::int64_t bytes) {
  TrafficMatrix traffic = uniform_traffic(num_ranks, 0);
  for (const auto& [a, b] : pairs) {
    traffic.at(is_reverse ? b : a, is_reverse ? a : b) = bytes;
  }
  return traffic;
}

double median_rate(const std::vector<PairFigure>& pairs) {
  std::vector<double> rates;
  for (const PairFigure& pair : pairs) rates.push_back(pair.bytes_per_s);
  return rates.empty() ? 0.0 : stats::median(rates);
}

// What pairs of this kind reach: the median over ranks of the best rate of each. The median over
// pairs would already be that of the slow ones when one node of four is slow both ways.
double reachable_rate(const std::vector<PairFigure>& pairs) {
  std::map<int, double> best;
  for (const PairFigure& pair : pairs) {
    best[pair.sender] = std::max(best[pair.sender], pair.bytes_per_s);
    best[pair.receiver] = std::max(best[pair.receiver], pair.bytes_per_s);
  }
  std::vector<double> rates;
  for (const auto& [rank, rate] : best) rates.push_back(rate);
  return rates.empty() ? 0.0 : stats::median(rates);
}

void judge_node(const std::vector<PairFigure>& pairs, std::span<const int> nodes, int node,
                bool is_sending, double min_share, PairVerdict& verdict) {
  std::vector<PairFigure> with;
  std::vector<PairFigure> without;
  for (const PairFigure& pair : pairs) {
    const int from = nodes[static_cast<std::size_t>(pair.sender)];
    const int to = nodes[static_cast<std::size_t>(pair.receiver)];
    if ((is_sending ? from : to) == node) with.push_back(pair);
    if (from != node && to != node) without.push_back(pair);
  }
  if (with.empty() || without.empty()) return;
  const double rate = median_rate(with);
  const double others = median_rate(without);
  if (rate < min_share * others) verdict.nodes.push_back({node, is_sending, rate, others});
}

}  // namespace

std::vector<std::vector<Pair>> pair_rounds(int num_ranks) {
  // With an odd number one rank rests in each round: it meets the seat that nobody has.
  const int seats = num_ranks + num_ranks % 2;
  std::vector<int> circle(static_cast<std::size_t>(seats));
  std::iota(circle.begin(), circle.end(), 0);
  std::vector<std::vector<Pair>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    std::vector<Pair> pairs;
    for (int i = 0; i < seats / 2; ++i) {
      const int a = circle[static_cast<std::size_t>(i)];
      const int b = circle[static_cast<std::size_t>(seats - 1 - i)];
      if (a < num_ranks && b < num_ranks) pairs.push_back({std::min(a, b), std::max(a, b)});
    }
    rounds.push_back(std::move(pairs));
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

std::vector<PairFigure> measure_pairs(Communicator& communicator, const PairOptions& options,
                                      std::span<const int> nodes) {
  return measure_rounds(communicator, options, rounds_of(communicator.num_ranks(), nodes));
}

std::vector<PairFigure> measure_rounds(Communicator& communicator, const PairOptions& options,
                                       const std::vector<std::vector<Pair>>& rounds) {
  const int num_ranks = communicator.num_ranks();
  std::vector<PairFigure> figures;
  for (const std::vector<Pair>& round : rounds) {
    const bool stops = options.interrupt != nullptr && options.interrupt->requested();
    if (!communicator.broadcast_text(stops ? "stop" : "").empty()) break;
    for (const bool is_reverse : {false, true}) {
      const double latency_s = time_round(
          communicator, only(num_ranks, round, is_reverse, kLatencyBytes), options.num_repeats);
      const double time_s = time_round(
          communicator, only(num_ranks, round, is_reverse, options.bytes), options.num_repeats);
      const std::vector<std::string> texts =
          communicator.exchange_texts(to_text(std::vector<double>{latency_s, time_s}));
      if (communicator.rank() != 0) continue;
      for (const auto& [a, b] : round) {
        PairFigure figure{is_reverse ? b : a, is_reverse ? a : b, 0.0, 0.0};
        // The receiver knows when the bytes were there; a sender may only have handed them on.
        const auto times = from_text<double>(texts[static_cast<std::size_t>(figure.receiver)]);
        figure.latency_s = times.at(0);
        figure.bytes_per_s = static_cast<double>(options.bytes) / std::max(times.at(1), 1e-9);
        figures.push_back(figure);
      }
    }
  }
  if (options.progress != nullptr) options.progress->end();
  return figures;
}

PairVerdict judge_pairs(const std::vector<PairFigure>& pairs, std::span<const int> nodes,
                        double min_share) {
  PairVerdict verdict;
  const std::set<int> distinct(nodes.begin(), nodes.end());
  std::vector<int> units(nodes.begin(), nodes.end());
  if (distinct.size() == 1) std::iota(units.begin(), units.end(), 0);
  std::vector<PairFigure> between;
  std::vector<PairFigure> inside;
  for (const PairFigure& pair : pairs) {
    const bool is_inside = units[static_cast<std::size_t>(pair.sender)] ==
                           units[static_cast<std::size_t>(pair.receiver)];
    (is_inside ? inside : between).push_back(pair);
  }
  for (const std::vector<PairFigure>& group : {between, inside}) {
    const double reachable = reachable_rate(group);
    for (const PairFigure& pair : group) {
      if (pair.bytes_per_s < min_share * reachable) verdict.slow.push_back(pair);
    }
  }
  std::sort(verdict.slow.begin(), verdict.slow.end(),
            [](const auto& a, const auto& b) { return a.bytes_per_s < b.bytes_per_s; });
  verdict.reachable_bytes_per_s = reachable_rate(between.empty() ? inside : between);
  for (const int unit : std::set<int>(units.begin(), units.end())) {
    judge_node(between, units, unit, true, min_share, verdict);
    judge_node(between, units, unit, false, min_share, verdict);
  }
  std::sort(verdict.nodes.begin(), verdict.nodes.end(), [](const auto& a, const auto& b) {
    return a.bytes_per_s / a.others_bytes_per_s < b.bytes_per_s / b.others_bytes_per_s;
  });
  return verdict;
}

}  // namespace moe::comm
