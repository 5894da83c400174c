#include "lib/planner/log_compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "lib/base/check.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/planner/kv.hpp"

namespace moe::planner {
namespace {

constexpr std::int64_t kVllmGpuBlock = 16;
constexpr std::int64_t kVllmCpuBlock = 128;
constexpr std::int64_t kLlamaPadding = 256;
constexpr std::int64_t kVllmBatchedTokens = 8192;

class Terms {
 public:
  Terms(std::vector<LogTerm>& terms, double tolerance) : terms_(terms), tolerance_(tolerance) {}

  void add(std::string name, std::string unit, std::optional<double> predicted,
           const std::optional<Printed>& logged, std::string how) {
    LogTerm term;
    term.name = std::move(name);
    term.unit = std::move(unit);
    term.predicted = predicted;
    term.how = std::move(how);
    if (logged) {
      term.logged = logged->value;
      term.slack = logged->slack;
    }
    term.verdict = judge(term);
    terms_.push_back(std::move(term));
  }

 private:
  [[nodiscard]] TermVerdict judge(const LogTerm& term) const {
    if (!term.logged) return TermVerdict::kNotPrinted;
    if (!term.predicted) return TermVerdict::kNotPredicted;
    const double difference = std::abs(*term.predicted - *term.logged);
    // A hair beyond half a unit, because the printed number went through a decimal.
    if (difference <= term.slack * 1.0001 + 1e-9 * std::abs(*term.logged)) {
      return TermVerdict::kExact;
    }
    return difference <= tolerance_ * std::abs(*term.logged) ? TermVerdict::kClose
                                                             : TermVerdict::kDifferent;
  }

