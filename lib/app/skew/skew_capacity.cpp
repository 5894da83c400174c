// moe-skew capacity: what a capacity factor, fixed or controlled, drops and costs on recorded
// routing.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/balance/capacity_law.hpp"
#include "lib/base/error.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using balance::CapacityLaw;
using balance::LawOptions;
using balance::LawWindow;
using report::Cell;
using report::MetricKind;

struct CapacityArgs {
  TraceArgs trace;
  std::string window = "256tokens";
  std::string formula = "switch";
  std::int64_t min_capacity = 0;
  std::int64_t alignment = 1;
  std::int64_t num_ranks = 1;
  std::string law = "bounded";
  double start = 1.3;
  double min_factor = 1.0;
  double max_factor = 2.0;
  std::optional<double> target;
  double fill_gain = 0.1;
  double drop_gain = 0.3;
  double attack_gain = 1.5;
  double release_gain = 0.25;
  std::int64_t memory_windows = 20;
  bool is_per_layer = false;
  bool is_dropless = false;
  std::int64_t token_bytes = 0;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

constexpr CapacityLaw kLaws[] = {CapacityLaw::kStatic,       CapacityLaw::kLiteralRate,
                                 CapacityLaw::kLiteralCount, CapacityLaw::kFlipped,
                                 CapacityLaw::kBounded,      CapacityLaw::kFeedForward};

LawOptions law_options(const CapacityArgs& args, CapacityLaw law) {
  LawOptions options;
  options.law = law;
  options.rule = {.formula = *balance::capacity_formula_of(args.formula),
                  .min_capacity = args.min_capacity,
                  .alignment = args.alignment,
                  .num_ranks = args.num_ranks};
  options.start = args.start;
  options.min_factor = args.min_factor;
  options.max_factor = args.max_factor;
  options.target_drop_rate = args.target.value_or(0.0);
  options.fill_gain = args.fill_gain;
  options.drop_gain = args.drop_gain;
  options.attack_gain = args.attack_gain;
  options.release_gain = args.release_gain;
  options.memory_windows = args.memory_windows;
  return options;
}

// The layers of one window at one factor, or each at its own.
struct Replayed {
  std::vector<LawWindow> windows;
  double capacity_slots = 0.0;  // sum over windows of capacity x experts x layers
};

LawWindow merge(const std::vector<LawWindow>& layers) {
  LawWindow all = layers.front();
  all.num_assignments = 0;
  all.num_dropped = 0;
  double fill = 0.0;
  double factor = 0.0;
  for (const LawWindow& layer : layers) {
    all.num_assignments += layer.num_assignments;
    all.num_dropped += layer.num_dropped;
    all.capacity = std::max(all.capacity, layer.capacity);
    all.need = std::max(all.need, layer.need);
    all.at_min = all.at_min && layer.at_min;
    all.at_max = all.at_max || layer.at_max;
    fill += layer.fill.value_or(0.0);
    factor += layer.factor;
  }
  const double count = static_cast<double>(layers.size());
  all.factor = factor / count;
  all.fill = fill / count;
  all.drop_rate.reset();
  if (all.num_assignments > 0) {
    all.drop_rate = static_cast<double>(all.num_dropped) / static_cast<double>(all.num_assignments);
  }
  return all;
}

// All traces one after the other, as the law would meet them.
Replayed replay_law(const CapacityArgs& args, const std::vector<LoadedTrace>& traces,
                    CapacityLaw law, std::int64_t top_k) {
  const std::int64_t num_layers = traces.front().counts.num_layers();
  const std::int64_t num_experts = traces.front().counts.num_experts();
  std::vector<balance::CapacityController> controllers(
      static_cast<std::size_t>(args.is_per_layer ? num_layers : 1),
      balance::CapacityController(law_options(args, law), top_k));
  Replayed replayed;
  for (const LoadedTrace& trace : traces) {
    for (std::int64_t window = 0; window < trace.counts.num_windows(); ++window) {
      const std::int64_t tokens = trace.counts.windows[static_cast<std::size_t>(window)].num_tokens;
      if (!args.is_per_layer) {
        replayed.windows.push_back(
            controllers.front().step(trace.counts.window(window), num_experts, tokens));
        replayed.capacity_slots += static_cast<double>(replayed.windows.back().capacity) *
                                   static_cast<double>(num_experts * num_layers);
        continue;
      }
      std::vector<LawWindow> layers;
      for (std::int64_t layer = 0; layer < num_layers; ++layer) {
        layers.push_back(controllers[static_cast<std::size_t>(layer)].step(
            trace.counts.at(window, layer), num_experts, tokens));
        replayed.capacity_slots +=
            static_cast<double>(layers.back().capacity) * static_cast<double>(num_experts);
      }
      replayed.windows.push_back(merge(layers));
    }
  }
  return replayed;
}

struct LawSummary {
  double mean_factor = 0.0;
  double end_factor = 0.0;
  double mean_drop = 0.0;
  double max_drop = 0.0;
  std::optional<double> p95_drop;
  double mean_fill = 0.0;
  double share_at_min = 0.0;
  double share_at_max = 0.0;
  std::int64_t num_changes = 0;
  std::int64_t num_dropped = 0;
};

LawSummary summarize_law(const std::vector<LawWindow>& windows) {
  LawSummary summary;
  std::vector<double> drops;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const LawWindow& window = windows[i];
    summary.mean_factor += window.factor;
    summary.share_at_min += window.at_min ? 1.0 : 0.0;
    summary.share_at_max += window.at_max ? 1.0 : 0.0;
    summary.num_dropped += window.num_dropped;
    if (i > 0 && window.factor != windows[i - 1].factor) ++summary.num_changes;
    if (!window.drop_rate) continue;
    drops.push_back(*window.drop_rate);
    summary.mean_fill += window.fill.value_or(0.0);
  }
  const double count = static_cast<double>(windows.size());
  summary.mean_factor /= count;
  summary.share_at_min /= count;
  summary.share_at_max /= count;
  summary.end_factor = windows.back().factor;
  if (drops.empty()) return summary;
  const double num_drops = static_cast<double>(drops.size());
  summary.mean_fill /= num_drops;
  summary.mean_drop = balance::total(drops) / num_drops;
  std::sort(drops.begin(), drops.end());
  summary.max_drop = drops.back();
  summary.p95_drop = stats::percentile(drops, 0.95).value;
  return summary;
}

