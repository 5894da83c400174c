// moe-skew inspect: is the input what it seems, and how uneven is the load.

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/skew/inspect_parts.hpp"
#include "lib/app/skew/skew_commands.hpp"
#include "lib/app/skew/skew_input.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/int_math.hpp"
#include "lib/routing/windows.hpp"

namespace moe::app {
namespace {

// Windows that a default run cuts an input into, at most, and the fewest tokens of one.
constexpr std::int64_t kDefaultWindows = 64;
constexpr std::int64_t kMinWindowTokens = 256;
// Windows by layer and expert kept in memory at once: 64 Mi counts are 512 MiB.
constexpr std::int64_t kMaxCells = std::int64_t{64} << 20;

struct InspectArgs {
  InputArgs input;
  std::int64_t num_gpus = 0;
  std::int64_t num_nodes = 1;
  std::string window = "auto";
  bool drop_partial = false;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

GpuView view_of(const InspectArgs& args, const routing::InputInfo& info) {
  GpuView view;
  view.num_gpus = args.num_gpus > 0 ? args.num_gpus : info.num_gpus;
  view.num_nodes = args.num_nodes;
  if (view.num_gpus == 0) return view;
  view.is_recorded = !info.physical_to_logical.empty();
  const std::int64_t places = view.is_recorded ? info.num_slots : info.num_experts;
  if (view.num_gpus > places) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--gpus {}: the layer has {} experts to place", view.num_gpus, places));
  }
  if (view.num_nodes > view.num_gpus) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--nodes {}: there are {} GPUs", view.num_nodes, view.num_gpus));
  }
  return view;
}

routing::WindowSpec window_of(const InspectArgs& args, const routing::RoutingInput& input,
                              const routing::InputCheck& check) {
  routing::WindowSpec spec;
  if (args.window != "auto") {
    spec = routing::parse_window(args.window);
  } else if (input.tokens != nullptr) {
    spec.unit = routing::WindowUnit::kTokens;
    const std::int64_t each =
        div_ceil(std::max<std::int64_t>(check.num_tokens, 1), kDefaultWindows);
    spec.length = static_cast<double>(align_up(each, kMinWindowTokens));
  } else if (check.num_steps > 1) {
    spec.unit = routing::WindowUnit::kSteps;
    spec.length = static_cast<double>(div_ceil(check.num_steps, kDefaultWindows));
  }
  spec.drop_partial = args.drop_partial;
  const std::int64_t units = spec.unit == routing::WindowUnit::kTokens  ? check.num_tokens
                             : spec.unit == routing::WindowUnit::kSteps ? check.num_steps
                                                                        : 0;
  const std::int64_t num_windows =
      spec.length > 0.0
          ? div_ceil(units, std::max<std::int64_t>(static_cast<std::int64_t>(spec.length), 1))
          : 1;
  const std::int64_t cells = input.info.num_layers() * input.info.num_experts;
  if (num_windows > kMaxCells / std::max<std::int64_t>(cells, 1)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--window {}: {} windows of {} counts are too many to keep; give a "
                            "longer window",
                            args.window, num_windows, cells));
  }
  return spec;
}

// Which analyses this input cannot support, and why.
void add_limits(const routing::RoutingInput& input, const GpuView& view, ReportSession& session) {
  const routing::InputInfo& info = input.info;
  const auto note = [&](const char* code, const std::string& message) {
    session.add_finding(code, report::Severity::kInfo, message, "");
  };
  if (input.tokens == nullptr) {
    note("input.counts_only",
         "counts alone support load, placement and replay; they cannot give cache hits, prefetch, "
         "affinity between layers, or cross-GPU copies of a token, which need token rows");
  }
  if (!info.has_time) {
    note("input.no_time",
         "no time stamps: windows are in tokens or steps, and alarms over minutes cannot be "
         "replayed");
  }
  if (input.tokens != nullptr && !info.has_weights) {
    note("input.no_weights", "no router weights: pruning is judged by counts alone");
  }
  if (input.tokens != nullptr && !info.has_requests) {
    note("input.no_requests", "no request ids: sequences cannot be told apart");
  }
  if (view.num_gpus == 0) {
    note("input.no_gpus", "loads by GPU and node need --gpus N (and --nodes N)");
  }
}

