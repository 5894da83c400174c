#pragma once

// Does it fit: bytes by part on the fullest rank of every stage, the cache that remains, the
// requests that fit into it, and which rank decides.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/kv.hpp"
#include "lib/planner/layout.hpp"
#include "lib/planner/overhead.hpp"
#include "lib/planner/weights.hpp"

namespace moe::planner {

struct FitOptions {
  std::int64_t memory_bytes = 0;  // that one GPU shows
  double utilization = 0.9;       // share the engine may use (vLLM: gpu_memory_utilization)
  WeightOptions weights;
  KvOptions kv;
  OverheadOptions overhead;
  // Tokens a request holds at its end (prompt and output), for concurrency.
  std::int64_t request_tokens = 4096;
  // The cache pool, when it is given instead of what remains (vLLM: --kv-cache-memory-bytes).
  std::int64_t given_kv_bytes = 0;
};

// The fullest rank of one pipeline stage.
struct RankFit {
  StageWeights weights;
  Overhead overhead;
  std::int64_t fragmentation_bytes = 0;
  std::int64_t budget_bytes = 0;   // memory * utilization
  std::int64_t used_bytes = 0;     // weights and overhead
  std::int64_t kv_pool_bytes = 0;  // budget - used; 0 when negative
  std::int64_t missing_bytes = 0;  // used - budget when positive
  KvPerToken kv;
  std::int64_t request_bytes = 0;  // one request at its end
  std::int64_t max_requests = 0;   // on this rank
  // With the overhead at the low and at the high end of its band.
  std::int64_t max_requests_best = 0;
  std::int64_t max_requests_worst = 0;
};

struct FitResult {
  std::vector<RankFit> stages;
  std::size_t binding_stage = 0;
  bool weights_fit = false;  // weights and overhead leave room for a cache
  bool fits = false;         // and for at least one request
  // Of the whole deployment: the binding rank's, times the dp replicas of the attention.
  std::int64_t max_requests = 0;
  std::int64_t max_requests_best = 0;
  std::int64_t max_requests_worst = 0;
  std::int64_t weight_bytes_total = 0;  // over all GPUs, copies included
  [[nodiscard]] const RankFit& binding() const { return stages[binding_stage]; }
};

// Throws Error(kUsage) for a layout that no engine runs (layout_problem() says why).
[[nodiscard]] FitResult fit(const model::Architecture& architecture, const Layout& layout,
                            const FitOptions& options);

}  // namespace moe::planner
