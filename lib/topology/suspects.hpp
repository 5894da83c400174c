#pragma once

// Which node is bad when pairs of nodes are slow? A first pass over pairs names suspects, a second
// one pairs each suspect with a node known to be good: a node that is slow with a good partner is
// bad, one that is fast with it had a bad partner or a bad path. Pure functions on rates.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moe::topology {

// Rate of each ordered pair while it ran alone or with pairs that share no node with it. Nodes may
// be hosts or ranks.
struct PairMatrix {
  std::int64_t num_nodes = 0;
  // [from][to] in bytes/s; nullopt: not measured; 0: tried and failed (time-out, wrong data).
  std::vector<std::optional<double>> bytes_per_s;
  // Host of each node when the nodes are ranks: pairs inside a host and pairs between hosts are
  // judged apart. Empty: all pairs are of one kind.
  std::vector<std::int32_t> host_of;

  [[nodiscard]] static PairMatrix of_nodes(std::int64_t num_nodes);
  [[nodiscard]] std::optional<double> rate(std::int64_t from, std::int64_t to) const;
  void set(std::int64_t from, std::int64_t to, std::optional<double> bytes_per_s);
  [[nodiscard]] bool is_inside_host(std::int64_t from, std::int64_t to) const;
};

struct SuspectOptions {
  double tolerance = 0.2;  // a pair may be this share below the reference
  // What a pair of each kind should reach. Without it: the median over the nodes of the best rate
  // of each, which holds while fewer than half of the nodes are bad.
  std::optional<double> expected_between_bytes_per_s;
  std::optional<double> expected_inside_bytes_per_s;
};

struct SlowPair {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double bytes_per_s = 0.0;  // 0: failed
  double limit_bytes_per_s = 0.0;
};

enum class NodeState : std::uint8_t {
  kGood,      // reaches the limit with others that do
  kSuspect,   // does not reach it, or was in no pair
  kBad,       // slow with a partner known to be good
  kCleared,   // suspected, but fast with a good partner
  kUntested,  // still unknown: no good partner, or the second pass did not come to it
};
[[nodiscard]] const char* node_state_name(NodeState state);

struct NodeJudgement {
  NodeState state = NodeState::kUntested;
  bool is_slow_sending = false;
  bool is_slow_receiving = false;
  bool is_slow_inside = false;  // in pairs inside its host
  // Over the pairs of the node that were measured; nullopt: none.
  std::optional<double> best_bytes_per_s;
  std::optional<double> worst_bytes_per_s;
};

struct PairJudgement {
  std::vector<NodeJudgement> nodes;
  // Between nodes that are good with others: the path between the two, not a node. Worst first.
  std::vector<SlowPair> slow_paths;
  std::optional<double> limit_between_bytes_per_s;
  std::optional<double> limit_inside_bytes_per_s;
  std::string reason;  // why nothing can be told; empty when something can

  [[nodiscard]] std::vector<std::int64_t> in_state(NodeState state) const;
};

// First pass. With two nodes and no expected rate nothing can be told apart.
[[nodiscard]] PairJudgement find_suspects(const PairMatrix& matrix, const SuspectOptions& options);

// The pairs of the second pass, in rounds; the pairs of a round share no node, so that they may run
// at once. Each suspect meets a good node, one that it was not paired with before where there is
// one, of the kind of pair that it was slow in. Empty when there are no suspects or no good nodes.
using PairRound = std::vector<std::pair<std::int64_t, std::int64_t>>;  // suspect, partner
[[nodiscard]] std::vector<PairRound> second_pass_rounds(const PairJudgement& first,
                                                        const PairMatrix& matrix);

// The verdict: `second` holds the rates of the second pass only, both directions of each pair.
[[nodiscard]] PairJudgement judge_second_pass(const PairJudgement& first, const PairMatrix& second);

}  // namespace moe::topology
