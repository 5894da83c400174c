// The tables and charts of moe-bench run.

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lib/app/bench/bench_limits.hpp"
#include "lib/app/bench/run_report.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/routing/load.hpp"

namespace moe::app {
namespace {

using report::Cell;
using report::Column;
using report::Table;

// Tables are shown in the order of their keys: core, latency, limits, notes, routing, samples,
// time.

// The median, whatever the number of samples: tables show a typical value, metrics its certainty.
Cell median_cell(const std::vector<double>& samples) {
  return samples.empty() ? Cell() : Cell(stats::median(samples));
}

// Against the median of the samples between the repetitions.
Cell ratio_cell(double achieved, const std::vector<double>& limits) {
  return limits.empty() ? Cell() : Cell(achieved / stats::median(limits));
}

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::vector<Cell> point_cells(const BenchPoint& point) {
  return {point_label(point), count_cell(point.batch), count_cell(point.prompt_tokens),
          count_cell(point.output_tokens)};
}

const std::vector<Column>& point_columns() {
  static const std::vector<Column> columns = {
      {"point", ""}, {"batch", "1"}, {"prompt_tokens", "1"}, {"output_tokens", "1"}};
  return columns;
}

Table table_of_points(const std::string& title, const std::vector<Column>& more) {
  std::vector<Column> columns = point_columns();
  columns.insert(columns.end(), more.begin(), more.end());
  return make_table(title, std::move(columns));
}

void add_points_table(const RunOutcome& outcome, report::Report& report) {
  Table table =
      table_of_points("Latency and throughput (medians)", {{"status", ""},
                                                           {"repetitions", "1"},
                                                           {"ttft_s", "s"},
                                                           {"itl_s", "s"},
                                                           {"tpot_s", "s"},
                                                           {"e2el_s", "s"},
                                                           {"prefill_tokens_per_s", "tokens/s"},
                                                           {"decode_tokens_per_s", "tokens/s"},
                                                           {"total_tokens_per_s", "tokens/s"}});
  Table notes = table_of_points("How each point ended",
                                {{"status", ""}, {"reason", ""}, {"output_hash", ""}});
  notes.is_detail =
      std::all_of(outcome.points.begin(), outcome.points.end(),
                  [](const PointOutcome& point) { return point.status == PointStatus::kMeasured; });
  for (const PointOutcome& point : outcome.points) {
    std::vector<Cell> row = point_cells(point.point);
    std::vector<Cell> note = row;
    row.emplace_back(std::string(point_status_name(point.status)));
    note.emplace_back(std::string(point_status_name(point.status)));
    note.emplace_back(point.reason);
    note.emplace_back(point.figures ? Cell(fmt::format("{:016x}", point.output_hash)) : Cell());
    if (point.figures) {
      const PointFigures& figures = *point.figures;
      row.push_back(count_cell(figures.num_repetitions));
      for (const std::vector<double>* samples :
           {&figures.ttft_s, &figures.itl_s, &figures.tpot_s, &figures.e2el_s,
            &figures.prefill_tokens_per_s, &figures.decode_tokens_per_s}) {
        row.push_back(median_cell(*samples));
      }
      row.emplace_back(figures.total_tokens_per_s);
    }
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
    notes.rows.push_back(std::move(note));
  }
  report.tables["latency"] = std::move(table);
  report.tables["notes"] = std::move(notes);
}

void add_efficiency_table(const RunOutcome& outcome, report::Report& report) {
  Table table = table_of_points("How far from the machine's limits (medians)",
                                {{"prefill_roofline_ratio", "1"},
                                 {"decode_roofline_ratio", "1"},
                                 {"prefill_flops_per_s", "flop/s"},
                                 {"prefill_flops_limit_ratio", "1"},
                                 {"decode_read_bytes_per_s", "bytes/s"},
                                 {"decode_read_limit_ratio", "1"},
                                 {"decode_weight_bytes_per_step", "bytes"},
                                 {"decode_expert_bytes_per_step", "bytes"}});
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    const PointFigures& figures = *point.figures;
    std::vector<Cell> row = point_cells(point.point);
    row.push_back(median_cell(figures.prefill_roofline_ratios));
    row.push_back(median_cell(figures.decode_roofline_ratios));
    const double prefill_rate = static_cast<double>(figures.prefill.flops) / total(figures.ttft_s);
    row.emplace_back(prefill_rate);
    row.push_back(ratio_cell(prefill_rate, figures.peak_limits_ops_per_s));
    const double decode_s = total(figures.itl_s);
    if (decode_s > 0.0) {
      const auto steps = static_cast<double>(figures.num_decode_steps);
      const double read_rate =
          static_cast<double>(figures.decode.weight_bytes_read + figures.decode.kv_bytes_read) /
          decode_s;
      row.emplace_back(read_rate);
      row.push_back(ratio_cell(read_rate, figures.read_limits_bytes_per_s));
      row.emplace_back(static_cast<double>(figures.decode.weight_bytes_read) / steps);
      row.emplace_back(static_cast<double>(figures.decode.expert_weight_bytes_read) / steps);
    }
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  if (!table.rows.empty()) report.tables["limits_achieved"] = std::move(table);
}

// The limits that were sampled between the repetitions, by the state of the cores.
void add_sampled_limits_table(const RunOutcome& outcome, report::Report& report) {
  using engine::CoreState;
  Table table = table_of_points("Limits sampled between the repetitions (medians)",
                                {{"cores", ""},
                                 {"samples", "1"},
                                 {"read_bytes_per_s", "bytes/s"},
                                 {"peak_ops_per_s", "ops/s"}});
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    const PointFigures& figures = *point.figures;
    for (const CoreState state : {CoreState::kFree, CoreState::kShared, CoreState::kUnknown}) {
      const std::vector<double> read =
          samples_in_state(figures.read_limits_bytes_per_s, figures.limit_states, state);
      const std::vector<double> peak =
          samples_in_state(figures.peak_limits_ops_per_s, figures.limit_states, state);
      if (read.empty()) continue;
      std::vector<Cell> row = point_cells(point.point);
      row.emplace_back(std::string(engine::core_state_name(state)));
      row.push_back(count_cell(std::ssize(read)));
      row.push_back(median_cell(read));
      row.push_back(median_cell(peak));
      table.rows.push_back(std::move(row));
    }
  }
  if (!table.rows.empty()) report.tables["limits_sampled"] = std::move(table);
}

// Over all samples, and apart by the state of the cores before and after each.
void add_core_states_table(const RunOutcome& outcome, report::Report& report) {
  using engine::CoreState;
  Table table =
      table_of_points("Times by the state of the cores (medians)", {{"phase", ""},
                                                                    {"samples", "1"},
                                                                    {"free_samples", "1"},
                                                                    {"shared_samples", "1"},
                                                                    {"all_s", "s"},
                                                                    {"free_s", "s"},
                                                                    {"shared_s", "s"}});
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    const auto add = [&](const char* phase, const std::vector<double>& samples,
                         const std::vector<CoreState>& states) {
      if (states.empty()) return;
      const std::vector<double> free = samples_in_state(samples, states, CoreState::kFree);
      const std::vector<double> shared = samples_in_state(samples, states, CoreState::kShared);
      std::vector<Cell> row = point_cells(point.point);
      row.emplace_back(std::string(phase));
      row.push_back(count_cell(std::ssize(samples)));
      row.push_back(count_cell(std::ssize(free)));
      row.push_back(count_cell(std::ssize(shared)));
      for (const std::vector<double>* part : {&samples, &free, &shared}) {
        row.push_back(median_cell(*part));
      }
      table.rows.push_back(std::move(row));
    };
    add("prefill", point.figures->ttft_s, point.figures->ttft_states);
    add("decode step", point.figures->itl_s, point.figures->itl_states);
  }
  if (!table.rows.empty()) report.tables["core_states"] = std::move(table);
}