void add_law_tables(const CapacityArgs& args, const std::vector<LoadedTrace>& traces,
                    std::int64_t top_k, report::Report& report) {
  report::Table table =
      make_table("Control laws, window after window", {{"law", ""},
                                                       {"mean_factor", "1"},
                                                       {"end_factor", "1"},
                                                       {"mean_drop", "1"},
                                                       {"p95_drop", "1"},
                                                       {"max_drop", "1"},
                                                       {"mean_fill", "1"},
                                                       {"windows_at_min", "1"},
                                                       {"windows_at_max", "1"},
                                                       {"changes", "1"},
                                                       {"mean_capacity_bytes", "bytes"}});
  report::Table series = make_table("Factor by window", {{"law", ""},
                                                         {"window", "1"},
                                                         {"factor", "1"},
                                                         {"capacity", "1"},
                                                         {"drop_rate", "1"},
                                                         {"fill", "1"},
                                                         {"need", "1"}});
  series.is_detail = true;
  for (const CapacityLaw law : kLaws) {
    const Replayed replayed = replay_law(args, traces, law, top_k);
    const LawSummary summary = summarize_law(replayed.windows);
    const std::string name = balance::capacity_law_name(law);
    const double count = static_cast<double>(replayed.windows.size());
    table.rows.push_back(
        {name, summary.mean_factor, summary.end_factor, summary.mean_drop,
         summary.p95_drop ? Cell(*summary.p95_drop) : Cell(), summary.max_drop, summary.mean_fill,
         summary.share_at_min, summary.share_at_max, count_cell(summary.num_changes),
         args.token_bytes > 0
             ? Cell(replayed.capacity_slots / count * static_cast<double>(args.token_bytes))
             : Cell()});
    for (std::size_t i = 0; i < replayed.windows.size(); ++i) {
      const LawWindow& window = replayed.windows[i];
      series.rows.push_back({name, count_cell(static_cast<std::int64_t>(i)), window.factor,
                             count_cell(window.capacity),
                             window.drop_rate ? Cell(*window.drop_rate) : Cell(),
                             window.fill ? Cell(*window.fill) : Cell(), window.need});
    }
  }
  report.tables["laws"] = table;
  report.tables["factor_series"] = series;
  report.charts.push_back({"Capacity factor by window",
                           report::ChartKind::kLine,
                           "factor_series",
                           "window",
                           {"factor"},
                           "law"});
}

