#include "lib/comm/moe_traffic.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/rng.hpp"
#include "lib/routing/open_input.hpp"

namespace moe::comm {
namespace {

std::int64_t copy_bytes(std::int64_t hidden, double element_bytes) {
  return align_up(static_cast<std::int64_t>(std::ceil(static_cast<double>(hidden) * element_bytes)),
                  16);
}

// Ranks of each node in order, and each rank's number on its node.
struct NodeMap {
  explicit NodeMap(std::span<const int> nodes) : node_of(nodes.begin(), nodes.end()) {
    const int num_nodes = *std::max_element(nodes.begin(), nodes.end()) + 1;
    ranks.resize(static_cast<std::size_t>(num_nodes));
    for (std::size_t r = 0; r < nodes.size(); ++r) {
      std::vector<int>& members = ranks[static_cast<std::size_t>(nodes[r])];
      local.push_back(members.size());
      members.push_back(static_cast<int>(r));
    }
  }

  [[nodiscard]] int node(int rank) const { return node_of[static_cast<std::size_t>(rank)]; }
  // Who takes in a node what this rank sends there.
  [[nodiscard]] int forwarder(int sender, int node) const {
    const std::vector<int>& members = ranks[static_cast<std::size_t>(node)];
    return members[local[static_cast<std::size_t>(sender)] % members.size()];
  }

  std::vector<int> node_of;
  std::vector<std::vector<int>> ranks;
  std::vector<std::size_t> local;
};

TrafficMatrix empty_matrix(int num_ranks) {
  return uniform_traffic(num_ranks, 0);
}

// Copies instead of bytes in every matrix.
struct CopyCounts {
  std::vector<TrafficMatrix> stages;
  std::int64_t num_selections = 0;
};

CopyCounts count_flat(const TokenRoutes& routes, std::int64_t tokens_per_rank,
                      std::int64_t experts_per_rank, int num_ranks) {
  CopyCounts counts{{empty_matrix(num_ranks)}, 0};
  for (std::int64_t slot = 0; slot < static_cast<std::int64_t>(routes.experts.size()); ++slot) {
    const std::int32_t expert = routes.experts[static_cast<std::size_t>(slot)];
    if (expert < 0) continue;
    const int sender = static_cast<int>(slot / routes.top_k / tokens_per_rank);
    ++counts.stages[0].at(sender, static_cast<int>(expert / experts_per_rank));
    ++counts.num_selections;
  }
  return counts;
}

CopyCounts count_deduplicated(const TokenRoutes& routes, std::int64_t tokens_per_rank,
                              std::int64_t experts_per_rank, const NodeMap& map) {
  const int num_ranks = static_cast<int>(map.node_of.size());
  CopyCounts counts{{empty_matrix(num_ranks), empty_matrix(num_ranks)}, 0};
  std::set<int> targets;
  std::set<int> nodes;
  for (std::int64_t token = 0; token < routes.num_tokens(); ++token) {
    const int sender = static_cast<int>(token / tokens_per_rank);
    targets.clear();
    nodes.clear();
    for (std::int64_t k = 0; k < routes.top_k; ++k) {
      const std::int32_t expert =
          routes.experts[static_cast<std::size_t>(token * routes.top_k + k)];
      if (expert < 0) continue;
      ++counts.num_selections;
      targets.insert(static_cast<int>(expert / experts_per_rank));
    }
    for (const int target : targets) {
      const int node = map.node(target);
      const bool is_remote = node != map.node(sender);
      const int holder = is_remote ? map.forwarder(sender, node) : sender;
      if (is_remote && nodes.insert(node).second) ++counts.stages[0].at(sender, holder);
      ++counts.stages[1].at(holder, target);
    }
  }
  return counts;
}

TrafficMatrix times(TrafficMatrix matrix, std::int64_t bytes) {
  for (std::int64_t& count : matrix.bytes) count *= bytes;
  return matrix;
}

}  // namespace

std::int64_t MoeShape::dispatch_copy_bytes() const {
  return copy_bytes(hidden, dispatch_element_bytes);
}

std::int64_t MoeShape::combine_copy_bytes() const {
  return copy_bytes(hidden, combine_element_bytes);
}

TokenRoutes zipf_routes(const MoeShape& shape, int num_ranks, double s, std::uint64_t seed) {
  const auto num_experts = static_cast<std::size_t>(shape.num_experts);
  std::vector<double> weights(num_experts);
  for (std::size_t e = 0; e < num_experts; ++e) {
    weights[e] = std::pow(static_cast<double>(e) + 1.0, -s);
  }
  Rng rng(seed);
  for (std::size_t e = num_experts; e > 1; --e) {
    std::swap(weights[e - 1], weights[static_cast<std::size_t>(rng.next_below(e))]);
  }
  TokenRoutes routes;
  routes.top_k = shape.top_k;
  const std::int64_t num_tokens = shape.tokens_per_rank * num_ranks;
  // The top_k largest of log(u) / weight are a draw without repetition by these weights (Efraimidis
  // and Spirakis 2006).
  std::vector<std::pair<double, std::int32_t>> keys(num_experts);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::size_t e = 0; e < num_experts; ++e) {
      keys[e] = {std::log(1.0 - rng.next_uniform()) / weights[e], static_cast<std::int32_t>(e)};
    }
    const auto middle = keys.begin() + shape.top_k;
    std::partial_sort(keys.begin(), middle, keys.end(), std::greater<>());
    for (auto key = keys.begin(); key != middle; ++key) routes.experts.push_back(key->second);
  }
  return routes;
}

