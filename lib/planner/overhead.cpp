#include "lib/planner/overhead.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/base/text.hpp"
#include "lib/base/units.hpp"

namespace moe::planner {
namespace {

// vLLM splits a larger batch for its fused MoE kernel (VLLM_FUSED_MOE_CHUNK_SIZE).
constexpr std::int64_t kFusedMoeChunk = 32768;
// Residual, hidden state, input and output of a sub-layer that live at once.
constexpr double kResidualCopies = 4.0;
// Logits in FP32 and one copy that the sampler sorts.
constexpr double kLogitCopies = 2.0;
// llm-d-planner measured 5.5 GiB (dense) and 7.4 to 8 GiB (MoE) on H100 with graphs included; the
// formula counts live tensors, the allocator and the profile run hold more.
constexpr double kActivationLow = 0.6;
constexpr double kActivationHigh = 2.0;
constexpr double kActivationHighExtra = 1.5 * kGib;
// Seen in start-up logs: 0.58 GiB (DeepSeek-V4-Flash, 3090s) to 6.24 GiB (Qwen3.6-35B with a
// draft); ranges of 38 piecewise and 22 full graphs.
constexpr double kGraphLow = 0.3 * kGib;
constexpr double kGraphBase = 0.5 * kGib;
constexpr double kGraphPerSequence = 2.0 * kMib;
constexpr double kGraphHigh = 3.0;  // times the value
// aiconfigurator: 342 MiB for two ranks, 392 MiB for more; llm-d-planner: 0.45 GiB more than one
// GPU.
constexpr double kNcclTwo = 342.0 * kMib;
constexpr double kNcclMore = 392.0 * kMib;
// llm-d-planner: 0.15 GiB outside of torch on one H100.
constexpr double kContextLow = 0.15 * kGib;
constexpr double kContextValue = 0.35 * kGib;
constexpr double kContextHigh = 0.8 * kGib;
constexpr double kFragmentation = 0.01;

ByteBand band(double low, double value, double high, std::string how) {
  const auto whole = [](double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); };
  return {whole(low), whole(value), whole(high), false, std::move(how)};
}

ByteBand given(std::int64_t bytes) {
  return {bytes, bytes, bytes, true, "given"};
}

struct Widths {
  double moe = 0.0;    // bytes of the fused MoE scratch
  double mixer = 0.0;  // elements of a token's projections on a rank
  double dense = 0.0;  // elements of a token's dense part on a rank
};

Widths widest(const model::Architecture& architecture, const Layout& layout, double tokens,
              double bytes) {
  Widths widths;
  const auto hidden = static_cast<double>(architecture.hidden_size);
  for (const model::LayerSpec& layer : architecture.layers) {
    const model::FfnSpec& ffn = layer.ffn;
    if (ffn.kind == model::FfnKind::kMoe) {
      // Selections that reach this rank when routing is even.
      const double rows = tokens * layout.dp * ffn.top_k / layout.ep;
      const double width = static_cast<double>(ffn.expert_width) / layout.expert_tp();
      const double input = ffn.expert_input;
      const double inner = ffn.is_gated ? 2.0 * width : width;
      widths.moe = std::max(widths.moe, rows * (std::max(inner, input) + width) * bytes);
    }
    widths.dense = std::max(widths.dense, 3.0 * ffn.dense_width / layout.tp);
    const model::MixerSpec& mixer = layer.mixer;
    const double heads = static_cast<double>(mixer.num_heads) / layout.tp;
    const double kv_heads = std::max(1.0, static_cast<double>(mixer.num_kv_heads) / layout.tp);
    widths.mixer = std::max(widths.mixer, heads * (mixer.qk_head_dim + mixer.v_head_dim) +
                                              kv_heads * (mixer.qk_head_dim + mixer.v_head_dim));
  }
  widths.mixer = std::max(widths.mixer, hidden);
  return widths;
}

ByteBand activation(const model::Architecture& architecture, const Layout& layout,
                    const OverheadOptions& options) {
  const auto tokens = static_cast<double>(std::min(options.max_batched_tokens, kFusedMoeChunk));
  const double bytes = options.activation_bits / 8.0;
  const Widths widths = widest(architecture, layout, tokens, bytes);
  const auto all_tokens = static_cast<double>(options.max_batched_tokens);
  const double stream = all_tokens * bytes *
                        (kResidualCopies * static_cast<double>(architecture.hidden_size) +
                         std::max(widths.mixer, widths.dense));
  const double logits = static_cast<double>(options.max_sequences) *
                        static_cast<double>(architecture.vocab_size) * 4.0 * kLogitCopies;
  const double value = widths.moe + stream + logits;
  return band(kActivationLow * value, value, kActivationHigh * value + kActivationHighExtra,
              fmt::format("fused MoE scratch {:.2f} GiB + residual stream {:.2f} GiB + logits "
                          "{:.2f} GiB at {} tokens and {} sequences",
                          widths.moe / kGib, stream / kGib, logits / kGib,
                          options.max_batched_tokens, options.max_sequences));
}

ByteBand graphs(const OverheadOptions& options) {
  if (!options.has_graphs || options.engine == Engine::kLlamaCpp) {
    return band(0, 0, 0, "no CUDA graphs");
  }
  const double value = kGraphBase + kGraphPerSequence * static_cast<double>(std::min<std::int64_t>(
                                                            options.max_sequences, 512));
  return band(kGraphLow, value, kGraphHigh * value,
              "0.5 GiB + 2 MiB a captured sequence; logs show 0.58 to 6.24 GiB");
}

ByteBand communication(const model::Architecture& architecture, const Layout& layout,
                       const OverheadOptions& options) {
  double value = 0.0;
  std::string how = "one GPU";
  if (layout.gpus() > 1) {
    value = layout.gpus() == 2 ? kNcclTwo : kNcclMore;
    how = "NCCL 342 MiB for two ranks, 392 MiB for more";
  }
  double low = 0.4 * value;
  double high = 1.6 * value;
  if (options.has_deepep && layout.ep > 1) {
    std::int32_t experts = 0;
    for (const model::LayerSpec& layer : architecture.layers) {
      experts = std::max(experts, layer.ffn.num_experts);
    }
    const auto buffer = static_cast<double>(deepep_low_latency_bytes(
        architecture.hidden_size, experts + layout.redundant_experts, options.deepep_tokens));
    value += buffer;
    low += buffer;
    high += buffer;
    how += fmt::format(" + DeepEP low-latency buffer {:.3f} GiB", buffer / kGib);
  }
  return band(low, value, high, how);
}

}  // namespace