// What a fixed factor drops, by every system's formula.
void add_formula_table(const CapacityArgs& args, const std::vector<LoadedTrace>& traces,
                       std::int64_t top_k, report::Report& report) {
  report::Table table = make_table("Fixed factors, by formula", {{"formula", ""},
                                                                 {"factor", "1"},
                                                                 {"mean_capacity", "1"},
                                                                 {"drop_rate", "1"},
                                                                 {"fill", "1"}});
  const std::int64_t num_experts = traces.front().counts.num_experts();
  for (const char* formula :
       {"switch", "deepspeed", "megatron", "tutel", "megablocks", "fastmoe"}) {
    for (const double factor : {1.0, 1.1, 1.25, 1.3, 1.5, 1.75, 2.0, 3.0}) {
      const balance::CapacityRule rule = {.formula = *balance::capacity_formula_of(formula),
                                          .min_capacity = args.min_capacity,
                                          .alignment = args.alignment,
                                          .num_ranks = args.num_ranks};
      balance::Overflow sum;
      double slots = 0.0;
      double count = 0.0;
      double capacity_sum = 0.0;
      for (const LoadedTrace& trace : traces) {
        for (std::int64_t window = 0; window < trace.counts.num_windows(); ++window) {
          const std::int64_t tokens =
              trace.counts.windows[static_cast<std::size_t>(window)].num_tokens;
          for (std::int64_t layer = 0; layer < trace.counts.num_layers(); ++layer) {
            const auto counts = trace.counts.at(window, layer);
            const std::int64_t capacity =
                balance::expert_capacity(rule, factor, tokens, top_k, num_experts,
                                         *std::max_element(counts.begin(), counts.end()));
            const balance::Overflow part = balance::overflow(counts, capacity);
            sum.num_assignments += part.num_assignments;
            sum.num_dropped += part.num_dropped;
            slots += static_cast<double>(capacity) * static_cast<double>(num_experts);
            capacity_sum += static_cast<double>(capacity);
            count += 1.0;
          }
        }
      }
      const std::optional<double> rate = sum.rate();
      table.rows.push_back(
          {std::string(formula), factor, capacity_sum / count, rate ? Cell(*rate) : Cell(),
           slots > 0.0 ? Cell(static_cast<double>(sum.num_assignments - sum.num_dropped) / slots)
                       : Cell()});
    }
  }
  report.tables["formulas"] = table;
}

double largest_dropless_factor(const std::vector<LoadedTrace>& traces, std::int64_t top_k) {
  double largest = 0.0;
  for (const LoadedTrace& trace : traces) {
    for (std::int64_t window = 0; window < trace.counts.num_windows(); ++window) {
      const std::int64_t tokens = trace.counts.windows[static_cast<std::size_t>(window)].num_tokens;
      for (std::int64_t layer = 0; layer < trace.counts.num_layers(); ++layer) {
        largest = std::max(
            largest,
            balance::dropless_factor(trace.counts.at(window, layer), tokens, top_k).value_or(0.0));
      }
    }
  }
  return largest;
}

