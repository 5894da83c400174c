// The tables and charts of moe-bench serve.

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "lib/app/bench/serve_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/stats/distribution.hpp"

namespace moe::app {
namespace {

using client::ServerSnapshot;
using report::Cell;

Cell cell_of(const std::optional<double>& value) {
  return value ? Cell(*value) : Cell();
}

// Absent where the sample cannot support it.
Cell percentile_cell(std::vector<double> samples, double p) {
  std::sort(samples.begin(), samples.end());
  return cell_of(stats::percentile(samples, p).value);
}

Cell mean_cell(const std::vector<double>& samples) {
  return samples.empty() ? Cell() : cell_of(stats::summarize(samples).mean);
}

const ServerSnapshot* snapshot_in(const std::vector<ServerSnapshot>& snapshots, double begin_s,
                                  double end_s) {
  for (const ServerSnapshot& snapshot : snapshots) {
    if (snapshot.time_s >= begin_s && snapshot.time_s < end_s) return &snapshot;
  }
  return nullptr;
}

bool has_server_view(const ServeOutcome& outcome) {
  return std::any_of(outcome.points.begin(), outcome.points.end(),
                     [](const ServePointOutcome& point) { return !point.snapshots.empty(); });
}

void add_over_time(const ServeOutcome& outcome, report::Report& report) {
  report::Table table = make_table("Over time", {{"load", ""},
                                                 {"time_s", "s"},
                                                 {"sent_per_s", "requests/s"},
                                                 {"completed_per_s", "requests/s"},
                                                 {"failed_count", "1"},
                                                 {"output_tokens_per_s", "tokens/s"},
                                                 {"ttft_median_s", "s"},
                                                 {"ttft_max_s", "s"},
                                                 {"in_flight", "1"},
                                                 {"server_running", "1"},
                                                 {"server_waiting", "1"},
                                                 {"server_kv_use_ratio", "1"}});
  table.is_detail = true;
  for (const ServePointOutcome& point : outcome.points) {
    for (const client::TimeBin& bin : point.figures.bins) {
      const ServerSnapshot* server =
          snapshot_in(point.snapshots, bin.begin_s, bin.begin_s + bin.width_s);
      const auto of_server = [&](std::optional<double> ServerSnapshot::*field) {
        return server == nullptr ? Cell() : cell_of(server->*field);
      };
      table.rows.push_back(
          {point.point.label, bin.begin_s, static_cast<double>(bin.sent) / bin.width_s,
           static_cast<double>(bin.completed) / bin.width_s, count_cell(bin.failed),
           bin.output_tokens / bin.width_s, cell_of(bin.ttft_median_s), cell_of(bin.ttft_max_s),
           bin.in_flight_mean, of_server(&ServerSnapshot::running),
           of_server(&ServerSnapshot::waiting), of_server(&ServerSnapshot::kv_use_ratio)});
    }
  }
  report.tables["over_time"] = std::move(table);
}

void add_charts(const ServeOutcome& outcome, report::Report& report) {
  const bool is_sweep = outcome.points.size() > 1;
  const std::string group = is_sweep ? "load" : "";
  const auto over_time = [&](const char* title, std::vector<std::string> y) {
    report.charts.push_back(
        {title, report::ChartKind::kLine, "over_time", "time_s", std::move(y), group});
  };
  over_time("Time to first token over time", {"ttft_median_s", "ttft_max_s"});
  over_time("Requests a second over time", {"sent_per_s", "completed_per_s"});
  over_time("Output tokens a second over time", {"output_tokens_per_s"});
  if (has_server_view(outcome)) {
    over_time("Requests under way over time", {"in_flight", "server_running", "server_waiting"});
  } else {
    over_time("Requests under way over time", {"in_flight"});
  }
  if (is_sweep) {
    report.charts.push_back({"Throughput by load",
                             report::ChartKind::kLine,
                             "loads",
                             "load_value",
                             {"output_tokens_per_s"},
                             ""});
    report.charts.push_back({"Time to first token by load",
                             report::ChartKind::kLine,
                             "loads",
                             "load_value",
                             {"ttft_p50_s", "ttft_p99_s"},
                             ""});
  }
}

void add_failures(const ServeOutcome& outcome, report::Report& report) {
  report::Table table =
      make_table("Failures", {{"load", ""}, {"class", ""}, {"count", "1"}, {"first_message", ""}});
  for (const ServePointOutcome& point : outcome.points) {
    for (std::size_t i = 1; i < point.figures.failures.size(); ++i) {
      if (point.figures.failures[i] == 0) continue;
      const auto failure = static_cast<client::Failure>(i);
      const auto& records = point.result.records;
      const auto first = std::find_if(
          records.begin(), records.end(),
          [&](const client::RequestRecord& record) { return record.failure == failure; });
      table.rows.push_back({point.point.label, std::string(client::name_of(failure)),
                            count_cell(point.figures.failures[i]),
                            first == records.end() ? std::string() : first->error});
    }
  }
  if (!table.rows.empty()) report.tables["failures"] = std::move(table);
}

Cell histogram_mean(const std::optional<client::MetricHistogram>& histogram) {
  if (!histogram || histogram->count <= 0.0) return {};
  return histogram->sum / histogram->count;
}

// What the server measured beside what the client saw.
void add_server_view(const ServeOutcome& outcome, report::Report& report) {
  report::Table table =
      make_table("The server's own view, over the run",
                 {{"load", ""}, {"quantity", ""}, {"unit", ""}, {"server", ""}, {"client", ""}});
  for (const ServePointOutcome& point : outcome.points) {
    if (!point.delta || point.delta->was_restarted) continue;
    const client::ServerDelta& delta = *point.delta;
    const auto row = [&](const char* name, const char* unit, const Cell& server, const Cell& own) {
      if (std::holds_alternative<std::monostate>(server)) return;
      table.rows.push_back({point.point.label, std::string(name), std::string(unit), server, own});
    };
    const client::LoadFigures& figures = point.figures;
    row("mean time to first token", "s", histogram_mean(delta.ttft_s), mean_cell(figures.ttft_s));
    row("mean time between tokens", "s", histogram_mean(delta.inter_token_s),
        mean_cell(figures.itl_s));
    row("mean latency", "s", histogram_mean(delta.end_to_end_s), mean_cell(figures.e2e_s));
    row("mean time in the queue", "s", histogram_mean(delta.queue_s), {});
    row("mean prefill", "s", histogram_mean(delta.prefill_s), {});
    row("mean decode", "s", histogram_mean(delta.decode_s), {});
    row("prompt tokens", "1", cell_of(delta.prompt_tokens),
        static_cast<double>(figures.input_tokens));
    row("generated tokens", "1", cell_of(delta.generated_tokens),
        static_cast<double>(figures.output_tokens));
    row("finished requests", "1", cell_of(delta.finished_requests),
        static_cast<double>(figures.num_succeeded));
    row("preemptions", "1", cell_of(delta.preemptions), {});
    row("prefix cache hits", "1", cell_of(delta.prefix_hit_ratio),
        figures.has_cached_tokens && figures.input_tokens > 0
            ? Cell(static_cast<double>(figures.cached_tokens) /
                   static_cast<double>(figures.input_tokens))
            : Cell());
    row("expert balance (mean over busiest GPU)", "1", cell_of(delta.expert_balance), {});
  }
  if (!table.rows.empty()) report.tables["server_view"] = std::move(table);
}

}  // namespace

std::vector<report::Column> load_columns() {
  return {{"load", ""},
          {"load_value", "1"},
          {"requests_count", "1"},
          {"failed_count", "1"},
          {"requests_per_s", "requests/s"},
          {"output_tokens_per_s", "tokens/s"},
          {"ttft_p50_s", "s"},
          {"ttft_p99_s", "s"},
          {"itl_p50_s", "s"},
          {"tpot_p50_s", "s"},
          {"e2el_p50_s", "s"},
          {"e2el_p99_s", "s"},
          {"peak_in_flight", "1"},
          {"goodput_requests_per_s", "requests/s"},
          {"keeps_slo", ""},
          {"ended_by", ""}};
}

std::vector<report::Cell> load_row(const ServePointOutcome& outcome) {
  const client::LoadFigures& figures = outcome.figures;
  return {outcome.point.label,
          outcome.point.load,
          count_cell(figures.num_requests),
          count_cell(figures.num_requests - figures.num_succeeded),
          cell_of(figures.requests_per_s),
          cell_of(figures.output_tokens_per_s),
          percentile_cell(figures.ttft_s, 0.50),
          percentile_cell(figures.ttft_s, 0.99),
          percentile_cell(figures.itl_s, 0.50),
          percentile_cell(figures.tpot_s, 0.50),
          percentile_cell(figures.e2e_s, 0.50),
          percentile_cell(figures.e2e_s, 0.99),
          count_cell(outcome.result.peak_in_flight),
          cell_of(figures.goodput_requests_per_s),
          figures.shares.all ? Cell(outcome.meets_level) : Cell(),
          std::string(client::name_of(outcome.result.end))};
}

void add_serve_tables(const ServeOutcome& outcome, report::Report& report) {
  report::Table table = make_table("Loads", load_columns());
  for (const ServePointOutcome& point : outcome.points) table.rows.push_back(load_row(point));
  report.tables["loads"] = std::move(table);
  add_failures(outcome, report);
  add_server_view(outcome, report);
  add_over_time(outcome, report);
  add_charts(outcome, report);
}

}  // namespace moe::app