  std::vector<LogTerm>& terms_;
  double tolerance_;
};

KvOptions cache_options(const EngineLog& log, const LogCompareOptions& options) {
  KvOptions kv;
  const std::string& name = options.kv_dtype.empty() ? log.kv_dtype : options.kv_dtype;
  kv.dtype = parse_kv_dtype(name.empty() ? "auto" : name);
  if (!log.value_dtype.empty() && options.kv_dtype.empty()) {
    kv.dtype.value_bits = parse_kv_dtype(log.value_dtype).bits;
  }
  const std::int64_t standard = log.is_cpu ? kVllmCpuBlock : kVllmGpuBlock;
  const std::int64_t block =
      options.block_tokens > 0 ? options.block_tokens : log.block_tokens.value_or(standard);
  kv.block_tokens = static_cast<std::int32_t>(std::clamp<std::int64_t>(block, 1, 1 << 24));
  kv.max_batched_tokens = log.max_batched_tokens.value_or(kVllmBatchedTokens);
  return kv;
}

std::int32_t num_layers(const model::Architecture& architecture) {
  return static_cast<std::int32_t>(architecture.layers.size());
}

// Bytes of the fullest rank of the first stage, which is the rank that prints.
double rank_weights(const model::Architecture& architecture, const Layout& layout,
                    const WeightOptions& options) {
  return static_cast<double>(stage_weights(architecture, layout, options).front().worst_rank);
}

// ---- vLLM ----

// Blocks of the stage with the fewest: every layer of a stage keeps every token of a block. Models
// with window layers print the tokens of that count although each group of layers has its own.
struct VllmPool {
  std::int64_t blocks = std::numeric_limits<std::int64_t>::max();
  double token_bytes = 0.0;  // of the deciding stage
};

VllmPool vllm_pool(const model::Architecture& architecture, const Layout& layout,
                   const KvOptions& kv, double pool_bytes) {
  VllmPool pool;
  for (std::int32_t stage = 0; stage < layout.pp; ++stage) {
    const StageRange range = stage_layers(num_layers(architecture), layout.pp, stage);
    const double token = kv_per_token(architecture, layout, kv, range).uniform();
    if (token <= 0.0) continue;
    const auto blocks =
        static_cast<std::int64_t>(std::floor(pool_bytes / (token * kv.block_tokens)));
    if (blocks >= pool.blocks) continue;
    pool.blocks = blocks;
    pool.token_bytes = token;
  }
  if (pool.token_bytes == 0.0) pool.blocks = 0;
  return pool;
}

bool has_state(const model::Architecture& architecture) {
  return std::ranges::any_of(architecture.layers, [](const model::LayerSpec& layer) {
    return layer.mixer.state.ssm_elements > 0;
  });
}

bool has_bounded_layers(const model::Architecture& architecture) {
  return std::ranges::any_of(architecture.layers, [](const model::LayerSpec& layer) {
    return layer.mixer.window > 0 || layer.mixer.chunk > 0;
  });
}

void compare_vllm_cache(const EngineLog& log, const model::Architecture& architecture,
                        const KvOptions& kv, const Layout& layout, Terms& terms) {
  if (!log.kv_pool_bytes || has_state(architecture)) {
    terms.add("KV cache tokens", "1", std::nullopt, log.kv_tokens,
              log.kv_pool_bytes ? "the pool of a model with recurrent layers is not predicted"
                                : "needs the size of the pool, which is not printed");
    return;
  }
  const double pool_bytes = log.kv_pool_bytes->value;
  const VllmPool pool = vllm_pool(architecture, layout, kv, pool_bytes);
  const double tokens = static_cast<double>(pool.blocks * kv.block_tokens);
  // The pool was printed with few digits: as many tokens more or less.
  const double slack = pool.token_bytes > 0.0 ? log.kv_pool_bytes->slack / pool.token_bytes : 0.0;
  const bool is_given = log.is_cpu;  // an exact number of GiB by the user
  auto logged_tokens = log.kv_tokens;
  if (logged_tokens && !is_given) logged_tokens->slack += slack;
  auto logged_blocks = log.kv_blocks;
  if (logged_blocks && !is_given) logged_blocks->slack += slack / kv.block_tokens;
  terms.add("KV bytes per token", "bytes", pool.token_bytes, std::nullopt,
            fmt::format("{} cache, all layers of the deciding stage, one rank", kv.dtype.name));
  terms.add(
      "KV cache blocks", "1", static_cast<double>(pool.blocks), logged_blocks,
      fmt::format("floor(pool / ({:.0f} bytes x {} tokens))", pool.token_bytes, kv.block_tokens));
  terms.add("KV cache tokens", "1", tokens, logged_tokens,
            fmt::format("{} blocks x {} tokens", pool.blocks, kv.block_tokens));
  const auto request = log.concurrency_tokens ? log.concurrency_tokens : log.max_model_len;
  if (!request || *request < 1) return;
  if (has_bounded_layers(architecture)) {
    terms.add("maximum concurrency", "1", std::nullopt, log.max_concurrency,
              "releases count window layers differently");
    return;
  }
  const std::int64_t needed = div_ceil(*request, kv.block_tokens);
  auto logged = log.max_concurrency;
  if (logged && !is_given) {
    logged->slack += slack / static_cast<double>(needed * kv.block_tokens);
  }
  terms.add("maximum concurrency", "1",
            static_cast<double>(pool.blocks) / static_cast<double>(needed), logged,
            fmt::format("{} blocks / {} blocks of a request of {} tokens", pool.blocks, needed,
                        *request));
}

// Why vLLM would refuse to start; empty when it would not.
std::string vllm_refusal(const EngineLog& log, const model::Architecture& architecture,
                         const KvOptions& kv, const Layout& layout) {
  const std::int64_t length = log.max_model_len.value_or(0);
  if (architecture.max_position_embeddings > 0 && length > architecture.max_position_embeddings) {
    return fmt::format("a maximum length of {} exceeds the model's {}", length,
                       architecture.max_position_embeddings);
  }
  if (!log.kv_pool_bytes || has_state(architecture)) return {};
  const VllmPool pool = vllm_pool(architecture, layout, kv, log.kv_pool_bytes->value);
  if (pool.blocks == 0) return "no block fits into the pool";
  if (length > 0 && !has_bounded_layers(architecture) &&
      pool.blocks < div_ceil(length, kv.block_tokens)) {
    return fmt::format("one request of {} tokens needs {} blocks, the pool holds {}", length,
                       div_ceil(length, kv.block_tokens), pool.blocks);
  }
  return {};
}

void compare_vllm(const EngineLog& log, const model::Architecture& architecture,
                  const LogCompareOptions& options, LogComparison& result, Terms& terms) {
  const KvOptions kv = cache_options(log, options);
  terms.add("checkpoint", "bytes",
            static_cast<double>(architecture.weight_bytes() + architecture.mtp_bytes()),
            log.file_bytes, "all weights as stored, multi-token-prediction module included");
  terms.add("weights on a rank", "bytes",
            rank_weights(architecture, result.layout, options.weights), log.weights_bytes,
            fmt::format("{}; engines add tables such as RoPE", describe(result.layout)));
  terms.add("activation peak", "bytes", std::nullopt, log.activation_bytes, "a band only; see fit");
  terms.add("CUDA graphs", "bytes", std::nullopt, log.graph_bytes, "a band only; see fit");
  terms.add("outside of torch", "bytes", std::nullopt, log.non_torch_bytes, "a band only; see fit");
  compare_vllm_cache(log, architecture, kv, result.layout, terms);
  const std::string refusal = vllm_refusal(log, architecture, kv, result.layout);
  result.predicts_start = refusal.empty();
  if (log.has_started && !refusal.empty()) {
    result.start_difference =
        fmt::format("the engine started, predicted was a refusal: {}", refusal);
  } else if (!log.has_started && refusal.empty()) {
    result.start_difference =
        log.error.empty()
            ? "the log ends before the cache was made"
            : fmt::format("the engine refused for a reason outside of memory: {}", log.error);
  }
}

// ---- SGLang ----

void compare_sglang(const EngineLog& log, const model::Architecture& architecture,
                    const LogCompareOptions& options, LogComparison& result, Terms& terms) {
  const KvOptions kv = cache_options(log, options);
  terms.add(
      "weights on a rank", "bytes", rank_weights(architecture, result.layout, options.weights),
      log.weights_bytes,
      fmt::format("{}; engines add tables and workspaces while loading", describe(result.layout)));
  result.predicts_start = true;
  if (!log.kv_tokens) return;
  const StageRange all = stage_layers(num_layers(architecture), result.layout.pp, 0);
  double keys = 0.0;
  double values = 0.0;
  for (std::int32_t at = all.begin; at < all.end; ++at) {
    const model::MixerSpec& mixer = architecture.layers[static_cast<std::size_t>(at)].mixer;
    const double both = layer_token_bytes(mixer, result.layout, kv);
    const bool is_split = mixer.kind == model::MixerKind::kGqa && !mixer.has_shared_kv;
    const double key_share =
        is_split ? static_cast<double>(mixer.qk_head_dim) / (mixer.qk_head_dim + mixer.v_head_dim)
                 : 1.0;
    keys += both * key_share;
    values += both * (1.0 - key_share);
  }
  const double tokens = log.kv_tokens->value;
  const std::string how = fmt::format("{:.0f} tokens x bytes of a token on a rank", tokens);
  if (log.key_bytes) {
    terms.add("K cache", "bytes", tokens * keys, log.key_bytes, how);
    terms.add("V cache", "bytes", tokens * values, log.value_bytes, how);
  } else {
    terms.add("KV cache", "bytes", tokens * (keys + values), log.kv_pool_bytes, how);
  }
}

// ---- llama.cpp ----

// GGUF keeps vectors and routers in F32 whatever the type of the file.
double gguf_bytes(const model::Architecture& architecture) {
  double bytes = 0.0;
  for (const model::WeightGroup& group : architecture.weights) {
    const bool is_wide = group.rows == 1 || group.part == model::Part::kRouter;
    bytes += static_cast<double>(is_wide ? 4 * group.elements() : group.bytes());
  }
  return bytes;
}

void compare_llama(const EngineLog& log, const model::Architecture& architecture,
                   const LogCompareOptions& options, LogComparison& result, Terms& terms) {
  KvOptions kv = cache_options(log, options);
  kv.manager = KvManager::kLlamaCpp;
  result.predicts_start = true;
  terms.add("file", "bytes", gguf_bytes(architecture), log.file_bytes,
            log.weight_dtype.empty()
                ? std::string("all weights as config.json says")
                : fmt::format("all weights, the file says {}; norms and routers are F32 in GGUF",
                              log.weight_dtype));
  if (!log.num_cells) return;
  const std::int64_t sequences = log.num_sequences.value_or(1);
  const bool is_unified = log.is_unified || log.num_streams == 1;
  std::optional<double> cells;
  if (log.context_tokens) {
    const std::int64_t each = is_unified
                                  ? *log.context_tokens
                                  : *log.context_tokens / std::max<std::int64_t>(1, sequences);
    cells = static_cast<double>(align_up(each, kLlamaPadding));
  }
  terms.add("cells of a stream", "1", cells, Printed{static_cast<double>(*log.num_cells), 0.0},
            "context over sequences, padded to 256");
  const double tokens =
      static_cast<double>(*log.num_cells) * static_cast<double>(log.num_streams.value_or(1));
  double keys = 0.0;
  double values = 0.0;
  bool has_window = false;
  for (const model::LayerSpec& layer : architecture.layers) {
    const model::MixerSpec& mixer = layer.mixer;
    if (mixer.kind != model::MixerKind::kGqa) continue;
    if (mixer.window > 0) {
      has_window = true;  // kept in the second cache
      continue;
    }
    keys += mixer.num_kv_heads * mixer.qk_head_dim * kv.dtype.bits / 8.0;
    values += mixer.num_kv_heads * mixer.v_head_dim * kv.dtype.value_bits_or_same() / 8.0;
  }
  const std::string how = fmt::format(
      "{:.0f} cells, {}", tokens, has_window ? "layers that see the whole sequence" : "all layers");
  terms.add("K cache", "bytes", tokens * keys, log.key_bytes, how);
  terms.add("V cache", "bytes", tokens * values, log.value_bytes, how);
}

}  // namespace

std::string_view verdict_name(TermVerdict verdict) {
  switch (verdict) {
    case TermVerdict::kExact:
      return "exact";
    case TermVerdict::kClose:
      return "close";
    case TermVerdict::kDifferent:
      return "different";
    case TermVerdict::kNotPrinted:
      return "not printed";
    case TermVerdict::kNotPredicted:
      return "not predicted";
  }
  MOE_CHECK(false);
}

LogComparison compare_log(const EngineLog& log, const model::Architecture& architecture,
                          const LogCompareOptions& options) {
  LogComparison result;
  if (options.has_layout) {
    result.layout = options.layout;
  } else {
    result.layout.tp = log.tp;
    result.layout.pp = log.pp;
    result.layout.dp = log.dp;
    result.layout.ep = log.ep;
  }
  if (const std::string problem = layout_problem(architecture, result.layout); !problem.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("the log's layout {} does not suit this model: {}; is it the model of "
                            "this log?",
                            describe(result.layout), problem));
  }
  Terms terms(result.terms, options.tolerance);
  switch (log.engine) {
    case Engine::kVllm:
      compare_vllm(log, architecture, options, result, terms);
      break;
    case Engine::kSglang:
      compare_sglang(log, architecture, options, result, terms);
      break;
    case Engine::kLlamaCpp:
      compare_llama(log, architecture, options, result, terms);
      break;
    case Engine::kTrtLlm:
      MOE_CHECK(false);  // no reader makes one
  }
  return result;
}

}  // namespace moe::planner