void add_counts(const routing::RoutingInput& input, const routing::InputCheck& check,
                const routing::ExpertCounts& counts, report::Report& report) {
  const routing::InputInfo& info = input.info;
  std::optional<double> tokens;
  std::string reason = "counts alone: --top-k N tells tokens from assignments";
  if (check.num_tokens > 0) {
    tokens = static_cast<double>(check.num_tokens);
  } else if (info.top_k > 0) {
    tokens = static_cast<double>(check.num_assignments) / static_cast<double>(info.top_k) /
             static_cast<double>(counts.num_layers());
  }
  set_metric(report, "routed_tokens_count", "1", tokens, reason,
             "tokens in the input; from counts: assignments over top_k and MoE layers");
  set_metric(report, "routed_assignments_count", "1", static_cast<double>(check.num_assignments),
             "", "token and expert pairs, all layers");
  set_metric(report, "model_experts_count", "1", static_cast<double>(info.num_experts), "",
             "routed experts of a layer");
  set_metric(report, "moe_layers_count", "1", static_cast<double>(counts.num_layers()), "",
             "layers with load");
  set_metric(report, "recorded_steps_count", "1", static_cast<double>(check.num_steps), "",
             "forward passes, or recorded rows of counts");
}

// Everything about a load that is there; an input without any is said to be so and ends.
void add_load(routing::RoutingInput& input, const routing::InputCheck& check,
              const InspectArgs& args, ReportSession& session) {
  report::Report& report = session.report();
  const routing::WindowSpec spec = window_of(args, input, check);
  const routing::ExpertCounts windows = routing::count_windows(input, spec);
  const std::vector<std::int64_t> total = windows.total();
  const GpuView view = view_of(args, windows.info);
  report.settings["window_unit"] = routing::window_unit_name(spec.unit);
  report.settings["window_length"] = spec.length;
  report.settings["num_gpus"] = view.num_gpus;
  report.settings["num_nodes"] = view.num_nodes;
  report.settings["placement"] = view.num_gpus == 0 ? "none"
                                 : view.is_recorded ? "recorded"
                                                    : "experts in order";
  report.settings["empty_layers"] = windows.empty_layers;
  add_counts(input, check, windows, report);
  add_layer_skew(windows, total, view, report);
  add_expert_tables(windows, total, report);
  if (view.num_gpus > 0) add_gpu_tables(windows, total, view, report);
  add_windows(windows, view, windows.info.top_k, report);
  if (input.tokens != nullptr) {
    add_token_figures(routing::token_figures(input, view.num_gpus, view.num_nodes), view, report);
  }
  add_limits(input, view, session);
  report.highlights = {"routed_tokens_count", "expert_max_over_mean_mean", "expert_gini_mean",
                       "expert_load_max_min_ratio"};
  if (view.num_gpus > 0) report.highlights.emplace_back("gpu_balancedness_mean");
}

int run_inspect(const InspectArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  routing::RoutingInput input = open_input(args.input);
  const routing::InputCheck check = routing::check_input(input);
  report::Report& report = session.report();
  report.subject = describe_input(input.info);
  report.settings["command"] = "inspect";
  report.settings["skip_profiling"] = args.input.trace.skips_profiling;
  add_sanity(check, session);
  if (check.num_assignments > 0) add_load(input, check, args, session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_skew_inspect_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<InspectArgs>();
  Options& options =
      line.add_command("inspect", "Checks a trace and shows how uneven the experts' load is",
                       [args, &context] { return run_inspect(*args, context); });
  add_input_options(options, args->input);
  options.group("What to compute");
  options.integer("--gpus", args->num_gpus, {0, 1 << 16},
                  "GPUs that share a layer's experts, in order or as recorded", "from the trace");
  options.integer("--nodes", args->num_nodes, {1, 1 << 16}, "Nodes that hold these GPUs");
  options.text("--window", "LENGTH", args->window,
               "Windows of the series: 256tokens, 10steps, 500ms, 5m, whole, or auto");
  options.flag("--drop-partial", args->drop_partial, "Leave out the last window when not full");
  add_output_options(options, args->output);
  add_acceptance_options(options, args->acceptance);
  options.example("moe-skew inspect trace.safetensors --gpus 8 --nodes 2 -o report.html",
                  "skew by layer, expert, GPU, node and window, with heat maps");
  options.example("moe-skew inspect dumps/ --window 10steps", "all ranks' dumps of one run");
}

}  // namespace moe::app
