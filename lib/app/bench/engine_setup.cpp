#include "lib/app/bench/engine_setup.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/error.hpp"
#include "lib/base/units.hpp"
#include "lib/engine/isa_choice.hpp"
#include "lib/engine/memory_estimate.hpp"
#include "lib/model/coded_matrix.hpp"
#include "lib/model/dtype.hpp"
#include "lib/sysinfo/host.hpp"

namespace moe::app {
namespace {

constexpr const char* kIsaVariable = "MOE_CPU_ISA";

std::optional<kernels::Isa> requested_isa(const std::string& option) {
  std::string name = option;
  std::string source = "--isa";
  if (name == "auto") {
    const char* variable = std::getenv(kIsaVariable);
    if (variable == nullptr || *variable == '\0') return std::nullopt;
    name = variable;
    source = kIsaVariable;
    if (name == "auto") return std::nullopt;
  }
  kernels::Isa isa = kernels::Isa::kScalar;
  if (!kernels::parse_isa(name.c_str(), &isa)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: expected auto, {}, found \"{}\"", source,
                                               fmt::join(isa_names(), ", "), name));
  }
  return isa;
}

bool is_stored_as(const model::MatrixView& view, model::Dtype dtype) {
  return view.encoding == model::MatrixEncoding::kPlain && view.dtype == dtype;
}

// Whether every big matrix is plain bf16, which is what bf16 activations need.
bool has_bf16_weights(const model::BoundModel& model) {
  for (const model::LayerView& layer : model.layers) {
    for (const model::FfnView& expert : layer.experts) {
      if (!is_stored_as(expert.gate, model::Dtype::kBf16)) return false;
    }
  }
  return is_stored_as(model.lm_head, model::Dtype::kBf16);
}

kernels::ActivationFormat choose_activations(const EngineArgs& args, kernels::Isa isa,
                                             const model::BoundModel& model, std::string& reason) {
  using kernels::ActivationFormat;
  if (args.activations == "f32") {
    reason = "f32 as requested";
    return ActivationFormat::kF32;
  }
  const bool has_bf16 = has_bf16_weights(model);
  if (args.activations == "bf16") {
    if (!has_bf16) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--activations bf16: needs weights stored as BF16, found {}; use f32",
                              weight_dtypes(model)));
    }
    reason = "bf16 as requested";
    return ActivationFormat::kBf16;
  }
  if (!has_bf16) {
    reason = fmt::format("f32: the weights are {}, not all BF16", weight_dtypes(model));
    return ActivationFormat::kF32;
  }
  if (isa != kernels::Isa::kAvx512Bf16) {
    reason = fmt::format("f32: level {} has no bf16 products to gain from", kernels::isa_name(isa));
    return ActivationFormat::kF32;
  }
  reason = fmt::format("bf16: the weights are BF16 and level {} multiplies bf16 directly",
                       kernels::isa_name(isa));
  return ActivationFormat::kBf16;
}

}  // namespace

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (int level = 0; level < kernels::kNumIsas; ++level) {
    names.emplace_back(kernels::isa_name(static_cast<kernels::Isa>(level)));
  }
  return names;
}

std::int32_t num_usable_threads() {
  const sysinfo::CpuInfo cpu = sysinfo::read_cpu();
  double threads = static_cast<double>(
      cpu.num_usable_threads.value_or(std::int64_t{std::thread::hardware_concurrency()}));
  if (cpu.quota_cores) threads = std::min(threads, std::floor(*cpu.quota_cores));
  return static_cast<std::int32_t>(std::clamp(threads, 1.0, 4096.0));
}

void add_engine_options(Options& options, EngineArgs& args) {
  options.group("How to run");
  options.integer("--threads", args.num_threads, {0, 4096}, "Threads; 0 takes all",
                  "all that the process may use");
  options.text("--isa", fmt::format("auto|{}", fmt::join(isa_names(), "|")), args.isa,
               "Instruction set level of the kernels; auto is the best one whose self-test passes");
  options.bytes("--max-memory", args.max_memory_bytes,
                "Refuse to allocate more than this (64MiB, 1.5GB)", "what the machine has");
  options.integer("--chunk-tokens", args.chunk_tokens, {1, 1 << 20},
                  "Longest forward pass; more tokens are cut into several passes");
}

