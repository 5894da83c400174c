#include "lib/topology/suspects.hpp"

#include <algorithm>

#include "lib/base/check.hpp"

namespace moe::topology {
namespace {

constexpr double kMinGoodShare = 0.5;  // of a good node's pairs with other good nodes

std::size_t cell(const PairMatrix& matrix, std::int64_t from, std::int64_t to) {
  MOE_CHECK(from >= 0 && from < matrix.num_nodes && to >= 0 && to < matrix.num_nodes);
  return static_cast<std::size_t>(from * matrix.num_nodes + to);
}

// Calls visit(from, to, rate) for every pair of two nodes that was measured.
template <typename Visit>
void for_each_pair(const PairMatrix& matrix, const Visit& visit) {
  for (std::int64_t from = 0; from < matrix.num_nodes; ++from) {
    for (std::int64_t to = 0; to < matrix.num_nodes; ++to) {
      const std::optional<double> rate = matrix.rate(from, to);
      if (from != to && rate) visit(from, to, *rate);
    }
  }
}

// The median over the nodes of the best rate that each reached in pairs of this kind.
std::optional<double> reference_rate(const PairMatrix& matrix, bool is_inside) {
  std::vector<double> best(static_cast<std::size_t>(matrix.num_nodes), -1.0);
  for_each_pair(matrix, [&](std::int64_t from, std::int64_t to, double rate) {
    if (matrix.is_inside_host(from, to) != is_inside) return;
    for (const std::int64_t node : {from, to}) {
      double& value = best[static_cast<std::size_t>(node)];
      value = std::max(value, rate);
    }
  });
  std::erase_if(best, [](double value) { return value < 0.0; });
  if (best.size() < 3) return std::nullopt;
  const auto middle = best.begin() + static_cast<std::ptrdiff_t>(best.size() / 2);
  std::nth_element(best.begin(), middle, best.end());
  return *middle > 0.0 ? std::optional<double>(*middle) : std::nullopt;
}

std::optional<double> limit_of(const PairMatrix& matrix, const std::optional<double>& expected,
                               bool is_inside, double tolerance) {
  const std::optional<double> reference = expected ? expected : reference_rate(matrix, is_inside);
  if (!reference) return std::nullopt;
  return *reference * (1.0 - tolerance);
}

std::optional<double> limit_for(const PairJudgement& judgement, const PairMatrix& matrix,
                                std::int64_t from, std::int64_t to) {
  return matrix.is_inside_host(from, to) ? judgement.limit_inside_bytes_per_s
                                         : judgement.limit_between_bytes_per_s;
}

// Pairs of one direction of a node with partners that are fast with somebody.
struct Count {
  std::int64_t num_pairs = 0;
  std::int64_t num_fast = 0;
  [[nodiscard]] bool is_slow() const {
    return num_pairs > 0 &&
           static_cast<double>(num_fast) < kMinGoodShare * static_cast<double>(num_pairs);
  }
};

// What the pairs of one kind, inside hosts or between them, say of their nodes. A pair at the limit
// proves that its sender sends and its receiver receives well; what is counted against a node are
// its pairs with partners so proven.
void judge_kind(const PairMatrix& matrix, bool is_inside, double limit, PairJudgement& judgement) {
  const std::size_t n = static_cast<std::size_t>(matrix.num_nodes);
  std::vector<bool> sends_well(n, false);
  std::vector<bool> receives_well(n, false);
  const auto for_each_of_kind = [&](const auto& visit) {
    for_each_pair(matrix, [&](std::int64_t from, std::int64_t to, double rate) {
      if (matrix.is_inside_host(from, to) != is_inside) return;
      visit(static_cast<std::size_t>(from), static_cast<std::size_t>(to), rate);
    });
  };
  for_each_of_kind([&](std::size_t from, std::size_t to, double rate) {
    if (rate < limit) return;
    sends_well[from] = true;
    receives_well[to] = true;
  });
  std::vector<Count> sending(n);
  std::vector<Count> receiving(n);
  for_each_of_kind([&](std::size_t from, std::size_t to, double rate) {
    const std::int64_t is_fast = rate >= limit ? 1 : 0;
    // A partner that is slow with everybody says nothing, unless all of a node's partners are so.
    if (receives_well[to] || !sends_well[from]) {
      ++sending[from].num_pairs;
      sending[from].num_fast += is_fast;
    }
    if (sends_well[from] || !receives_well[to]) {
      ++receiving[to].num_pairs;
      receiving[to].num_fast += is_fast;
    }
  });
  for (std::size_t node = 0; node < n; ++node) {
    NodeJudgement& one = judgement.nodes[node];
    if (sending[node].num_pairs + receiving[node].num_pairs == 0) continue;
    one.is_slow_inside =
        one.is_slow_inside || (is_inside && (sending[node].is_slow() || receiving[node].is_slow()));
    one.is_slow_sending = one.is_slow_sending || sending[node].is_slow();
    one.is_slow_receiving = one.is_slow_receiving || receiving[node].is_slow();
    const bool is_slow = one.is_slow_sending || one.is_slow_receiving;
    one.state = is_slow ? NodeState::kSuspect : NodeState::kGood;
  }
}

void judge_nodes(const PairMatrix& matrix, PairJudgement& judgement) {
  // A node that was in no pair is not known to be good.
  for (NodeJudgement& one : judgement.nodes) one.state = NodeState::kSuspect;
  for_each_pair(matrix, [&](std::int64_t from, std::int64_t to, double rate) {
    for (const std::int64_t node : {from, to}) {
      NodeJudgement& one = judgement.nodes[static_cast<std::size_t>(node)];
      one.best_bytes_per_s = std::max(one.best_bytes_per_s.value_or(rate), rate);
      one.worst_bytes_per_s = std::min(one.worst_bytes_per_s.value_or(rate), rate);
    }
  });
  if (judgement.limit_between_bytes_per_s) {
    judge_kind(matrix, false, *judgement.limit_between_bytes_per_s, judgement);
  }
  if (judgement.limit_inside_bytes_per_s) {
    judge_kind(matrix, true, *judgement.limit_inside_bytes_per_s, judgement);
  }
}

void find_slow_paths(const PairMatrix& matrix, PairJudgement& judgement) {
  for_each_pair(matrix, [&](std::int64_t from, std::int64_t to, double rate) {
    const std::optional<double> limit = limit_for(judgement, matrix, from, to);
    const bool is_good =
        judgement.nodes[static_cast<std::size_t>(from)].state == NodeState::kGood &&
        judgement.nodes[static_cast<std::size_t>(to)].state == NodeState::kGood;
    if (limit && is_good && rate < *limit) judgement.slow_paths.push_back({from, to, rate, *limit});
  });
  std::stable_sort(judgement.slow_paths.begin(), judgement.slow_paths.end(),
                   [](const SlowPair& a, const SlowPair& b) {
                     return a.bytes_per_s / a.limit_bytes_per_s <
                            b.bytes_per_s / b.limit_bytes_per_s;
                   });
}

}  // namespace

PairMatrix PairMatrix::of_nodes(std::int64_t num_nodes) {
  MOE_CHECK(num_nodes >= 0 && num_nodes <= 100000);
  PairMatrix matrix;
  matrix.num_nodes = num_nodes;
  matrix.bytes_per_s.resize(static_cast<std::size_t>(num_nodes * num_nodes));
  return matrix;
}

std::optional<double> PairMatrix::rate(std::int64_t from, std::int64_t to) const {
  return bytes_per_s[cell(*this, from, to)];
}

void PairMatrix::set(std::int64_t from, std::int64_t to, std::optional<double> rate) {
  MOE_CHECK(!rate || *rate >= 0.0);
  bytes_per_s[cell(*this, from, to)] = rate;
}

bool PairMatrix::is_inside_host(std::int64_t from, std::int64_t to) const {
  if (host_of.empty()) return false;
  return host_of[static_cast<std::size_t>(from)] == host_of[static_cast<std::size_t>(to)];
}

const char* node_state_name(NodeState state) {
  switch (state) {
    case NodeState::kGood:
      return "good";
    case NodeState::kSuspect:
      return "suspect";
    case NodeState::kBad:
      return "bad";
    case NodeState::kCleared:
      return "cleared";
    case NodeState::kUntested:
      return "untested";
  }
  return "";
}

std::vector<std::int64_t> PairJudgement::in_state(NodeState state) const {
  std::vector<std::int64_t> found;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].state == state) found.push_back(static_cast<std::int64_t>(node));
  }
  return found;
}

