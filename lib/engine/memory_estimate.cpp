#include "lib/engine/memory_estimate.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/units.hpp"
#include "lib/engine/kv_cache.hpp"
#include "lib/sysinfo/host.hpp"

namespace moe::engine {
WorkspaceShape workspace_shape(const model::ModelConfig& config, const EngineOptions& options) {
  WorkspaceShape shape;
  shape.max_rows = std::min(options.max_batch_tokens, options.max_sequences * options.max_context);
  shape.max_runs = options.max_sequences;
  shape.max_context = options.max_context;
  shape.top_k = options.top_k_override > 0 ? options.top_k_override : config.moe.top_k;
  shape.num_threads = options.num_threads;
  shape.is_unfused = options.moe_path == MoePath::kUnfused;
  shape.has_bf16 = options.activations == kernels::ActivationFormat::kBf16;
  shape.has_int8 = options.activations == kernels::ActivationFormat::kInt8;
  return shape;
}

MemoryEstimate estimate_memory(const model::BoundModel& model, const EngineOptions& options,
                               const ModelWeights& weights, const PackPlan& plan) {
  MemoryEstimate estimate;
  estimate.weight_bytes = plan.total_bytes() + embedding_bytes(model);
  estimate.kv_cache_bytes =
      KvCache::total_bytes(model.config, options.max_sequences, options.max_context);
  const WorkspaceShape shape = workspace_shape(model.config, options);
  const std::int64_t logits_bytes =
      std::min<std::int64_t>(shape.max_rows, options.max_sequences) * model.config.vocab_size * 4;
  estimate.workspace_bytes =
      make_workspace(model.config, weights, shape, true).bytes + logits_bytes;
  return estimate;
}

std::int64_t available_memory_bytes() {
  return sysinfo::usable_memory_bytes(sysinfo::read_memory()).value_or(0);
}

void check_memory(const MemoryEstimate& estimate, std::int64_t max_bytes) {
  const std::int64_t limit = max_bytes > 0 ? max_bytes : available_memory_bytes();
  if (limit == 0 || estimate.total_bytes() <= limit) return;
  const auto gib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw Error(
      ErrorCode::kRuntime,
      fmt::format("needs {:.2f} GiB (weights {:.2f}, KV cache {:.2f}, workspace {:.2f}), {:.2f} "
                  "GiB {}; choose fewer sequences, a shorter context, fewer tokens per pass or a "
                  "smaller model",
                  gib(estimate.total_bytes()), gib(estimate.weight_bytes),
                  gib(estimate.kv_cache_bytes), gib(estimate.workspace_bytes), gib(limit),
                  max_bytes > 0 ? "allowed" : "available"));
}

}  // namespace moe::engine