void add_stages_table(const RunOutcome& outcome, report::Report& report) {
  std::vector<Column> more = {{"phase", ""}, {"total_s", "s"}};
  for (std::size_t i = 0; i < engine::kNumStages; ++i) {
    more.push_back({fmt::format("{}_s", engine::stage_name(static_cast<engine::Stage>(i))), "s"});
  }
  more.push_back({"other_s", "s"});
  Table table = table_of_points("Time by stage (seconds per repetition)", more);
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    const auto repetitions = static_cast<double>(point.figures->num_repetitions);
    const auto add = [&](const char* phase, const engine::ForwardStats& stats) {
      if (stats.num_tokens == 0) return;
      std::vector<Cell> row = point_cells(point.point);
      row[0] = point_label(point.point) + ' ' + phase;
      row.emplace_back(std::string(phase));
      row.emplace_back(stats.wall_s / repetitions);
      double sum_s = 0.0;
      for (const double stage_s : stats.stage_s) {
        row.emplace_back(stage_s / repetitions);
        sum_s += stage_s;
      }
      row.emplace_back(std::max(0.0, stats.wall_s - sum_s) / repetitions);
      table.rows.push_back(std::move(row));
    };
    add("prefill", point.figures->prefill);
    add("decode", point.figures->decode);
  }
  if (!table.rows.empty()) report.tables["time_by_stage"] = std::move(table);
}