PairJudgement find_suspects(const PairMatrix& matrix, const SuspectOptions& options) {
  MOE_CHECK(options.tolerance >= 0.0 && options.tolerance < 1.0);
  MOE_CHECK(matrix.bytes_per_s.size() ==
            static_cast<std::size_t>(matrix.num_nodes * matrix.num_nodes));
  MOE_CHECK(matrix.host_of.empty() ||
            matrix.host_of.size() == static_cast<std::size_t>(matrix.num_nodes));
  PairJudgement judgement;
  judgement.nodes.resize(static_cast<std::size_t>(matrix.num_nodes));
  judgement.limit_between_bytes_per_s =
      limit_of(matrix, options.expected_between_bytes_per_s, false, options.tolerance);
  judgement.limit_inside_bytes_per_s =
      limit_of(matrix, options.expected_inside_bytes_per_s, true, options.tolerance);
  if (!judgement.limit_between_bytes_per_s && !judgement.limit_inside_bytes_per_s) {
    judgement.reason =
        "fewer than three nodes were measured in pairs, or most pairs failed, and no expected rate "
        "was given: there is nothing to compare with";
    return judgement;
  }
  judge_nodes(matrix, judgement);
  find_slow_paths(matrix, judgement);
  return judgement;
}

std::vector<PairRound> second_pass_rounds(const PairJudgement& first, const PairMatrix& matrix) {
  const std::vector<std::int64_t> good = first.in_state(NodeState::kGood);
  std::vector<PairRound> rounds;
  if (good.empty()) return rounds;
  std::vector<std::int64_t> waiting = first.in_state(NodeState::kSuspect);
  const auto was_paired = [&](std::int64_t a, std::int64_t b) {
    return matrix.rate(a, b).has_value() || matrix.rate(b, a).has_value();
  };
  while (!waiting.empty()) {
    PairRound round;
    std::vector<std::int64_t> free = good;
    std::vector<std::int64_t> left;
    for (const std::int64_t suspect : waiting) {
      if (free.empty()) {
        left.push_back(suspect);
        continue;
      }
      const bool wants_inside = first.nodes[static_cast<std::size_t>(suspect)].is_slow_inside;
      const auto cost = [&](std::int64_t partner) {
        return (matrix.is_inside_host(suspect, partner) == wants_inside ? 0 : 2) +
               (was_paired(suspect, partner) ? 1 : 0);
      };
      const auto best =
          std::min_element(free.begin(), free.end(),
                           [&](std::int64_t a, std::int64_t b) { return cost(a) < cost(b); });
      round.emplace_back(suspect, *best);
      free.erase(best);
    }
    rounds.push_back(std::move(round));
    waiting = std::move(left);
  }
  return rounds;
}