void add_metrics(const CapacityArgs& args, const routing::WindowSpec& window,
                 const std::vector<LoadedTrace>& traces, std::int64_t top_k,
                 ReportSession& session) {
  auto& metrics = session.report().metrics;
  const Replayed replayed = replay_law(args, traces, *balance::capacity_law_of(args.law), top_k);
  const LawSummary summary = summarize_law(replayed.windows);
  const auto replayed_value = [&](const char* name, double value, const char* how) {
    metrics[name] = value_metric(MetricKind::kReplayed, "1", value, how);
  };
  const auto assumed = [&](const char* name, const char* unit, double value, const char* how) {
    metrics[name] = value_metric(MetricKind::kModelled, unit, value, how);
  };
  replayed_value("capacity_dropped_tokens_count", static_cast<double>(summary.num_dropped),
                 "routed copies over capacity, all layers and windows, under the law asked for");
  replayed_value("capacity_drop_ratio", summary.mean_drop,
                 "mean over windows of dropped / routed copies");
  replayed_value("capacity_factor_mean_ratio", summary.mean_factor, "mean over windows");
  replayed_value("capacity_windows_at_max_ratio", summary.share_at_max,
                 "share of windows in which the factor stood on its upper bound");
  const double dropless = largest_dropless_factor(traces, top_k);
  replayed_value("capacity_dropless_factor_ratio", dropless,
                 "smallest factor of the Switch form at which no window drops anything");
  assumed("capacity_factor_start_ratio", "1", args.start, "as given");
  assumed("capacity_factor_max_ratio", "1", args.max_factor, "as given");
  assumed("engine_dropless", "1", args.is_dropless ? 1.0 : 0.0,
          "1 when the engine has no capacity at all, as given with --dropless");
  const char* window_how = "length of a control window";
  metrics["capacity_window_s"] =
      window.unit == routing::WindowUnit::kSeconds
          ? value_metric(MetricKind::kModelled, "s", window.length, window_how)
          : absent_metric(MetricKind::kModelled, "s",
                          fmt::format("windows are of {}, not of time",
                                      routing::window_unit_name(window.unit)),
                          window_how);
  session.report().highlights = {"capacity_drop_ratio", "capacity_factor_mean_ratio",
                                 "capacity_windows_at_max_ratio", "capacity_dropless_factor_ratio"};
  if (summary.share_at_max > 0.0) {
    session.add_finding(
        "capacity.at_bound", report::Severity::kWarning,
        fmt::format("the factor stands on its upper bound {} in {:.0f} % of the windows; dropless "
                    "operation would need {:.1f}",
                    args.max_factor, 100.0 * summary.share_at_max, dropless),
        "a larger factor buys memory for every expert; replicate the hot ones: moe-skew plan");
  }
  if (args.law.rfind("literal", 0) == 0 || args.law == "signs_flipped") {
    LawOptions options = law_options(args, CapacityLaw::kLiteralRate);
    session.add_finding(
        "capacity.quick_law", report::Severity::kWarning,
        fmt::format("CF + a E - b D raises the factor when slots are full and lowers it when "
                    "copies are dropped, the reverse of what it is meant to do; it rests at {:.0f} "
                    "to {:.0f} % dropped, and with the signs flipped at the same",
                    100.0 * balance::literal_rest_drop_rate(options, args.max_factor),
                    100.0 * balance::literal_rest_drop_rate(options, args.min_factor)),
        "--law bounded");
  }
}

