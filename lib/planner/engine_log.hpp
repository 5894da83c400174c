#pragma once

// What an engine's start-up log says of memory: vLLM (V0, V1, CPU), SGLang, llama.cpp. Values are
// kept as printed, with half a unit of their last digit. Pure text in, values out.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/planner/overhead.hpp"

namespace moe::planner {

// A printed amount: bytes (or a count), and how far the true value may be from it.
struct Printed {
  double value = 0.0;
  double slack = 0.0;  // half a unit of the last digit printed
};

struct EngineLog {
  Engine engine = Engine::kVllm;
  std::string version;       // empty: not printed
  bool is_cpu = false;       // vLLM on a CPU
  bool has_started = false;  // the cache was made
  std::string error;         // last refusal, one line; empty: none

  // Settings, where they are printed.
  std::int32_t tp = 1;
  std::int32_t pp = 1;
  std::int32_t dp = 1;
  std::int32_t ep = 1;
  std::optional<std::int64_t> block_tokens;
  std::optional<std::int64_t> max_model_len;
  std::optional<std::int64_t> max_batched_tokens;
  std::optional<std::int64_t> max_sequences;
  std::string kv_dtype;      // "auto", "fp8_e5m2", ...; llama.cpp: of K
  std::string value_dtype;   // llama.cpp: of V
  std::string weight_dtype;  // llama.cpp: file type
  std::optional<double> utilization;

  // Per rank, the first that printed it.
  std::optional<Printed> weights_bytes;
  std::optional<Printed> kv_pool_bytes;
  std::optional<Printed> activation_bytes;
  std::optional<Printed> graph_bytes;
  std::optional<Printed> non_torch_bytes;
  std::optional<Printed> kv_tokens;
  std::optional<Printed> kv_blocks;
  std::optional<Printed> max_concurrency;
  std::optional<std::int64_t> concurrency_tokens;  // tokens of a request in that figure
  std::optional<Printed> key_bytes;                // SGLang, llama.cpp
  std::optional<Printed> value_bytes;
  std::optional<Printed> file_bytes;  // checkpoint or GGUF file

  // llama.cpp
  std::optional<std::int64_t> num_cells;
  std::optional<std::int64_t> num_sequences;
  std::optional<std::int64_t> num_streams;
  std::optional<std::int64_t> context_tokens;  // n_ctx
  bool is_unified = false;
};

// Throws Error(kInput) when no line is recognised; `where` names the file in messages.
[[nodiscard]] EngineLog parse_engine_log(std::string_view text, const std::string& where);

}  // namespace moe::planner
