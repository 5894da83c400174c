#pragma once

// Runs a bound checkpoint on the CPU: forward passes over batches of sequences with a KV cache. The
// result of a sequence does not depend on what else is in the batch, on how its prompt is cut into
// chunks, or on the number of threads. The router always runs in f32. No allocation happens inside
// forward() after the first call of a shape.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api.hpp"
#include "lib/base/interrupt.hpp"
#include "lib/base/progress.hpp"
#include "lib/base/thread_pool.hpp"
#include "lib/model/bound_model.hpp"

namespace moe::sysinfo {
struct NumaSystem;
}

namespace moe::engine {

struct PlacementOutcome;  // placement.hpp

// How the experts of a layer run. Fused: all of them in two parallel regions, the activation inside
// the first product. Unfused: one after another, product, activation and product apart, as a
// library of plain products would; there to be compared with.
enum class MoePath : std::uint8_t { kFused, kUnfused };

struct EngineOptions {
  int num_threads = 1;
  kernels::Isa isa = kernels::Isa::kScalar;
  // Instead of the table of `isa`: a level that the machine lacks, emulated. Not owned.
  const kernels::KernelTable* kernel_table = nullptr;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  std::int32_t max_sequences = 1;
  std::int64_t max_context = 0;  // tokens per sequence, 1 .. max_position_embeddings
  std::int64_t max_batch_tokens =
      512;  // a forward() of more tokens is cut into passes of at most this many
  std::int32_t top_k_override = 0;  // 0: the model's own top_k
  MoePath moe_path = MoePath::kFused;
  std::int64_t max_memory_bytes =
      0;  // 0: what the machine has available; checked before anything is allocated
};

// What load() allocates, known before it does.
struct MemoryEstimate {
  std::int64_t weight_bytes = 0;    // packed
  std::int64_t kv_cache_bytes = 0;  // max_sequences * max_context
  std::int64_t workspace_bytes = 0;
  [[nodiscard]] std::int64_t total_bytes() const {
    return weight_bytes + kv_cache_bytes + workspace_bytes;
  }
};

// Where the time of forward passes went, seconds of wall time.
enum class Stage : std::uint8_t { kEmbed, kAttention, kRouter, kExperts, kCombine, kDense, kHead };
inline constexpr std::size_t kNumStages = 7;
[[nodiscard]] std::string_view stage_name(Stage stage);

struct ForwardStats {
  std::array<double, kNumStages> stage_s{};
  double wall_s = 0.0;
  std::int64_t num_tokens = 0;
  // Of them the tokens of a text so far that ran once more, because LongRoPE changed its factors;
  // the last layer runs them for their keys and values only.
  std::int64_t num_recomputed_tokens = 0;
  std::int64_t weight_bytes_read =
      0;  // packed bytes of every matrix touched; experts counted once per pass
  std::int64_t expert_weight_bytes_read = 0;  // the routed experts' part of it
  std::int64_t kv_bytes_read = 0;
  std::int64_t flops = 0;  // multiply and add count as two
  // [layer][expert] tokens of this call; dense layers have empty rows.
  std::vector<std::vector<std::int32_t>> expert_tokens;
  // [layer] number of distinct experts of the last pass of this call.
  std::vector<std::int32_t> distinct_experts;
};

using SequenceId = std::int32_t;

struct BatchEntry {
  SequenceId sequence = 0;
  std::span<const std::int32_t> tokens;  // appended to the sequence; at least one
  bool all_logits = false;               // logits of every token instead of the last
};

// Told of every intermediate value, in the names of golden files ("embed",
// "layers.3.router_logits", ...). Slow; for verify.
class TensorObserver {
 public:
  TensorObserver() = default;
  TensorObserver(const TensorObserver&) = delete;
  TensorObserver& operator=(const TensorObserver&) = delete;
  virtual ~TensorObserver() = default;
  // rows = tokens of the pass; `name` without the layer prefix, layer -1 for tensors outside the
  // layers.
  virtual void on_tensor(std::string_view name, int layer, const float* data, std::int64_t rows,
                         std::int64_t cols) = 0;
};

// Told of every routing decision, after the pass of a layer. Cheap enough for timed runs.
class RoutingObserver {
 public:
  RoutingObserver() = default;
  RoutingObserver(const RoutingObserver&) = delete;
  RoutingObserver& operator=(const RoutingObserver&) = delete;
  virtual ~RoutingObserver() = default;
  // ids and weights [num_tokens, top_k], best first; tokens in batch order: sequences[t],
  // positions[t].
  virtual void on_routing(int layer, std::int64_t num_tokens, int top_k, const std::int32_t* ids,
                          const float* weights, const SequenceId* sequences,
                          const std::int64_t* positions) = 0;
};

class Engine {
 public:
  // Packs the weights (progress in bytes). Throws Error(kUsage) for options the model cannot run,
  // Error(kRuntime) when memory does not suffice (message: needed, available, what to change),
  // Error(kInput) for non-finite big weights.
  static Engine load(const model::BoundModel& model, const EngineOptions& options,
                     Progress& progress, const Interrupt& interrupt);
  // The same on memory nodes other than this machine's: those of a test.
  static Engine load(const model::BoundModel& model, const EngineOptions& options,
                     const sysinfo::NumaSystem& numa, Progress& progress,
                     const Interrupt& interrupt);
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  [[nodiscard]] static MemoryEstimate estimate(const model::ModelConfig& config,
                                               const model::BoundModel& model,
                                               const EngineOptions& options);

  [[nodiscard]] const model::ModelConfig& config() const;
  [[nodiscard]] const EngineOptions& options() const;
  [[nodiscard]] const MemoryEstimate& memory() const;

  // Sequences 0 .. max_sequences-1 exist always; reset() empties one (position 0, KV forgotten).
  void reset(SequenceId sequence);
  [[nodiscard]] std::int64_t length(SequenceId sequence) const;  // tokens in the KV cache
  // Forgets all but the first `length` tokens.
  void truncate(SequenceId sequence, std::int64_t length);

  // Appends the tokens of every entry and returns logits [rows, vocab_size], entries in order, one
  // row per entry (its last token) or one per token (all_logits). Valid until the next call. A
  // sequence may appear once per call. Throws Error(kUsage) for a token id outside the vocabulary
  // or a sequence beyond max_context.
  std::span<const float> forward(std::span<const BatchEntry> batch);

  // Of the last forward() call. Between a prompt's tokens only the last one needs the feed-forward
  // part of the last layer: the others are left out there, and in expert_tokens, unless their
  // logits are asked for or an observer is set.
  [[nodiscard]] const ForwardStats& last_stats() const;
  // Changes the path of an engine that was loaded with MoePath::kUnfused, whose buffers serve both.
  void set_moe_path(MoePath path);
  void set_tensor_observer(TensorObserver* observer);    // null: none
  void set_routing_observer(RoutingObserver* observer);  // null: none

  // The threads that forward() runs on and the block of weights that it reads, for measuring the
  // machine between passes. The weights are packed; embeddings are not among them.
  [[nodiscard]] ThreadPool& threads();
  [[nodiscard]] std::span<const std::byte> packed_weights() const;
  // Keys and values; see KvCache::blocks().
  [[nodiscard]] std::array<std::span<const std::byte>, 2> kv_cache() const;
  // Which memory nodes threads, weights and KV cache are on.
  [[nodiscard]] const PlacementOutcome& placement() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moe::engine