TraceRoutes trace_routes(const std::string& path, std::int64_t layer_idx, std::int64_t num_tokens) {
  routing::RoutingInput input = routing::open_input(path);
  if (!input.tokens) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: holds counts of experts; who sends what to whom takes the experts "
                            "of each token",
                            path));
  }
  const auto num_layers = static_cast<std::int64_t>(input.info.layers.size());
  if (layer_idx >= num_layers) {
    throw Error(ErrorCode::kUsage, fmt::format("--trace-layer: the trace has {} layers, counted "
                                               "from 0; found {}",
                                               num_layers, layer_idx));
  }
  TraceRoutes result;
  result.num_experts = input.info.num_experts;
  routing::TokenBlock block;
  std::vector<std::int32_t>& experts = result.routes.experts;
  while (result.num_distinct_tokens < num_tokens && input.tokens->next(block)) {
    result.routes.top_k = block.top_k;
    for (std::int64_t t = 0; t < block.num_tokens && result.num_distinct_tokens < num_tokens; ++t) {
      const std::int32_t* ids = block.ids_of(t, layer_idx);
      experts.insert(experts.end(), ids, ids + block.top_k);
      ++result.num_distinct_tokens;
    }
  }
  if (result.num_distinct_tokens == 0) {
    throw Error(ErrorCode::kInput, fmt::format("{}: the trace has no token", path));
  }
  const auto wanted = static_cast<std::size_t>(num_tokens * result.routes.top_k);
  const std::size_t found = experts.size();
  experts.reserve(wanted);
  while (experts.size() < wanted) experts.push_back(experts[experts.size() - found]);
  return result;
}

MoeStages plan_moe(const MoeShape& shape, const TokenRoutes& routes, std::span<const int> nodes,
                   bool is_deduplicated) {
  const int num_ranks = static_cast<int>(nodes.size());
  MOE_CHECK(routes.num_tokens() == shape.tokens_per_rank * num_ranks);
  if (shape.num_experts % num_ranks != 0) {
    throw Error(ErrorCode::kUsage, fmt::format("--experts: {} experts do not divide by {} ranks",
                                               shape.num_experts, num_ranks));
  }
  const std::int64_t experts_per_rank = shape.num_experts / num_ranks;
  const CopyCounts counts =
      is_deduplicated
          ? count_deduplicated(routes, shape.tokens_per_rank, experts_per_rank, NodeMap(nodes))
          : count_flat(routes, shape.tokens_per_rank, experts_per_rank, num_ranks);
  MoeStages stages;
  stages.num_selections = counts.num_selections;
  stages.logical_dispatch_bytes = counts.num_selections * shape.dispatch_copy_bytes();
  stages.logical_combine_bytes = counts.num_selections * shape.combine_copy_bytes();
  for (const TrafficMatrix& copies : counts.stages) {
    stages.dispatch.push_back(times(copies, shape.dispatch_copy_bytes()));
    stages.combine.insert(stages.combine.begin(),
                          times(copies.transposed(), shape.combine_copy_bytes()));
  }
  return stages;
}

TrafficSums sum_stages(const std::vector<TrafficMatrix>& stages, std::span<const int> nodes) {
  TrafficSums sums;
  for (const TrafficMatrix& stage : stages) {
    const TrafficSums part = sum_traffic(stage, nodes);
    sums.local_bytes += part.local_bytes;
    sums.intra_bytes += part.intra_bytes;
    sums.inter_bytes += part.inter_bytes;
    sums.max_rank_send_bytes += part.max_rank_send_bytes;
    sums.max_rank_recv_bytes += part.max_rank_recv_bytes;
    sums.max_node_inter_bytes += part.max_node_inter_bytes;
  }
  return sums;
}

}  // namespace moe::comm