int run_capacity(const CapacityArgs& args, const ToolContext& context) {
  const CapacityLaw law = *balance::capacity_law_of(args.law);
  balance::check_law(law_options(args, law));
  ReportSession session(context, args.output, args.acceptance);
  routing::WindowSpec window = routing::parse_window(args.window);
  // A window that is not full has another capacity: left out, as in the tables of the field.
  window.drop_partial = true;
  const std::vector<LoadedTrace> traces = load_traces(args.trace, args.trace.traces, window);
  const routing::InputInfo& info = traces.front().counts.info;
  const std::int64_t top_k = args.trace.top_k > 0 ? args.trace.top_k : info.top_k;
  for (const LoadedTrace& trace : traces) {
    for (const routing::Window& part : trace.counts.windows) {
      if (part.num_tokens > 0 && top_k > 0) continue;
      if (top_k > 0 && trace.counts.info.has_tokens) continue;  // an empty window
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: capacity needs the tokens of each window; give --top-k when the "
                              "trace holds counts",
                              trace.path));
    }
    if (trace.counts.num_windows() == 0) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: not one full window of {}", trace.path, args.window));
    }
  }
  report::Report& report = session.report();
  describe_traces("capacity", traces, args.trace, session);
  report.settings["window"] = args.window;
  report.settings["law"] = args.law;
  report.settings["formula"] = args.formula;
  report.settings["start"] = args.start;
  report.settings["min_factor"] = args.min_factor;
  report.settings["max_factor"] = args.max_factor;
  report.settings["target_drop"] = args.target.value_or(0.0);
  report.settings["per_layer"] = args.is_per_layer;
  add_law_tables(args, traces, top_k, report);
  add_formula_table(args, traces, top_k, report);
  add_metrics(args, window, traces, top_k, session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_capacity_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<CapacityArgs>();
  Options& options =
      line.add_command("capacity", "Replays capacity factors and their control laws: drops, fill",
                       [args, &context] { return run_capacity(*args, context); });
  options.positionals("TRACE", args->trace.traces,
                      "Recorded routing, replayed one after the other");
  add_trace_options(options, args->trace);
  options.group("Capacity");
  options.text("--window", "W", args->window,
               "Tokens or time between two decisions: 256tokens, 500ms");
  options.choice("--formula", {"switch", "deepspeed", "megatron", "tutel", "megablocks", "fastmoe"},
                 args->formula, "How the factor becomes slots of an expert");
  options.integer("--min-capacity", args->min_capacity, {0, 1 << 30},
                  "Least capacity (DeepSpeed, Megatron)");
  options.integer("--alignment", args->alignment, {1, 1 << 20}, "Multiple that Tutel rounds up to");
  options.integer("--ranks", args->num_ranks, {1, 1 << 20}, "Ranks (MegaBlocks, FastMoE)");
  options.choice(
      "--law",
      {"static", "literal_rate", "literal_count", "signs_flipped", "bounded", "feed_forward"},
      args->law, "Law that metrics and verdict are about; the table has all");
  options.real("--start", args->start, {0.01, 1e6}, "Factor of the first window");
  options.real("--min-factor", args->min_factor, {0.01, 1e6}, "Lower bound");
  options.real("--max-factor", args->max_factor, {0.01, 1e6}, "Upper bound");
  options.ratio("--target-drop", args->target, "Dropped share that the bounded law accepts", "0");
  options.real("--fill-gain", args->fill_gain, {0.0, 1e6}, "a of CF + a E - b D");
  options.real("--drop-gain", args->drop_gain, {0.0, 1e6}, "b of CF + a E - b D");
  options.real("--attack-gain", args->attack_gain, {0.0, 1e6},
               "Of the bounded law, per unit of drops above the target");
  options.real("--release-gain", args->release_gain, {0.0, 1e6},
               "Of the bounded law, per unit of factor above the need");
  options.integer("--memory", args->memory_windows, {1, 1 << 20},
                  "Windows over which the largest need is remembered");
  options.flag("--per-layer", args->is_per_layer, "A factor for each layer instead of one for all");
  options.flag("--dropless", args->is_dropless, "The engine has no capacity: nothing to judge");
  options.bytes("--token-bytes", args->token_bytes, "Bytes of a routed copy in its slot",
                "not known");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-skew capacity trace.npy --experts 64 --window 256tokens --target-drop 6%",
                  "all laws on one trace");
}

}  // namespace moe::app
