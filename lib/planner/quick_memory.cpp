// Memory rows of the quick formulas: experts, cache, requests, formats, peaks.

#include <cmath>

#include <fmt/format.h>

#include "lib/planner/quick_parts.hpp"

namespace moe::planner::quick {
namespace {

// Average parameters as a marketing name counts them: "8x22B" is read as 8 experts of 22 B.
double named_total(const Geometry& g) {
  return g.experts * g.active_parameters;
}

double quick_expert_bytes(const Geometry& g, const QuickInputs& in) {
  return g.hidden * g.ffn * in.bytes_per_weight * kPracticalRatio;
}

double quick_free_bytes(const Geometry& g, const QuickInputs& in) {
  return in.hbm_bytes - g.experts * quick_expert_bytes(g, in) - in.system_bytes;
}

}  // namespace

void add_memory_rows(const model::Architecture& architecture, const Geometry& g,
                     const QuickInputs& in, std::vector<QuickRow>& rows) {
  const double bytes = in.bytes_per_weight;
  const double ranks = in.num_ranks;
  rows.push_back({"memory.parameters", "Parameters", "experts x parameters of one",
                  "sum over all weights", "1", named_total(g), g.total_parameters,
                  "Attention, embedding and norms exist once, not once an expert."});
  rows.push_back({"memory.one_matrix", "One expert in one layer", "hidden x ffn x bytes",
                  fmt::format("{:g} x hidden x ffn x bytes", g.num_matrices), "bytes",
                  g.hidden * g.ffn * bytes, g.expert_elements * bytes,
                  "An expert is gate, up and down: the short formula counts one matrix."});
  rows.push_back({"memory.one_expert", "One expert, the practical figure",
                  "hidden x ffn x bytes x 3/4",
                  fmt::format("{:g} x hidden x ffn x bytes", g.num_matrices), "bytes",
                  quick_expert_bytes(g, in), g.expert_elements * bytes,
                  "No mechanism takes a quarter of the bytes away."});
  rows.push_back({"memory.expert_column", "One expert in all layers", "hidden x ffn x bytes",
                  "matrices x hidden x ffn x MoE layers x bytes", "bytes", g.hidden * g.ffn * bytes,
                  g.expert_elements * g.moe_layers * bytes,
                  "Every MoE layer has its own experts."});
  rows.push_back({"memory.experts_per_rank", fmt::format("Experts on one of {} GPUs", in.num_ranks),
                  "experts x hidden x ffn x bytes / P",
                  "matrices x hidden x ffn x experts x MoE layers x bytes / P", "bytes",
                  g.experts * g.hidden * g.ffn * bytes / ranks,
                  g.all_expert_elements * bytes / ranks,
                  "One matrix of one layer is counted, not all matrices of all layers."});
  rows.push_back({"memory.all_experts", "All experts", "experts x the practical figure",
                  "matrices x hidden x ffn x experts x MoE layers x bytes", "bytes",
                  g.experts * quick_expert_bytes(g, in), g.all_expert_elements * bytes,
                  "One layer is counted, with a quarter of one matrix gone."});
  rows.push_back({"memory.all_experts_int8", "All experts in INT8",
                  "experts x the practical figure / 2", "one byte a weight", "bytes",
                  g.experts * quick_expert_bytes(g, in) / bytes, g.all_expert_elements,
                  "Halving is right, what is halved is not; scales add 0.2 to 20 % by group "
                  "size."});
  rows.push_back({"memory.weights", "Weights beside the cache",
                  "experts x the practical figure + system share", "all weights as stored", "bytes",
                  g.experts * quick_expert_bytes(g, in) + in.system_bytes,
                  static_cast<double>(architecture.weight_bytes()),
                  "Attention and embedding are left out, and the experts with most of their "
                  "layers."});
}

void add_cache_rows(const model::Architecture& architecture, const Geometry& g,
                    const QuickInputs& in, std::vector<QuickRow>& rows) {
  const auto context = static_cast<double>(in.context_tokens);
  const auto whole = static_cast<double>(in.context_tokens + in.output_tokens);
  rows.push_back({"cache.request",
                  fmt::format("KV cache of a request of {} tokens", in.context_tokens),
                  "2 x hidden x layers x 2 x bytes",
                  "2 x KV heads x head size x layers x bytes x "
                  "tokens (MLA: latent + rope)",
                  "bytes", 2.0 * g.hidden * g.layers * 2.0 * 2.0, g.kv_token_bytes * context,
                  "The number of tokens is missing, hidden size stands for the width of the KV "
                  "heads, and K and V are counted twice."});
  rows.push_back({"cache.request_with_output",
                  fmt::format("The same with {} generated tokens", in.output_tokens), "8 to 12 MB",
                  "bytes of a token x all tokens", "bytes", kGenerationKvBytes,
                  g.kv_token_bytes * whole, "The cache grows with every token in every layer."});
  rows.push_back({"cache.depends_on_routing",
                  "Does the cache depend on the experts chosen (1: yes)", "yes", "no", "1", 1.0,
                  0.0,
                  "Keys and values belong to attention; experts keep nothing between tokens."});
  const double free = quick_free_bytes(g, in);
  rows.push_back({"cache.requests_in_free_memory",
                  "Requests in the memory that the short formula leaves free", "free / 10 MB",
                  "free / bytes of a request", "1", free / kGenerationKvBytes,
                  std::floor(free / (g.kv_token_bytes * whole)),
                  "Even if that memory were free, a request takes far more of it."});
  FitOptions options = in.fit;
  options.request_tokens = in.context_tokens + in.output_tokens;
  for (const std::int32_t tp : {1, 2, 4, 8}) {
    Layout layout;
    layout.tp = tp;
    if (!layout_problem(architecture, layout).empty()) continue;
    const FitResult result = fit(architecture, layout, options);
    rows.push_back({fmt::format("cache.requests_tp{}", tp),
                    fmt::format("Requests at once on {} GPU{}", tp, tp == 1 ? "" : "s"),
                    "(HBM - experts - system) / KV, for one GPU",
                    "min over ranks of (usable HBM - weights - activation - graphs - buffers) / "
                    "block-rounded KV",
                    "1", free / kGenerationKvBytes, static_cast<double>(result.max_requests),
                    result.fits ? "Weights take most of the memory, and the cache the rest."
                                : "The weights alone do not leave room for one request."});
  }
  rows.push_back({"offload.one_expert", "Time to fetch one expert over the host link",
                  "3/4 x hidden x ffn x bytes / rate", "bytes of the expert as stored / rate", "s",
                  quick_expert_bytes(g, in) / in.host_link_bytes_per_s,
                  g.one_expert_bytes / in.host_link_bytes_per_s,
                  "The division is right, the size is not."});
}

void add_format_rows(const Geometry& g, const QuickInputs& in, std::vector<QuickRow>& rows) {
  // 4 bits, a 16-bit scale and a 4-bit zero point for 128 weights.
  constexpr double kInt4GroupBits = 4.0 + (16.0 + 4.0) / 128.0;
  constexpr double kInt8GroupBits = 8.0 + (16.0 + 8.0) / 128.0;
  const double weights = g.total_parameters;
  rows.push_back({"format.fp16", "All weights in FP16", "1 byte a parameter", "2 bytes a parameter",
                  "bytes", weights, 2.0 * weights, "FP16 has two bytes."});
  rows.push_back({"format.int8", "All weights in INT8, groups of 128", "half a byte a parameter",
                  "8.1875 bits a parameter", "bytes", 0.5 * weights, weights * kInt8GroupBits / 8.0,
                  "Half a byte is INT4."});
  rows.push_back({"format.awq", "All weights in AWQ, groups of 128", "AWQ is INT8",
                  "AWQ is INT4: 4.15625 bits a parameter", "bytes", weights,
                  weights * kInt4GroupBits / 8.0, "AWQ quantises to 4 bits."});
  rows.push_back({"format.fp8_saving", "Memory saved by FP8", "50 to 60 %", "8 of 16 bits", "1",
                  0.55, 0.5, "One byte for two saves half, scales take a little of it back."});
  rows.push_back({"format.int4_saving", "Memory saved by INT4, groups of 128", "50 to 60 %",
                  "1 - 4.15625 / 16", "1", 0.55, 1.0 - kInt4GroupBits / 16.0,
                  "Four bits for sixteen save almost three quarters."});
  rows.push_back({"format.throughput", "Tokens counted in \"throughput\", per output token",
                  "input + output", "output (input stated beside it)", "1",
                  static_cast<double>(in.context_tokens + in.output_tokens) /
                      static_cast<double>(in.output_tokens),
                  1.0, "Input tokens are read in bulk; adding them flatters long prompts."});
  rows.push_back({"format.block_manager", "Does use_v2_block_manager fuse the MoE kernels (1: yes)",
                  "yes", "no", "1", 1.0, 0.0,
                  "It picks how the KV cache is paged; fused kernels are another matter."});
}

void add_hardware_rows(const QuickInputs& in, std::vector<QuickRow>& rows) {
  // The published example's figures for an H100.
  constexpr double kQuickFp8 = 619e12;
  constexpr double kQuickBf16 = 495e12;
  constexpr double kQuickLink = 900e9;
  constexpr double kQuickAccept = 700e9;
  constexpr double kAcceptRatio = 0.8;  // reports/checklist.json, a2a.bandwidth
  const auto add = [&](const char* id, const std::string& title, const char* formula,
                       const char* unit, double quick, std::optional<double> right,
                       const char* why) {
    rows.push_back({id, title, "stated for H100", formula, unit, quick, right, why});
  };
  add("hardware.fp8", fmt::format("FP8 peak of {}", in.gpu.name), "dense, from the data sheet",
      "flop/s", kQuickFp8, in.gpu.fp8_flops_per_s, "Not a figure of any H100 data sheet.");
  add("hardware.bf16", fmt::format("BF16 peak of {}", in.gpu.name), "dense, from the data sheet",
      "flop/s", kQuickBf16, in.gpu.bf16_flops_per_s, "495 TFLOPS is TF32.");
  if (in.gpu.scale_up_bytes_per_s > 0.0) {
    add("hardware.a2a_ceiling", fmt::format("All-to-All bus bandwidth limit of {}", in.gpu.name),
        "scale-up rate in one direction", "bytes/s", kQuickLink, in.gpu.scale_up_bytes_per_s,
        "900 GB/s counts both directions; bus bandwidth is one.");
    add("hardware.a2a_accept", "What to accept", "0.8 x that", "bytes/s", kQuickAccept,
        kAcceptRatio * in.gpu.scale_up_bytes_per_s,
        "A limit above the link rate fails every healthy machine.");
  }
}

}  // namespace moe::planner::quick