void add_distinct_table(const RunOutcome& outcome, const model::ModelConfig& config,
                        std::int32_t top_k, report::Report& report) {
  Table table = table_of_points("Distinct experts that a decode step touches, per layer",
                                {{"mean", "1"},
                                 {"least_layer", "1"},
                                 {"most_layer", "1"},
                                 {"uniform_routing", "1"},
                                 {"of_experts", "1"}});
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures || point.figures->num_decode_steps == 0) continue;
    std::vector<double> distinct;
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      if (!config.layers[layer].is_moe) continue;
      distinct.push_back(point.figures->distinct_experts_per_step[layer]);
    }
    std::vector<Cell> row = point_cells(point.point);
    row.emplace_back(total(distinct) / static_cast<double>(distinct.size()));
    row.emplace_back(*std::min_element(distinct.begin(), distinct.end()));
    row.emplace_back(*std::max_element(distinct.begin(), distinct.end()));
    row.emplace_back(expected_distinct_experts(config.moe.num_experts, top_k, point.point.batch));
    row.push_back(count_cell(config.moe.num_experts));
    table.rows.push_back(std::move(row));
  }
  if (!table.rows.empty()) report.tables["routing_distinct_experts"] = std::move(table);
}

// [layer][expert] tokens of all measured points together.
std::vector<std::vector<std::int64_t>> sum_loads(const RunOutcome& outcome,
                                                 const model::ModelConfig& config,
                                                 engine::ForwardStats PointFigures::*phase) {
  std::vector<std::vector<std::int64_t>> loads(config.layers.size());
  for (const PointOutcome& point : outcome.points) {
    if (!point.figures) continue;
    const auto& expert_tokens = ((*point.figures).*phase).expert_tokens;
    for (std::size_t layer = 0; layer < expert_tokens.size(); ++layer) {
      loads[layer].resize(std::max(loads[layer].size(), expert_tokens[layer].size()));
      for (std::size_t expert = 0; expert < expert_tokens[layer].size(); ++expert) {
        loads[layer][expert] += expert_tokens[layer][expert];
      }
    }
  }
  return loads;
}

void add_load_tables(const RunOutcome& outcome, const model::ModelConfig& config,
                     report::Report& report) {
  const auto prefill = sum_loads(outcome, config, &PointFigures::prefill);
  const auto decode = sum_loads(outcome, config, &PointFigures::decode);
  Table layers =
      make_table("Expert load per layer, all points together", {{"layer", "1"},
                                                                {"phase", ""},
                                                                {"routed_tokens", "1"},
                                                                {"experts_used", "1"},
                                                                {"max_over_mean", "1"},
                                                                {"coefficient_of_variation", "1"},
                                                                {"gini", "1"}});
  Table experts = make_table("Tokens per expert, all points together", {{"layer", "1"},
                                                                        {"expert", "1"},
                                                                        {"prefill_tokens", "1"},
                                                                        {"decode_tokens", "1"},
                                                                        {"tokens", "1"}});
  experts.is_detail = true;
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (!config.layers[layer].is_moe) continue;
    const auto add = [&](const char* phase, const std::vector<std::int64_t>& counts) {
      const routing::LoadStats load = routing::load_stats(counts);
      if (load.num_routed == 0) return;
      layers.rows.push_back({count_cell(static_cast<std::int64_t>(layer)), std::string(phase),
                             count_cell(load.num_routed), count_cell(load.num_distinct),
                             load.max_over_mean, load.coefficient_of_variation, load.gini});
    };
    add("prefill", prefill[layer]);
    add("decode", decode[layer]);
    for (std::size_t expert = 0; expert < prefill[layer].size(); ++expert) {
      const std::int64_t in_decode =
          expert < decode[layer].size() ? decode[layer][expert] : std::int64_t{0};
      experts.rows.push_back({count_cell(static_cast<std::int64_t>(layer)),
                              count_cell(static_cast<std::int64_t>(expert)),
                              count_cell(prefill[layer][expert]), count_cell(in_decode),
                              count_cell(prefill[layer][expert] + in_decode)});
    }
  }
  if (layers.rows.empty()) return;
  report.tables["routing_layers"] = std::move(layers);
  report.tables["routing_expert_load"] = std::move(experts);
}

