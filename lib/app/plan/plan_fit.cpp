// moe-plan fit: does it fit, how many requests at once, and where does every byte go.

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/plan/fit_report.hpp"
#include "lib/app/plan/plan_commands.hpp"
#include "lib/app/plan/plan_inputs.hpp"
#include "lib/app/plan/row_inputs.hpp"
#include "lib/app/plan/stored_bytes.hpp"
#include "lib/app/report_session.hpp"
#include "lib/base/error.hpp"

namespace moe::app {
namespace {

constexpr std::int64_t kByFormula = -1;

struct FitArgs {
  std::string model;
  std::string weights;
  std::string gpu = "h100-sxm";
  std::string layout = "TP1";
  std::string engine = "vllm";
  std::string kv_dtype = "auto";
  std::string kv_manager;
  std::string kernel_pad = "none";
  std::string hardware;
  std::string scenarios;
  std::int64_t memory_bytes = 0;
  std::int64_t kv_pool_bytes = 0;
  std::int64_t request_tokens = 4096;
  std::int64_t block_tokens = 16;
  std::int64_t max_batched_tokens = 8192;
  std::int64_t max_sequences = 256;
  std::int64_t deepep_tokens = 128;
  std::int64_t activation_bytes = kByFormula;
  std::int64_t graph_bytes = kByFormula;
  std::int64_t communication_bytes = kByFormula;
  std::int64_t context_bytes = kByFormula;
  std::int64_t source_tokens = 0;
  std::int64_t draft_layers = 0;
  double utilization = 0.9;
  double swa_ratio = 0.8;
  std::optional<double> fragmentation;
  bool is_eager = false;
  bool has_deepep = false;
  bool has_mtp = false;
  bool is_mla_expanded = false;
  bool has_replicated_shared = false;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

std::optional<std::int64_t> given(std::int64_t bytes) {
  if (bytes == kByFormula) return std::nullopt;
  return bytes;
}

planner::KvManager default_manager(planner::Engine engine) {
  switch (engine) {
    case planner::Engine::kLlamaCpp:
      return planner::KvManager::kLlamaCpp;
    case planner::Engine::kSglang:
      return planner::KvManager::kSglangRatio;
    case planner::Engine::kVllm:
    case planner::Engine::kTrtLlm:
      return planner::KvManager::kHybrid;
  }
  return planner::KvManager::kHybrid;
}

planner::FitOptions options_of(const FitArgs& args, std::int64_t memory_bytes) {
  planner::FitOptions options;
  options.memory_bytes = memory_bytes;
  options.utilization = args.utilization;
  options.request_tokens = args.request_tokens;
  options.given_kv_bytes = args.kv_pool_bytes;
  options.weights.pad = planner::parse_kernel_pad(args.kernel_pad);
  options.weights.has_mtp = args.has_mtp;
  planner::OverheadOptions& overhead = options.overhead;
  overhead.engine = planner::parse_engine(args.engine);
  overhead.max_batched_tokens = args.max_batched_tokens;
  overhead.max_sequences = args.max_sequences;
  overhead.has_graphs = !args.is_eager;
  overhead.has_deepep = args.has_deepep;
  overhead.deepep_tokens = args.deepep_tokens;
  overhead.activation_bytes = given(args.activation_bytes);
  overhead.graph_bytes = given(args.graph_bytes);
  overhead.communication_bytes = given(args.communication_bytes);
  overhead.context_bytes = given(args.context_bytes);
  overhead.fragmentation_ratio = args.fragmentation;
  planner::KvOptions& kv = options.kv;
  kv.manager = args.kv_manager.empty() ? default_manager(overhead.engine)
                                       : planner::parse_kv_manager(args.kv_manager);
  kv.dtype = planner::parse_kv_dtype(args.kv_dtype);
  kv.block_tokens = static_cast<std::int32_t>(args.block_tokens);
  kv.max_batched_tokens = args.max_batched_tokens;
  kv.swa_ratio = args.swa_ratio;
  kv.is_mla_expanded = args.is_mla_expanded;
  kv.source_tokens = args.source_tokens;
  kv.draft_layers =
      static_cast<std::int32_t>(args.draft_layers > 0 ? args.draft_layers : (args.has_mtp ? 1 : 0));
  return options;
}

void record_settings(const FitArgs& args, const planner::Layout& layout,
                     const planner::Accelerator& gpu, const planner::FitOptions& options,
                     report::Report& report) {
  report.settings["command"] = "fit";
  report.settings["gpu"] = gpu.id;
  report.settings["layout"] = planner::describe(layout);
  report.settings["gpus"] = layout.gpus();
  report.settings["engine"] = args.engine;
  report.settings["memory_bytes"] = options.memory_bytes;
  report.settings["utilization"] = options.utilization;
  report.settings["request_tokens"] = options.request_tokens;
  report.settings["kv_dtype"] = options.kv.dtype.name;
  report.settings["block_tokens"] = options.kv.block_tokens;
  report.settings["max_batched_tokens"] = args.max_batched_tokens;
  report.settings["max_sequences"] = args.max_sequences;
  report.settings["kernel_pad"] = args.kernel_pad;
  report.settings["has_mtp"] = args.has_mtp;
}

// Formula against files, where there are any.
void add_stored_bytes(const PlanModel& model, ReportSession& session) {
  const auto stored = read_stored_bytes(model.path);
  report::Report& report = session.report();
  report.settings["byte_source"] = stored ? stored->source : model.byte_source;
  if (!stored) return;
  report.metrics["stored_bytes"] = value_metric(report::MetricKind::kMeasured, "bytes",
                                                static_cast<double>(stored->bytes), stored->source);
  const std::int64_t main = model.architecture.weight_bytes();
  const std::int64_t all = main + model.architecture.mtp_bytes();
  if (stored->bytes == main || stored->bytes == all) return;
  const double off = 100.0 * static_cast<double>(stored->bytes - all) / static_cast<double>(all);
  session.add_finding(
      "fit.bytes_differ", report::Severity::kWarning,
      fmt::format("{} says {} bytes, the formula {} ({:+.2f} %)", stored->source, stored->bytes,
                  all, off),
      "The plan uses the formula; more in the files may be a vision part, or tensors that the "
      "model does not need");
}

int run_fit(const FitArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const std::filesystem::path scenarios = require_scenarios(args.scenarios);
  const PlanModel model = load_plan_model(args.model, scenarios, args.weights);
  const PlanHardware hardware = load_plan_hardware(scenarios, args.hardware);
  const planner::Accelerator& gpu = planner::find_accelerator(hardware.file, args.gpu);
  planner::Layout layout = parse_layout(args.layout);
  layout.has_replicated_shared = layout.has_replicated_shared || args.has_replicated_shared;
  const std::int64_t memory_bytes =
      args.memory_bytes > 0 ? args.memory_bytes : gpu.usable_memory_bytes();
  const planner::FitOptions options = options_of(args, memory_bytes);
  const planner::FitResult result = planner::fit(model.architecture, layout, options);

  report::Report& report = session.report();
  report.subject = {{"kind", "model_config"},
                    {"name", model.name},
                    {"content_hash", model.content_hash},
                    {"path", model.path.string()}};
  record_settings(args, layout, gpu, options, report);
  add_parameter_tables(model.architecture, report);
  add_memory_tables(layout, options, result, report);
  add_stored_bytes(model, session);
  add_fit_findings({model.architecture, layout, options, result, gpu, args.memory_bytes > 0},
                   session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

void add_deployment_options(Options& options, FitArgs& args) {
  options.positional("MODEL", args.model,
                     "config.json, a directory with one, or a name in scenarios/models");
  options.group("Deployment");
  options.text("--gpu", "ID", args.gpu, "GPU type, an id of hardware.json");
  options.bytes("--memory", args.memory_bytes, "What one GPU shows, instead of hardware.json's",
                "the GPU's");
  options.text("--layout", "WORDS", args.layout, "TP, DP, EP, PP of one deployment: \"TP8 EP8\"");
  options.flag("--replicate-shared", args.has_replicated_shared,
               "Shared experts whole on every rank, as in large expert-parallel groups");
  options.text("--engine", "NAME", args.engine, "vllm, sglang, trtllm or llamacpp");
  options.text("--weights", "FORMAT", args.weights,
               "Weight format instead of the checkpoint's (bf16, fp8-block128, int4-g128, q4_k)");
  options.text("--kernel-pad", "NAME", args.kernel_pad,
               "MXFP4 experts as a kernel pads them: none, triton, marlin");
  options.flag("--mtp", args.has_mtp, "Load the multi-token-prediction module");
  options.real("--utilization", args.utilization, {0.05, 1.0},
               "Share of the memory that the engine may use");
  options.group("Cache");
  options.integer("--request-tokens", args.request_tokens, {1, 1 << 30},
                  "Tokens of a request at its end, prompt and output");
  options.text("--kv-dtype", "TYPE", args.kv_dtype,
               "auto (16 bit), fp8, fp8_ds_mla, int8, int4, q8_0, q4_0");
  options.text("--kv-manager", "NAME", args.kv_manager,
               "hybrid, uniform, llamacpp or sglang-ratio [default: the engine's]");
  options.integer("--block-tokens", args.block_tokens, {1, 65536}, "Tokens of a cache block");
  options.bytes("--kv-pool", args.kv_pool_bytes, "Cache of a rank, instead of what remains",
                "what remains");
  options.real("--swa-ratio", args.swa_ratio, {0.0, 1.0},
               "sglang-ratio: window tokens per token of the full pool");
  options.flag("--mla-expanded", args.is_mla_expanded,
               "An engine without latent-attention kernels: full heads in the cache");
  options.integer("--draft-layers", args.draft_layers, {0, 64}, "Layers of a draft with a cache");
  options.integer("--source-tokens", args.source_tokens, {0, 1 << 30},
                  "Encoder-decoder: tokens of the source");
}

void add_overhead_options(Options& options, FitArgs& args) {
  options.group("Everything else on a rank (a given value replaces formula and band)");
  options.integer("--max-batched-tokens", args.max_batched_tokens, {1, 1 << 24},
                  "Tokens of one step");
  options.integer("--max-sequences", args.max_sequences, {1, 1 << 20}, "Sequences of one step");
  options.flag("--eager", args.is_eager, "No CUDA graphs");
  options.flag("--deepep", args.has_deepep, "DeepEP low-latency buffers");
  options.integer("--deepep-tokens", args.deepep_tokens, {1, 1 << 20},
                  "Tokens of a rank that these buffers hold");
  options.bytes("--activation", args.activation_bytes, "Activation peak", "by formula");
  options.bytes("--graphs", args.graph_bytes, "CUDA graphs", "by formula");
  options.bytes("--communication", args.communication_bytes, "NCCL and all-to-all buffers",
                "by formula");
  options.bytes("--context-memory", args.context_bytes, "Driver context and libraries",
                "by formula");
  options.ratio("--fragmentation", args.fragmentation, "Share of the budget lost to fragmentation",
                "0.01");
}

}  // namespace

void add_plan_fit_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<FitArgs>();
  Options& options =
      line.add_command("fit", "Does it fit, how many requests at once, where does every byte go",
                       [args, &context] { return run_fit(*args, context); });
  add_deployment_options(options, *args);
  add_overhead_options(options, *args);
  options.group("Data");
  options.text("--hardware", "FILE", args->hardware, "Own entries beside hardware.json");
  options.text("--scenarios", "DIR", args->scenarios, "Folder of the inputs that come with moekit");
  add_output_options(options, args->output);
  add_acceptance_options(options, args->acceptance);
  options.example("moe-plan fit Mixtral-8x7B-v0.1 --gpu h100-sxm --layout TP2",
                  "Two H100: weights, cache and requests");
  options.example("moe-plan fit DeepSeek-V3 --gpu h200-sxm --layout \"TP8\" --request-tokens 8192",
                  "One node of eight H200");
}

}  // namespace moe::app
