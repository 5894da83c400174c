// moe-bench import: what another client measured, by our definitions and our checklist.

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/error.hpp"
#include "lib/client_reports/client_report.hpp"

namespace moe::app {
namespace {

using client_reports::ClientReport;
using client_reports::Doubt;
using client_reports::DoubtLevel;
using client_reports::Latency;

struct ImportArgs {
  std::string file;
  std::string records;
  std::int64_t benchmark = 0;  // 0: the last
  double trace_peak_per_s = 0.0;
  OutputOptions output;
  AcceptanceOptions acceptance;
};

// What our words mean; the tool's own name for it goes behind.
const char* meaning_of(const std::string& name) {
  if (name == "ttft_s") return "request sent to the first event with a token";
  if (name == "ttfvt_s") return "request sent to the first token outside reasoning";
  if (name == "e2el_s") return "request sent to the last token";
  if (name == "tpot_s") return "(last token - first token) / (tokens - 1), one a request";
  if (name == "icl_s") return "gap between events, whatever they hold";
  return "gap between tokens";
}

// A summary without samples: its moments are kept, its percentiles cannot be.
report::Metric summary_metric(const Latency& latency, const std::string& how) {
  const char* kReason = "the file holds no samples";
  stats::Distribution distribution;
  distribution.count = latency.count.value_or(0);
  distribution.mean = latency.mean_s;
  distribution.min = latency.min_s;
  distribution.max = latency.max_s;
  distribution.absent_reason = kReason;
  for (stats::Percentile* percentile :
       {&distribution.p50, &distribution.p90, &distribution.p95, &distribution.p99}) {
    percentile->absent_reason = kReason;
  }
  report::Metric metric;
  metric.kind = report::MetricKind::kMeasured;
  metric.unit = "s";
  metric.distribution = std::move(distribution);
  metric.how = how;
  return metric;
}

void add_latencies(const ClientReport& run, report::Report& report) {
  const std::string source =
      fmt::format("{}{}{}", tool_name(run.tool), run.version.empty() ? "" : " ", run.version);
  report::Table printed = make_table("As the tool summarizes it", {{"metric", ""},
                                                                   {"its_name", ""},
                                                                   {"mean", "s"},
                                                                   {"p50", "s"},
                                                                   {"p90", "s"},
                                                                   {"p95", "s"},
                                                                   {"p99", "s"},
                                                                   {"max", "s"}});
  for (const auto& [name, latency] : run.latencies) {
    const std::string how =
        fmt::format("{}; measured by {}, its {}", meaning_of(name), source, latency.their_name);
    report.metrics[name] = latency.samples_s.empty()
                               ? summary_metric(latency, how)
                               : sampled_metric("s", latency.samples_s, "", how);
    const auto cell = [](const std::optional<double>& value) {
      return value ? report::Cell(*value) : report::Cell();
    };
    const auto percentile = [&](const char* wanted) {
      for (const auto& [p, value] : latency.percentiles_s) {
        if (p == wanted) return report::Cell(value);
      }
      return report::Cell();
    };
    if (!latency.mean_s) continue;
    printed.rows.push_back({name, latency.their_name, cell(latency.mean_s), percentile("p50"),
                            percentile("p90"), percentile("p95"), percentile("p99"),
                            cell(latency.max_s)});
  }
  if (!printed.rows.empty()) report.tables["as_printed"] = std::move(printed);
}

void add_metrics(const ClientReport& run, double trace_peak_per_s, report::Report& report) {
  const auto add = [&](const char* name, const char* unit, const std::optional<double>& value,
                       const char* how) {
    report.metrics[name] =
        value ? value_metric(report::MetricKind::kMeasured, unit, *value, how)
              : absent_metric(report::MetricKind::kMeasured, unit, "the file does not say", how);
  };
  const auto real = [](const std::optional<std::int64_t>& value) {
    return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
  };
  add("requests_completed_count", "1", real(run.completed),
      "requests that the tool counts as successes");
  add("requests_failed_count", "1", real(run.failed), "requests that the tool counts as failures");
  add("requests_dropped_count", "1", real(run.dropped),
      "requests that were planned and neither completed nor failed");
  add("duration_s", "s", run.duration_s, "length of the run as the tool has it");
  add("requests_per_s", "requests/s", run.requests_per_s, "as the tool computes it");
  add("output_tokens_per_s", "tokens/s", run.output_tokens_per_s, "as the tool computes it");
  add("total_tokens_per_s", "tokens/s", run.total_tokens_per_s, "as the tool computes it");
  add("input_tokens_count", "1", real(run.input_tokens), "as the tool counts them");
  add("output_tokens_count", "1", real(run.output_tokens), "as the tool counts them");
  if (trace_peak_per_s > 0.0 && run.requests_per_s) {
    report.metrics["load_over_trace_peak_ratio"] =
        value_metric(report::MetricKind::kMeasured, "1", *run.requests_per_s / trace_peak_per_s,
                     "requests_per_s over the peak given with --trace-peak");
  }
  report.highlights = {"ttft_s", "tpot_s", "e2el_s", "output_tokens_per_s", "requests_per_s"};
  std::erase_if(report.highlights,
                [&](const std::string& name) { return !report.metrics.contains(name); });
}

void add_runs_table(const std::vector<ClientReport>& runs, report::Report& report) {
  if (runs.size() < 2) return;
  report::Table table = make_table("Runs of the file", {{"run", "1"},
                                                        {"load", ""},
                                                        {"completed", "1"},
                                                        {"failed", "1"},
                                                        {"requests_per_s", "requests/s"},
                                                        {"output_tokens_per_s", "tokens/s"}});
  std::int64_t number = 0;
  for (const ClientReport& run : runs) {
    const auto count = [](const std::optional<std::int64_t>& value) {
      return value ? count_cell(*value) : report::Cell();
    };
    const auto rate = [](const std::optional<double>& value) {
      return value ? report::Cell(*value) : report::Cell();
    };
    table.rows.push_back({count_cell(++number), run.load, count(run.completed), count(run.failed),
                          rate(run.requests_per_s), rate(run.output_tokens_per_s)});
  }
  report.tables["runs"] = std::move(table);
}

report::Severity severity_of(DoubtLevel level) {
  switch (level) {
    case DoubtLevel::kInfo:
      return report::Severity::kInfo;
    case DoubtLevel::kWarning:
      return report::Severity::kWarning;
    case DoubtLevel::kError:
      return report::Severity::kError;
  }
  return report::Severity::kError;
}

// Not every file says which server or model it was.
std::string name_of_subject(const ClientReport& run, const std::string& file) {
  if (!run.target.empty()) return run.target;
  return run.model.empty() ? file : run.model;
}

int run_import(const ImportArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output, args.acceptance);
  const std::vector<ClientReport> runs =
      client_reports::read_client_reports(args.file, args.records);
  const auto num_runs = static_cast<std::int64_t>(runs.size());
  if (args.benchmark > num_runs) {
    throw Error(ErrorCode::kUsage,
                fmt::format("--benchmark {}: the file holds {}", args.benchmark, num_runs));
  }
  const std::int64_t chosen = args.benchmark > 0 ? args.benchmark : num_runs;
  const ClientReport& run = runs[static_cast<std::size_t>(chosen - 1)];

