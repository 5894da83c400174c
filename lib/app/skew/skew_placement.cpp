#include "lib/app/skew/skew_placement.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/skew/skew_input.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/parse_number.hpp"

namespace moe::app {
namespace {

std::vector<double> parse_speeds(const std::string& text, std::int64_t num_gpus) {
  std::vector<double> speeds;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const auto value = parse_number<double>(word);
    if (!value || *value <= 0.0) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("--gpu-speeds: expected numbers above 0 with commas, found \"{}\"", text));
    }
    speeds.push_back(*value);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (static_cast<std::int64_t>(speeds.size()) != num_gpus) {
    throw Error(ErrorCode::kUsage, fmt::format("--gpu-speeds: expected {} numbers, one a GPU, "
                                               "found {}",
                                               num_gpus, speeds.size()));
  }
  return speeds;
}

double largest_max_min(const std::vector<LoadedTrace>& traces) {
  double largest = 0.0;
  for (const LoadedTrace& trace : traces) {
    for (std::int32_t layer = 0; layer < trace.loads.num_layers; ++layer) {
      const auto [min, max] =
          std::minmax_element(trace.loads.layer(layer).begin(), trace.loads.layer(layer).end());
      largest = std::max(largest, *max / std::max(1.0, *min));
    }
  }
  return largest;
}

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

}  // namespace

void add_trace_options(Options& options, TraceArgs& args) {
  options.group("Traces");
  options.integer("--experts", args.num_experts, {0, 1 << 16}, "Routed experts of a layer",
                  "from the file");
  options.integer("--top-k", args.top_k, {0, 1024}, "Experts that a token is routed to",
                  "from the file");
  options.integer("--shared-experts", args.num_shared_experts, {0, 1024},
                  "Fused shared experts, which stand behind the routed ones and are not placed");
  options.integer("--first-layer", args.first_layer, {0, 4095},
                  "Model layer number of the first layer of an array without numbers");
  options.flag("--skip-profiling", args.skips_profiling,
               "Leave out the rows of the engine's own warm-up");
}

routing::OpenOptions open_options(const TraceArgs& args) {
  routing::OpenOptions open;
  if (args.num_experts > 0) open.num_experts = narrow(args.num_experts);
  if (args.top_k > 0) open.top_k = narrow(args.top_k);
  open.num_shared_experts = narrow(args.num_shared_experts);
  open.first_layer = narrow(args.first_layer);
  open.skip_profiling = args.skips_profiling;
  return open;
}

void add_cluster_options(Options& options, ClusterArgs& args) {
  options.group("Cluster");
  options.integer("--gpus", args.num_gpus, {0, 1 << 16}, "GPUs that share the experts of a layer",
                  "from the trace");
  options.integer("--nodes", args.num_nodes, {1, 1 << 16}, "Nodes that hold these GPUs");
  options.integer("--slots", args.num_slots, {0, 1 << 20},
                  "Physical experts of a layer on all GPUs", "the experts");
  options.integer("--redundant", args.num_redundant, {0, 1 << 20},
                  "The same, as slots beyond one for each expert");
  options.integers("--gpu-slots", args.gpu_slots, {1, 1 << 16},
                   "Slots of each GPU where they differ");
  options.text("--gpu-speeds", "S,S,...", args.speeds,
               "Relative speed of each GPU where they differ");
}

balance::Cluster make_cluster(const ClusterArgs& args, std::int64_t num_experts) {
  const std::int64_t num_gpus =
      args.gpu_slots.empty() ? args.num_gpus : static_cast<std::int64_t>(args.gpu_slots.size());
  if (num_gpus == 0) throw Error(ErrorCode::kUsage, "expected --gpus N");
  if (args.num_gpus != 0 && args.num_gpus != num_gpus) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--gpu-slots names {} GPUs, --gpus {}", num_gpus, args.num_gpus));
  }
  std::int64_t num_slots = args.num_slots;
  if (num_slots == 0) num_slots = num_experts + args.num_redundant;
  if (args.num_slots != 0 && args.num_redundant != 0) {
    throw Error(ErrorCode::kUsage, "give --slots or --redundant, not both");
  }
  balance::Cluster cluster = balance::uniform_cluster(
      narrow(num_gpus), narrow(std::max(num_slots, num_gpus)), narrow(args.num_nodes));
  for (std::size_t gpu = 0; gpu < args.gpu_slots.size(); ++gpu) {
    cluster.slots[gpu] = narrow(args.gpu_slots[gpu]);
  }
  if (!args.speeds.empty()) cluster.speed = parse_speeds(args.speeds, num_gpus);
  balance::check_cluster(cluster, narrow(num_experts));
  return cluster;
}

balance::Cluster cluster_of(const balance::Placement& placement, const ClusterArgs& args) {
  balance::Cluster cluster =
      balance::uniform_cluster(placement.num_gpus(), placement.num_slots(), narrow(args.num_nodes));
  for (std::size_t gpu = 0; gpu < cluster.slots.size(); ++gpu) {
    cluster.slots[gpu] = placement.slot_begin[gpu + 1] - placement.slot_begin[gpu];
  }
  if (!args.speeds.empty()) cluster.speed = parse_speeds(args.speeds, placement.num_gpus());
  return cluster;
}