Engine parse_engine(std::string_view name) {
  if (name == "vllm") return Engine::kVllm;
  if (name == "sglang") return Engine::kSglang;
  if (name == "trtllm" || name == "tensorrt-llm") return Engine::kTrtLlm;
  if (name == "llamacpp" || name == "llama.cpp") return Engine::kLlamaCpp;
  throw Error(ErrorCode::kUsage,
              fmt::format("engine \"{}\" is not known; known: vllm, sglang, trtllm, llamacpp",
                          printable(name)));
}

std::string_view engine_name(Engine engine) {
  switch (engine) {
    case Engine::kVllm:
      return "vllm";
    case Engine::kSglang:
      return "sglang";
    case Engine::kTrtLlm:
      return "trtllm";
    case Engine::kLlamaCpp:
      return "llamacpp";
  }
  return "";
}

Overhead overhead(const model::Architecture& architecture, const Layout& layout,
                  const OverheadOptions& options) {
  Overhead result;
  result.activation = options.activation_bytes ? given(*options.activation_bytes)
                                               : activation(architecture, layout, options);
  result.graphs = options.graph_bytes ? given(*options.graph_bytes) : graphs(options);
  result.communication = options.communication_bytes ? given(*options.communication_bytes)
                                                     : communication(architecture, layout, options);
  result.context = options.context_bytes
                       ? given(*options.context_bytes)
                       : band(kContextLow, kContextValue, kContextHigh,
                              "driver context and libraries; 0.15 GiB measured beside torch on one "
                              "H100");
  result.fragmentation_ratio = options.fragmentation_ratio.value_or(kFragmentation);
  return result;
}

std::int64_t deepep_low_latency_bytes(std::int64_t hidden_size, std::int64_t num_experts,
                                      std::int64_t max_tokens_per_rank) {
  const std::int64_t scales = hidden_size / 128 * 4;
  const std::int64_t dispatch = 16 + std::max(2 * hidden_size, hidden_size + scales);
  const std::int64_t combine = scales + 2 * hidden_size;
  const std::int64_t all = num_experts * max_tokens_per_rank;
  const std::int64_t send = std::max(max_tokens_per_rank * dispatch, all * combine);
  const std::int64_t receive = std::max(all * dispatch, all * combine);
  return 2 * send + 2 * receive + 2 * align_up(4 * num_experts, 128);
}

SglangReserve sglang_reserve(std::int64_t memory_bytes, const Layout& layout,
                             const OverheadOptions& options) {
  const double memory = static_cast<double>(memory_bytes) / kMib;
  const auto graph_batch = static_cast<double>(options.max_sequences);
  double reserved =
      512.0 + 1.5 * static_cast<double>(std::max<std::int64_t>(options.max_batched_tokens, 2048)) +
      2.0 * graph_batch + 1024.0 * layout.tp * layout.pp / 8.0;
  if (layout.dp > 1) {
    reserved += 3.0 * graph_batch * layout.dp;
    if (options.max_sequences > 300) reserved += 1.5 * graph_batch * layout.dp;
  }
  if (memory > 60.0 * 1024.0) reserved = std::max(reserved, 10.0 * 1024.0);
  SglangReserve result;
  result.reserved_bytes = static_cast<std::int64_t>(reserved * kMib);
  const double fraction = memory > 0.0 ? (memory - reserved) / memory : 0.0;
  result.mem_fraction_static = std::max(0.0, std::round(fraction * 1000.0) / 1000.0);
  return result;
}

}  // namespace moe::planner