PairJudgement judge_second_pass(const PairJudgement& first, const PairMatrix& second) {
  MOE_CHECK(first.nodes.size() == static_cast<std::size_t>(second.num_nodes));
  PairJudgement verdict = first;
  for (const std::int64_t suspect : first.in_state(NodeState::kSuspect)) {
    NodeJudgement& one = verdict.nodes[static_cast<std::size_t>(suspect)];
    one.state = NodeState::kUntested;
    bool is_slow_sending = false;
    bool is_slow_receiving = false;
    bool was_tested = false;
    for (const std::int64_t partner : first.in_state(NodeState::kGood)) {
      const std::optional<double> limit = limit_for(first, second, suspect, partner);
      if (!limit) continue;
      const std::optional<double> out = second.rate(suspect, partner);
      const std::optional<double> in = second.rate(partner, suspect);
      is_slow_sending = is_slow_sending || (out && *out < *limit);
      is_slow_receiving = is_slow_receiving || (in && *in < *limit);
      was_tested = was_tested || out || in;
    }
    if (!was_tested) continue;
    one.is_slow_sending = is_slow_sending;
    one.is_slow_receiving = is_slow_receiving;
    one.state = is_slow_sending || is_slow_receiving ? NodeState::kBad : NodeState::kCleared;
  }
  return verdict;
}

}  // namespace moe::topology