void add_samples_table(const RunOutcome& outcome, report::Report& report) {
  Table table = table_of_points("Raw samples: when each token was complete",
                                {{"repetition", "1"}, {"token", "1"}, {"time_s", "s"}});
  table.is_detail = true;
  for (const PointOutcome& point : outcome.points) {
    for (std::size_t r = 0; r < point.repetitions.size(); ++r) {
      // The request whose row is sampled last has each step's end.
      const std::vector<double>& times = point.repetitions[r].requests.back().token_times_s;
      for (std::size_t token = 0; token < times.size(); ++token) {
        std::vector<Cell> row = point_cells(point.point);
        row.push_back(count_cell(static_cast<std::int64_t>(r)));
        row.push_back(count_cell(static_cast<std::int64_t>(token)));
        row.emplace_back(times[token]);
        table.rows.push_back(std::move(row));
      }
    }
  }
  report.tables["samples"] = std::move(table);
}

}  // namespace

std::string point_label(const BenchPoint& point) {
  return fmt::format("b{} p{} o{}", point.batch, point.prompt_tokens, point.output_tokens);
}

void add_run_tables(const RunOutcome& outcome, const RunFacts& facts, report::Report& report) {
  const model::ModelConfig& config = facts.model->config;
  add_points_table(outcome, report);
  add_efficiency_table(outcome, report);
  add_sampled_limits_table(outcome, report);
  add_core_states_table(outcome, report);
  add_core_table(outcome.cores, report);
  add_stages_table(outcome, report);
  if (config.has_moe_layers()) {
    const std::int32_t top_k =
        facts.options->top_k_override > 0 ? facts.options->top_k_override : config.moe.top_k;
    add_distinct_table(outcome, config, top_k, report);
    add_load_tables(outcome, config, report);
  }
  if (facts.args->keeps_raw_samples) add_samples_table(outcome, report);
}

void add_run_charts(report::Report& report) {
  for (const char* name :
       {"ttft_s", "itl_s", "decode_tokens_per_s", "prefill_tokens_per_s", "total_tokens_per_s",
        "prefill_roofline_ratio", "decode_roofline_ratio", "decode_distinct_experts"}) {
    if (report.metrics.contains(name)) report.highlights.emplace_back(name);
  }
  using report::ChartKind;
  const auto add = [&](const char* title, ChartKind kind, const char* table, const char* x,
                       std::vector<std::string> y) {
    if (!report.tables.contains(table)) return;
    report::Chart chart;
    chart.title = title;
    chart.kind = kind;
    chart.table = table;
    chart.x = x;
    chart.y = std::move(y);
    report.charts.push_back(std::move(chart));
  };
  add("Decode throughput (tokens/s)", ChartKind::kBar, "latency", "point", {"decode_tokens_per_s"});
  add("Time to first token (s)", ChartKind::kBar, "latency", "point", {"ttft_s"});
  add("Inter-token latency (s)", ChartKind::kBar, "latency", "point", {"itl_s"});
  std::vector<std::string> stages;
  for (std::size_t i = 0; i < engine::kNumStages; ++i) {
    stages.push_back(fmt::format("{}_s", engine::stage_name(static_cast<engine::Stage>(i))));
  }
  stages.emplace_back("other_s");
  add("Time by stage (s per repetition)", ChartKind::kStacked, "time_by_stage", "point", stages);
  add("Distinct experts per layer and decode step", ChartKind::kBar, "routing_distinct_experts",
      "point", {"mean", "uniform_routing"});
  add("Tokens per expert", ChartKind::kHeatmap, "routing_expert_load", "expert",
      {"layer", "tokens"});
}

}  // namespace moe::app
