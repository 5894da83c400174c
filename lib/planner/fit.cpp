#include "lib/planner/fit.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"

namespace moe::planner {
namespace {

std::int64_t share_of(std::int64_t bytes, double ratio) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(bytes) * ratio));
}

struct Room {
  std::int64_t used = 0;
  std::int64_t pool = 0;     // what remains for the cache
  std::int64_t missing = 0;  // what is lacking
};

// What each engine leaves for the cache. SGLang's fraction covers weights and cache only, the rest
// of the memory has to hold everything else; TensorRT-LLM takes its fraction of what is free.
Room room(const FitOptions& options, std::int64_t weights, std::int64_t other) {
  const std::int64_t memory = options.memory_bytes;
  const std::int64_t budget = share_of(memory, options.utilization);
  Room result;
  result.used = weights + other;
  std::int64_t left = 0;
  switch (options.overhead.engine) {
    case Engine::kSglang:
      left = std::min(budget - weights, memory - weights - other);
      break;
    case Engine::kTrtLlm:
      left = memory - weights - other;
      left = left > 0 ? share_of(left, options.utilization) : left;
      break;
    case Engine::kVllm:
    case Engine::kLlamaCpp:
      left = budget - weights - other;
      break;
  }
  result.pool = std::max<std::int64_t>(0, left);
  result.missing = std::max<std::int64_t>(0, -left);
  if (options.given_kv_bytes > 0) {
    result.missing = std::max<std::int64_t>(0, weights + other + options.given_kv_bytes - memory);
    result.pool = options.given_kv_bytes;
  }
  return result;
}

std::int64_t requests_in(std::int64_t pool, std::int64_t request) {
  return request > 0 ? pool / request : 0;
}

RankFit fit_stage(const model::Architecture& architecture, const Layout& layout,
                  const FitOptions& options, const StageWeights& weights,
                  const Overhead& overheads) {
  RankFit rank;
  rank.weights = weights;
  rank.overhead = overheads;
  rank.budget_bytes = share_of(options.memory_bytes, options.utilization);
  rank.fragmentation_bytes = share_of(rank.budget_bytes, overheads.fragmentation_ratio);
  const auto other = [&](std::int64_t ByteBand::*end) {
    return overheads.activation.*end + overheads.graphs.*end + overheads.communication.*end +
           overheads.context.*end + rank.fragmentation_bytes;
  };
  const Room value = room(options, weights.worst_rank, other(&ByteBand::value));
  const Room best = room(options, weights.worst_rank, other(&ByteBand::low));
  const Room worst = room(options, weights.worst_rank, other(&ByteBand::high));
  rank.used_bytes = value.used;
  rank.kv_pool_bytes = value.pool;
  rank.missing_bytes = value.missing;
  rank.kv = kv_per_token(architecture, layout, options.kv, weights.layers);
  rank.request_bytes =
      request_bytes(architecture, layout, options.kv, weights.layers, options.request_tokens);
  rank.max_requests = requests_in(value.pool, rank.request_bytes);
  rank.max_requests_best = requests_in(best.pool, rank.request_bytes);
  rank.max_requests_worst = requests_in(worst.pool, rank.request_bytes);
  return rank;
}

}  // namespace

FitResult fit(const model::Architecture& architecture, const Layout& layout,
              const FitOptions& options) {
  MOE_CHECK(options.request_tokens >= 0);
  if (const std::string problem = layout_problem(architecture, layout); !problem.empty()) {
    throw Error(ErrorCode::kUsage, fmt::format("layout {}: {}", describe(layout), problem));
  }
  if (options.memory_bytes <= 0) {
    throw Error(ErrorCode::kUsage, "memory of a GPU: expected more than 0 bytes");
  }
  if (!(options.utilization > 0.0) || options.utilization > 1.0) {
    throw Error(ErrorCode::kUsage, fmt::format("utilization {}: expected more than 0 and at most 1",
                                               options.utilization));
  }
  FitResult result;
  const Overhead overheads = overhead(architecture, layout, options.overhead);
  double total = 0.0;
  result.weights_fit = true;
  for (const StageWeights& weights : stage_weights(architecture, layout, options.weights)) {
    result.stages.push_back(fit_stage(architecture, layout, options, weights, overheads));
    total += weights.mean_rank * layout.stage_gpus();
    const RankFit& rank = result.stages.back();
    if (rank.missing_bytes > 0) result.weights_fit = false;
  }
  result.weight_bytes_total = static_cast<std::int64_t>(std::llround(total));
  // A stage without a cache (experts only) does not limit the requests.
  std::size_t binding = 0;
  for (std::size_t at = 1; at < result.stages.size(); ++at) {
    const RankFit& rank = result.stages[at];
    const RankFit& least = result.stages[binding];
    if (rank.missing_bytes != least.missing_bytes) {
      if (rank.missing_bytes > least.missing_bytes) binding = at;
      continue;
    }
    if (rank.request_bytes == 0) continue;
    if (least.request_bytes == 0 || rank.max_requests < least.max_requests ||
        (rank.max_requests == least.max_requests && rank.kv_pool_bytes < least.kv_pool_bytes)) {
      binding = at;
    }
  }
  result.binding_stage = binding;
  const RankFit& least = result.stages[binding];
  result.max_requests = result.weights_fit ? least.max_requests * layout.dp : 0;
  result.max_requests_best = least.max_requests_best * layout.dp;
  result.max_requests_worst = result.weights_fit ? least.max_requests_worst * layout.dp : 0;
  for (const RankFit& rank : result.stages) {
    if (rank.request_bytes == 0) continue;
    result.max_requests_best =
        std::min(result.max_requests_best, rank.max_requests_best * layout.dp);
    result.max_requests_worst =
        std::min(result.max_requests_worst, rank.max_requests_worst * layout.dp);
  }
  result.fits = result.weights_fit && result.max_requests > 0;
  return result;
}

}  // namespace moe::planner
