#pragma once

// Everything on a GPU beside weights and cache: activation peak, CUDA graphs, communication
// buffers, context, fragmentation. Each is a formula with a band, and each can be given.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/architecture.hpp"
#include "lib/planner/layout.hpp"

namespace moe::planner {

enum class Engine : std::uint8_t { kVllm, kSglang, kTrtLlm, kLlamaCpp };
[[nodiscard]] Engine parse_engine(std::string_view name);
[[nodiscard]] std::string_view engine_name(Engine engine);

// low <= value <= high, bytes. is_given: taken from the user, no band.
struct ByteBand {
  std::int64_t low = 0;
  std::int64_t value = 0;
  std::int64_t high = 0;
  bool is_given = false;
  std::string how;  // formula or source, one line
};

struct OverheadOptions {
  Engine engine = Engine::kVllm;
  std::int64_t max_batched_tokens = 8192;
  std::int64_t max_sequences = 256;  // rows of logits, largest graph
  bool has_graphs = true;            // false: eager
  bool has_deepep = false;           // DeepEP low-latency buffers
  std::int64_t deepep_tokens = 128;  // num_max_dispatch_tokens_per_rank
  std::int32_t activation_bits = 16;
  // Bytes per rank; a given value replaces formula and band.
  std::optional<std::int64_t> activation_bytes;
  std::optional<std::int64_t> graph_bytes;
  std::optional<std::int64_t> communication_bytes;
  std::optional<std::int64_t> context_bytes;
  std::optional<double> fragmentation_ratio;  // of the memory the engine may use
};

struct Overhead {
  ByteBand activation;
  ByteBand graphs;
  ByteBand communication;
  ByteBand context;
  double fragmentation_ratio = 0.0;
};

[[nodiscard]] Overhead overhead(const model::Architecture& architecture, const Layout& layout,
                                const OverheadOptions& options);

// Bytes of the low-latency buffer of DeepEP on every rank (deepseek-ai/DeepEP
// csrc/legacy/config.hpp): independent of the number of ranks.
[[nodiscard]] std::int64_t deepep_low_latency_bytes(std::int64_t hidden_size,
                                                    std::int64_t num_experts,
                                                    std::int64_t max_tokens_per_rank);

// SGLang's default --mem-fraction-static for a GPU of this size, and the reserve behind it.
struct SglangReserve {
  std::int64_t reserved_bytes = 0;
  double mem_fraction_static = 0.0;
};
[[nodiscard]] SglangReserve sglang_reserve(std::int64_t memory_bytes, const Layout& layout,
                                           const OverheadOptions& options);

}  // namespace moe::planner
