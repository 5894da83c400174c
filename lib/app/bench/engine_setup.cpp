#include "lib/app/bench/engine_setup.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/format_names.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/units.hpp"
#include "lib/engine/isa_choice.hpp"
#include "lib/engine/memory_estimate.hpp"
#include "lib/engine/pack_plan.hpp"
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

// The matrix that stands for those that do most of the work.
const model::MatrixView& main_matrix(const model::BoundModel& model) {
  const model::MatrixView* view = &model.lm_head;
  for (const model::LayerView& layer : model.layers) {
    if (!layer.experts.empty()) return layer.experts.front().gate;
    view = &layer.dense.gate;
  }
  return *view;
}

void check_int8_activations(const model::BoundModel& model) {
  const model::MatrixView& view = main_matrix(model);
  const kernels::WeightFormat weights = engine::natural_format(view);
  if (weights != kernels::WeightFormat::kInt8 && weights != kernels::WeightFormat::kInt4) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--activations int8: needs int8 or int4 weights, found {}; use f32, or "
                            "round the weights with --quantize",
                            weight_dtypes(model)));
  }
  if (view.column_order != nullptr) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--activations int8: needs weights whose columns are in order, found "
                            "an order of their own (act-order) in {}; use f32",
                            view.name));
  }
}

// The numeric modes that the option and the weights allow; says why when that is only one.
std::vector<kernels::ActivationFormat> allowed_activations(const EngineArgs& args,
                                                           const model::BoundModel& model,
                                                           std::string& reason) {
  using kernels::ActivationFormat;
  if (args.activations == "f32") {
    reason = "f32 as requested";
    return {ActivationFormat::kF32};
  }
  if (args.activations == "int8") {
    check_int8_activations(model);
    reason =
        "int8 as requested: a looser mode, activations rounded to 8 bits with a scale per row and "
        "block of weights";
    return {ActivationFormat::kInt8};
  }
  const bool is_coded = engine::has_scales(main_weight_format(model));
  const bool may_be_bf16 = has_bf16_weights(model) || is_coded;
  if (args.activations == "bf16") {
    if (!may_be_bf16) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--activations bf16: needs weights stored as BF16, found {}; use f32",
                              weight_dtypes(model)));
    }
    reason = "bf16 as requested";
    return {ActivationFormat::kBf16};
  }
  if (!may_be_bf16) {
    reason = fmt::format("f32: the weights are {}, not all BF16", weight_dtypes(model));
    return {ActivationFormat::kF32};
  }
  return {ActivationFormat::kF32, ActivationFormat::kBf16};
}

// For a mode that was chosen and not asked for.
std::string chosen_activations_reason(const engine::IsaChoice& choice,
                                      const model::BoundModel& model) {
  const char* level = kernels::isa_name(choice.isa);
  if (choice.activations == kernels::ActivationFormat::kBf16) {
    return fmt::format("bf16: the weights are {} and level {} multiplies bf16 directly",
                       weight_dtypes(model), level);
  }
  const bool was_measured = std::ranges::any_of(choice.measured, [](const auto& one) {
    return one.of.activations == kernels::ActivationFormat::kBf16;
  });
  return was_measured
             ? fmt::format("f32: bf16 products measured slower than level {} with f32", level)
             : fmt::format("f32: level {} has no bf16 products to gain from", level);
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
               "Instruction set level of the kernels; auto is the best one that computes "
               "right values here and that no lower one measures clearly faster than");
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
  options.choice("--activations", {"auto", "f32", "bf16", "int8"}, args.activations,
                 "Numeric mode: what activations are rounded to before a product; auto is bf16 "
                 "where the weights are BF16 and the machine gains from it; int8, with int8 and "
                 "int4 weights, is faster and looser and never chosen by itself");
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
  engine::IsaRequest request;
  request.forced = requested_isa(args.isa);
  request.weights = main_weight_format(model);
  request.activations = allowed_activations(args, model, setup.activations_reason);
  const engine::IsaChoice choice = engine::choose_isa(request, engine::machine_probe());
  setup.options.isa = choice.isa;
  setup.isa_reason = choice.reason;
  setup.measured_levels = choice.measured;
  setup.options.num_threads =
      args.num_threads > 0 ? static_cast<int>(args.num_threads) : num_usable_threads();
  setup.options.activations = choice.activations;
  if (setup.activations_reason.empty()) {
    setup.activations_reason = chosen_activations_reason(choice, model);
  }
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

kernels::WeightFormat main_weight_format(const model::BoundModel& model) {
  return engine::natural_format(main_matrix(model));
}

void add_activation_finding(const EngineSetup& setup, ReportSession& session) {
  if (setup.options.activations != kernels::ActivationFormat::kInt8) return;
  session.add_finding(
      "run.int8_activations", report::Severity::kInfo,
      "activations are rounded to int8 before products with int8 and int4 weights: "
      "faster and looser than f32 and bf16 activations",
      "Compare with --activations f32: moe-bench eval gives the perplexity of both");
}

void add_kernel_choice(const EngineSetup& setup, report::Report& report) {
  if (setup.measured_levels.empty()) return;
  report::Table table = make_table("Levels measured to choose one (32 tokens from the cache)",
                                   {{"isa", ""},
                                    {"weights", ""},
                                    {"activations", ""},
                                    {"flops_per_s", "flop/s"},
                                    {"is_chosen", ""}});
  for (const engine::MeasuredCase& one : setup.measured_levels) {
    const bool is_chosen =
        one.of.isa == setup.options.isa && one.of.activations == setup.options.activations;
    table.rows.push_back({std::string(kernels::isa_name(one.of.isa)),
                          std::string(weight_format_name(one.of.weights)),
                          std::string(activation_format_name(one.of.activations)), one.flops_per_s,
                          std::string(is_chosen ? "yes" : "no")});
  }
  report.tables["kernel_choice"] = std::move(table);
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