LoadedTrace load_trace(const std::string& path, const TraceArgs& args,
                       const routing::WindowSpec& window) {
  LoadedTrace trace;
  trace.path = path;
  routing::RoutingInput input = routing::open_input(path, open_options(args));
  trace.check = routing::check_input(input);
  routing::require_sane(input, trace.check);
  if (window.drop_partial && window.unit == routing::WindowUnit::kTokens &&
      static_cast<double>(trace.check.num_tokens) < window.length && trace.check.num_tokens > 0) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: {} tokens are less than one window of {}; give a smaller --window",
                            path, trace.check.num_tokens, window.length));
  }
  trace.counts = routing::count_windows(input, window);
  const std::vector<std::int64_t> total = trace.counts.total();
  trace.loads.num_layers = narrow(trace.counts.num_layers());
  trace.loads.num_experts = narrow(trace.counts.num_experts());
  trace.loads.values.assign(total.begin(), total.end());
  balance::check_loads(trace.loads, path);
  return trace;
}

std::vector<LoadedTrace> load_traces(const TraceArgs& args, const std::vector<std::string>& paths,
                                     const routing::WindowSpec& window) {
  std::vector<LoadedTrace> traces;
  for (const std::string& path : paths) {
    traces.push_back(load_trace(path, args, window));
    const routing::InputInfo& first = traces.front().counts.info;
    const routing::InputInfo& info = traces.back().counts.info;
    if (info.num_experts != first.num_experts || info.layers != first.layers) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: {} experts in {} layers, {} has {} in {} (or other layer "
                              "numbers): one plan is for one model",
                              path, info.num_experts, info.num_layers(), traces.front().path,
                              first.num_experts, first.num_layers()));
    }
  }
  // Names become rows and columns of tables: the same twice would be one.
  std::set<std::string> seen;
  for (LoadedTrace& trace : traces) {
    std::string& name = trace.counts.info.name;
    if (!seen.insert(name).second) name = trace.path;
  }
  return traces;
}

balance::Placement load_plan(const std::string& path, std::int64_t num_gpus,
                             const routing::InputInfo& info) {
  const FileMap file(path);
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const balance::Plan plan = balance::read_plan(
      text, path, {.num_gpus = narrow(num_gpus), .num_experts = info.num_experts});
  return balance::rows_of(plan, info.layers, path);
}

std::optional<double> routed_tokens(const routing::ExpertCounts& counts, const TraceArgs& args) {
  double sum = 0.0;
  for (const routing::Window& window : counts.windows) {
    sum += static_cast<double>(window.num_tokens);
  }
  if (sum > 0.0) return sum;
  const double top_k = static_cast<double>(args.top_k > 0 ? args.top_k : counts.info.top_k);
  if (top_k == 0.0 || counts.num_layers() == 0) return std::nullopt;
  double copies = 0.0;
  for (const std::int64_t count : counts.total()) copies += static_cast<double>(count);
  return copies / top_k / static_cast<double>(counts.num_layers());
}

void describe_traces(const std::string& command, const std::vector<LoadedTrace>& traces,
                     const TraceArgs& args, ReportSession& session) {
  report::Report& report = session.report();
  const routing::InputInfo& info = traces.front().counts.info;
  report.subject["kind"] = "trace";
  report.subject["name"] = info.name;
  report.subject["content_hash"] = info.content_hash;
  report.settings["command"] = command;
  json::Json paths = json::Json::array();
  double tokens = 0.0;
  bool has_tokens = true;
  report::Table table = make_table("Traces", {{"trace", ""},
                                              {"format", ""},
                                              {"layers", "1"},
                                              {"experts", "1"},
                                              {"tokens", "1"},
                                              {"windows", "1"}});
  for (const LoadedTrace& trace : traces) {
    paths.push_back(trace.path);
    add_sanity(trace.check, session);
    const std::optional<double> routed = routed_tokens(trace.counts, args);
    has_tokens = has_tokens && routed.has_value();
    tokens += routed.value_or(0.0);
    table.rows.push_back({trace.name(), std::string(routing::format_name(trace.counts.info.format)),
                          count_cell(trace.counts.num_layers()),
                          count_cell(trace.counts.num_experts()),
                          routed ? count_cell(std::llround(*routed)) : report::Cell(),
                          count_cell(trace.counts.num_windows())});
  }
  report.tables["traces"] = table;
  report.settings["traces"] = paths;
  report.settings["top_k"] = args.top_k > 0 ? args.top_k : info.top_k;
  const char* how = "tokens of all traces, each routed once per layer";
  report.metrics["routed_tokens_count"] =
      has_tokens ? value_metric(report::MetricKind::kReplayed, "1", tokens, how)
                 : absent_metric(report::MetricKind::kReplayed, "1",
                                 "counts alone do not tell tokens; give --top-k", how);
  report.metrics["expert_load_max_min_ratio"] = value_metric(
      report::MetricKind::kReplayed, "1", largest_max_min(traces),
      "busiest over least busy expert, worst layer of all traces; an idle expert counts as one "
      "assignment, so that the ratio is a lower bound then");
  report.metrics["model_experts_count"] =
      value_metric(report::MetricKind::kReplayed, "1", static_cast<double>(info.num_experts),
                   "routed experts of a layer");
}

void describe_cluster(const balance::Cluster& cluster, report::Report& report) {
  report.settings["gpus"] = cluster.num_gpus();
  report.settings["nodes"] = cluster.num_nodes();
  report.settings["gpu_slots"] = cluster.slots;
  report.settings["gpu_speeds"] = cluster.speed;
  report.metrics["num_ranks"] =
      value_metric(report::MetricKind::kReplayed, "1", static_cast<double>(cluster.num_gpus()),
                   "GPUs that the replay is over");
}

}  // namespace moe::app