  report::Report& report = session.report();
  report.subject = json::Json{{"kind", "server"},
                              {"name", name_of_subject(run, args.file)},
                              {"content_hash", nullptr},
                              {"model", run.model},
                              {"measured_by", tool_name(run.tool)},
                              {"measured_by_version", run.version},
                              {"measured_at", run.date}};
  report.settings["command"] = "import";
  report.settings["file"] = args.file;
  report.settings["records"] = args.records;
  report.settings["benchmark"] = chosen;
  report.settings["load"] = run.load;
  add_latencies(run, report);
  add_metrics(run, args.trace_peak_per_s, report);
  add_runs_table(runs, report);
  for (const Doubt& doubt : run.doubts) {
    session.add_finding(doubt.code, severity_of(doubt.level), doubt.message, doubt.advice);
    if (doubt.level == DoubtLevel::kError) session.invalidate(doubt.message);
  }
  return session.finish(kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

void add_client_import_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<ImportArgs>();
  Options& options = line.add_command(
      "import", "Judges the report of vllm bench serve, AIPerf, GuideLLM or inference-perf",
      [args, &context] { return run_import(*args, context); });
  options.positional("FILE", args->file,
                     "JSON of vllm bench serve or throughput, AIPerf (profile_export_aiperf.json), "
                     "GuideLLM, or inference-perf (summary or stage)");
  options.group("Input");
  options.text("--records", "FILE", args->records,
               "Single requests beside the summary: profile_export.jsonl of AIPerf, "
               "per_request_lifecycle_metrics.json of inference-perf");
  options.integer("--benchmark", args->benchmark, {1, 1000}, "Which run of a file with several",
                  "the last");
  options.real("--trace-peak", args->trace_peak_per_s, {0.0, 1e9},
               "Peak of the production trace in requests/s, for the stress item of the checklist");
  add_acceptance_options(options, args->acceptance);
  add_output_options(options, args->output);
  options.example("moe-bench import result.json --gate",
                  "an old run by today's checklist, and what its figures hide");
}

}  // namespace moe::app
