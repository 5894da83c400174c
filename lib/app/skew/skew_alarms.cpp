// moe-skew alarms: when would a rule have rung on recorded traffic, and was it right.

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/skew/load_series.hpp"
#include "lib/app/skew/placement_commands.hpp"
#include "lib/app/skew/skew_placement.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/balance/alarms.hpp"
#include "lib/balance/series_text.hpp"
#include "lib/base/atomic_file.hpp"
#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"

namespace moe::app {
namespace {

using balance::AlarmEvent;
using balance::AlarmRule;
using balance::AlarmSample;
using report::Cell;
using report::MetricKind;

struct AlarmArgs {
  TraceArgs trace;
  ClusterArgs cluster;
  std::string plan;
  std::vector<std::string> rules;
  std::string window = "10s";
  double assumed_window_s = 0.0;
  std::string series;
  std::string labels;
  std::string prometheus;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

// The article's rule, and that of its check-list for communication.
constexpr const char* kLoadRule = "gpu_load_sigma_ratio > 0.5 over 5min";
constexpr const char* kCommRule = "comm_share > 0.35 over 5min";

std::string text_of_file(const std::string& path) {
  const FileMap file(path);
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<AlarmRule> rules_of(const AlarmArgs& args, const balance::Series& series) {
  std::vector<AlarmRule> rules;
  for (const std::string& text : args.rules) rules.push_back(balance::parse_alarm_rule(text));
  if (!rules.empty()) return rules;
  rules.push_back(balance::parse_alarm_rule(kLoadRule));
  if (std::find(series.names.begin(), series.names.end(), "comm_share") != series.names.end()) {
    rules.push_back(balance::parse_alarm_rule(kCommRule));
  }
  return rules;
}

// Mean of the values in (t - over, t]; nothing before a whole stretch has passed.
std::vector<AlarmSample> samples_of(const balance::Series& series, std::size_t column,
                                    double over_s) {
  std::vector<AlarmSample> samples;
  std::size_t begin = 0;
  double sum = 0.0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < series.time_s.size(); ++i) {
    const double now_s = series.time_s[i];
    if (series.values[column][i]) {
      sum += *series.values[column][i];
      ++count;
    }
    while (begin < i && series.time_s[begin] <= now_s - over_s) {
      if (series.values[column][begin]) {
        sum -= *series.values[column][begin];
        --count;
      }
      ++begin;
    }
    const bool is_whole = now_s - series.time_s.front() >= over_s;
    samples.push_back({now_s, is_whole && count > 0
                                  ? std::optional<double>(sum / static_cast<double>(count))
                                  : std::nullopt});
  }
  return samples;
}

std::vector<AlarmSample> samples_for(const AlarmRule& rule, const LoadSeries& loads,
                                     const balance::Series& series) {
  const auto found = std::find(series.names.begin(), series.names.end(), rule.metric);
  if (found != series.names.end()) {
    return samples_of(series, static_cast<std::size_t>(found - series.names.begin()), rule.over_s);
  }
  return loads.samples(rule.metric, rule.over_s);
}

void add_events(const AlarmRule& rule, const std::vector<AlarmEvent>& events,
                report::Table& table) {
  for (const AlarmEvent& event : events) {
    table.rows.push_back({balance::describe(rule), event.begin_s, event.ring_s,
                          event.end_s - event.ring_s, event.worst});
  }
}

void write_prometheus(const AlarmArgs& args, const std::vector<AlarmRule>& rules,
                      ReportSession& session) {
  if (args.prometheus.empty()) return;
  std::string text = "groups:\n- name: moe-skew\n  rules:\n";
  int num_written = 0;
  for (const AlarmRule& rule : rules) {
    const auto alert =
        balance::prometheus_rule(rule, fmt::format("MoeSkewAlarm{}", num_written + 1));
    if (!alert) {
      session.add_finding(
          "alarms.no_prometheus_metric", report::Severity::kInfo,
          fmt::format("no server exports {}; the rule is not in {}", rule.metric, args.prometheus),
          "servers export balancedness: vllm:eplb_balancedness_min, _avg, _p90");
      continue;
    }
    ++num_written;
    std::size_t begin = 0;
    while (begin < alert->size()) {
      const std::size_t end = alert->find('\n', begin);
      text += "  " + alert->substr(begin, end - begin + 1);
      begin = end + 1;
    }
  }
  if (num_written == 0) text = "groups: []\n";
  write_file_atomically(args.prometheus, text);
}

void add_rule_results(const AlarmArgs& args, const std::vector<AlarmRule>& rules,
                      const LoadSeries& loads, const balance::Series& series,
                      const std::vector<balance::AlarmLabel>& labels, ReportSession& session) {
  report::Report& report = session.report();
  report::Table table = make_table("Rules", {{"rule", ""},
                                             {"samples", "1"},
                                             {"events", "1"},
                                             {"first_ring_s", "s"},
                                             {"total_s", "s"},
                                             {"precision", "1"},
                                             {"recall", "1"},
                                             {"mean_delay_s", "s"}});
  report::Table events_table = make_table(
      "Events",
      {{"rule", ""}, {"begin_s", "s"}, {"ring_s", "s"}, {"duration_s", "s"}, {"worst", "1"}});
  for (const AlarmRule& rule : rules) {
    const std::vector<AlarmSample> samples = samples_for(rule, loads, series);
    const std::int64_t num_values = std::count_if(
        samples.begin(), samples.end(), [](const AlarmSample& sample) { return sample.value; });
    const std::vector<AlarmEvent> events = balance::replay_alarm(rule, samples);
    const balance::AlarmScore score = balance::score_alarm(events, labels);
    double total_s = 0.0;
    for (const AlarmEvent& event : events) total_s += event.end_s - event.ring_s;
    const auto cell = [](const std::optional<double>& value) {
      return value ? Cell(*value) : Cell();
    };
    const bool is_labelled = !args.labels.empty();
    table.rows.push_back({balance::describe(rule), count_cell(num_values),
                          count_cell(static_cast<std::int64_t>(events.size())),
                          events.empty() ? Cell() : Cell(events.front().ring_s), total_s,
                          is_labelled ? cell(score.precision()) : Cell(),
                          is_labelled ? cell(score.recall()) : Cell(), cell(score.delay_s)});
    add_events(rule, events, events_table);
    if (num_values == 0) {
      session.add_finding("alarms.no_sample", report::Severity::kWarning,
                          fmt::format("\"{}\": the trace holds no stretch of {} s with load",
                                      balance::describe(rule), rule.over_s),
                          "a longer trace, or a shorter \"over\"");
    }
  }
  report.tables["rules"] = table;
  report.tables["events"] = events_table;
}

// What the checklist asks for: the spread over five minutes, at its worst.
void add_load_metric(const LoadSeries& loads, report::Report& report) {
  constexpr double kWindowS = 300.0;
  const char* how =
      "standard deviation over GPUs of the routed copies of all layers / their mean, over 5 "
      "minutes, at the worst time";
  std::optional<double> worst;
  for (const AlarmSample& sample : loads.samples("gpu_load_sigma_ratio", kWindowS)) {
    if (sample.value && (!worst || *sample.value > *worst)) worst = sample.value;
  }
  report.metrics["gpu_load_sigma_ratio"] =
      worst ? value_metric(MetricKind::kReplayed, "1", *worst, how)
            : absent_metric(MetricKind::kReplayed, "1", "the trace is shorter than 5 minutes", how);
  report.metrics["gpu_load_window_s"] =
      worst ? value_metric(MetricKind::kReplayed, "s", kWindowS, "time the spread is taken over")
            : absent_metric(MetricKind::kReplayed, "s", "the trace is shorter than 5 minutes",
                            "time the spread is taken over");
  report.highlights = {"gpu_load_sigma_ratio"};
}

int run_alarms(const AlarmArgs& args, const ToolContext& context) {
  if (!args.prometheus.empty()) check_writable(args.prometheus, "--prometheus");
  ReportSession session(context, args.output, args.acceptance);
  const routing::WindowSpec window = routing::parse_window(args.window);
  if (args.trace.traces.size() != 1) throw Error(ErrorCode::kUsage, "expected one TRACE to watch");
  const std::vector<LoadedTrace> traces = load_traces(args.trace, args.trace.traces, window);
  const LoadedTrace& trace = traces.front();
  const routing::InputInfo& info = trace.counts.info;
  const balance::Placement placement = [&] {
    if (!args.plan.empty()) return load_plan(args.plan, args.cluster.num_gpus, info);
    return balance::linear_placement(make_cluster(args.cluster, info.num_experts),
                                     trace.loads.num_layers, info.num_experts);
  }();
  const balance::Cluster cluster = cluster_of(placement, args.cluster);
  balance::Series series;
  if (!args.series.empty()) series = balance::read_series(text_of_file(args.series), args.series);
  std::vector<balance::AlarmLabel> labels;
  if (!args.labels.empty()) labels = balance::read_labels(text_of_file(args.labels), args.labels);
  const std::vector<AlarmRule> rules = rules_of(args, series);
  const LoadSeries loads(trace.counts, placement, cluster, args.assumed_window_s);

  describe_traces("alarms", traces, args.trace, session);
  report::Report& report = session.report();
  describe_cluster(cluster, report);
  report.settings["plan"] = args.plan;
  report.settings["window"] = args.window;
  report.settings["assumed_window_s"] = args.assumed_window_s;
  json::Json texts = json::Json::array();
  for (const AlarmRule& rule : rules) texts.push_back(balance::describe(rule));
  report.settings["rules"] = texts;
  add_rule_results(args, rules, loads, series, labels, session);
  add_load_metric(loads, report);
  if (args.assumed_window_s > 0.0) {
    session.add_finding("alarms.assumed_time", report::Severity::kWarning,
                        fmt::format("a window of {} is taken to last {} s; times follow from that",
                                    args.window, args.assumed_window_s),
                        "record time stamps");
  }
  write_prometheus(args, rules, session);
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_alarms_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<AlarmArgs>();
  Options& options =
      line.add_command("alarms", "Replays alarm rules over a trace: when, how long, how right",
                       [args, &context] { return run_alarms(*args, context); });
  options.positionals("TRACE", args->trace.traces, "Recorded routing with time stamps");
  add_trace_options(options, args->trace);
  add_cluster_options(options, args->cluster);
  options.group("Alarms");
  options.texts("--rule", "RULE", args->rules,
                std::string("METRIC > NUMBER [over TIME] [for TIME]; without one \"") + kLoadRule +
                    "\"; metrics: " + LoadSeries::metric_names() + ", and those of --series");
  options.text("--plan", "FILE", args->plan, "The placement; without it the linear one");
  options.text("--window", "W", args->window, "Time between two looks: 10s, or 256tokens, 10steps");
  options.real("--assumed-window-s", args->assumed_window_s, {},
               "How long a window of tokens or steps takes, where the trace has no time stamps");
  options.text("--series", "FILE", args->series, "CSV of measured values: time_s,comm_share,...");
  options.text("--labels", "FILE", args->labels,
               "CSV of stretches in which an alarm is wanted: begin_s,end_s");
  options.text("--prometheus", "FILE", args->prometheus,
               "Write the rules for Prometheus, in the names that servers export");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
}

}  // namespace moe::app