void add_top_k_option(Options& options, const std::string& names, EngineArgs& args) {
  options.integer(names, args.top_k, {0, 65536},
                  "Experts per token instead of the model's own number", "the model's own");
}

void add_moe_path_option(Options& options, EngineArgs& args) {
  options.choice("--moe-path", {"fused", "unfused", "both"}, args.moe_path,
                 "How the experts of a layer run: all together with the activation inside the "
                 "product, or one after another with it apart; both: fused, and the first point "
                 "once more by turns to see what fusing gains");
}

void add_activation_option(Options& options, EngineArgs& args) {
  options.choice("--activations", {"auto", "f32", "bf16"}, args.activations,
                 "Numeric mode: what activations are rounded to before a product; auto is bf16 "
                 "where the weights are BF16 and the machine gains from it");
}

std::string weight_dtypes(const model::BoundModel& model) {
  std::set<std::string> names;
  const auto add = [&names](const model::MatrixView& view) {
    if (view.empty()) return;
    names.emplace(model::storage_name(view));
  };
  add(model.lm_head);
  for (const model::LayerView& layer : model.layers) {
    for (const model::MatrixView* view :
         {&layer.attention.q, &layer.attention.o, &layer.attention.kv_b, &layer.attention.k_b,
          &layer.dense.gate, &layer.shared.gate}) {
      add(*view);
    }
    for (const model::FfnView& expert : layer.experts) add(expert.gate);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

EngineSetup resolve_engine(const EngineArgs& args, const model::BoundModel& model) {
  EngineSetup setup;
  const engine::IsaChoice choice = engine::choose_isa(requested_isa(args.isa));
  setup.options.isa = choice.isa;
  setup.isa_reason = choice.reason;
  setup.options.num_threads =
      args.num_threads > 0 ? static_cast<int>(args.num_threads) : num_usable_threads();
  setup.options.activations = choose_activations(args, choice.isa, model, setup.activations_reason);
  setup.options.max_batch_tokens = args.chunk_tokens;
  setup.options.moe_path =
      args.moe_path == "unfused" ? engine::MoePath::kUnfused : engine::MoePath::kFused;
  setup.options.max_memory_bytes = args.max_memory_bytes;
  if (args.top_k > 0) {
    if (args.top_k > model.config.moe.num_experts) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--top-k: expected 1 to {} (the model's experts), found {}",
                              model.config.moe.num_experts, args.top_k));
    }
    setup.options.top_k_override = static_cast<std::int32_t>(args.top_k);
  }
  return setup;
}

std::int64_t memory_budget(const engine::EngineOptions& options) {
  return options.max_memory_bytes > 0 ? options.max_memory_bytes : engine::available_memory_bytes();
}

void check_fits(const model::BoundModel& model, const engine::EngineOptions& options) {
  const std::int64_t budget = memory_budget(options);
  const engine::MemoryEstimate need = engine::Engine::estimate(model.config, model, options);
  if (budget == 0 || need.total_bytes() <= budget) return;
  const bool is_option = options.max_memory_bytes > 0;
  const auto human = [](std::int64_t bytes) {
    return format_bytes_binary(static_cast<double>(bytes));
  };
  throw Error(
      is_option ? ErrorCode::kUsage : ErrorCode::kInput,
      fmt::format("not enough memory: {} needed (weights {}, KV cache {}, workspace {}), {} "
                  "{}; {}",
                  human(need.total_bytes()), human(need.weight_bytes), human(need.kv_cache_bytes),
                  human(need.workspace_bytes), human(budget),
                  is_option ? "allowed by --max-memory" : "available on this machine",
                  need.weight_bytes > budget
                      ? "use a smaller model or a machine with more memory"
                      : "use a shorter context, a smaller batch or fewer --chunk-tokens"));
}

}  // namespace moe::app
