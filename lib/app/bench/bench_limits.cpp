// moe-bench limits: what this machine can do at best.

#include "lib/app/bench/bench_limits.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/format_names.hpp"
#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/exit_code.hpp"
#include "lib/app/progress_terminal.hpp"
#include "lib/app/report_session.hpp"
#include "lib/app/table_builder.hpp"
#include "lib/base/clock.hpp"
#include "lib/engine/memory_estimate.hpp"
#include "lib/sysinfo/host.hpp"

namespace moe::app {
namespace {

constexpr const char* kBandwidthHow =
    "bytes read per second by a loop that sums 64-bit words of one buffer per thread, first "
    "touched by its thread; the best of the samples";
constexpr const char* kPeakHow =
    "2 x rows x columns x tokens of a product whose operands stay in the first two cache levels, "
    "per second; the best of the samples and of 8 to 48 tokens";

constexpr const char* kInstructionHow =
    "operations per second of a loop of independent multiply-adds with all operands in registers "
    "(multiply and add are two); the best of the samples";

struct LimitsArgs {
  std::int64_t num_threads = 0;
  double seconds_per_figure = 0.1;
  OutputOptions output;
};

std::int64_t cache_bytes(const sysinfo::CpuInfo& cpu, std::int64_t level) {
  for (const sysinfo::CpuCache& cache : cpu.caches) {
    if (cache.level == level && cache.kind != "instruction") return cache.size_bytes;
  }
  return 0;
}

// The best of all samples, and apart those with free and with shared cores.
void add_rate(const std::string& name, const char* unit, const engine::RateByState& rate,
              const std::string& how, report::Report& report) {
  const auto add = [&](const char* suffix, double value, const std::string& more) {
    report.metrics[name + suffix] =
        value_metric(report::MetricKind::kMeasured, unit, value, how + more);
  };
  add("", rate.best, "");
  if (rate.num_free > 0) {
    add(".free_cores", rate.best_free,
        fmt::format("; {} of {} samples, those with all cores free", rate.num_free,
                    rate.num_samples));
  }
  if (rate.num_shared > 0) {
    add(".shared_cores", rate.best_shared,
        fmt::format("; {} of {} samples, those with a core that somebody else works on",
                    rate.num_shared, rate.num_samples));
  }
}

// "vfmadd231ps zmm" as part of a metric's name.
std::string name_part(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

void add_metrics(const engine::MachineLimits& limits, report::Report& report) {
  for (const engine::BandwidthLimit& limit : limits.bandwidth) {
    std::string level = engine::memory_level_name(limit.level);
    std::transform(level.begin(), level.end(), level.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    add_rate(fmt::format("{}_read_bytes_per_s.threads_{}", level, limit.num_threads), "bytes/s",
             limit.bytes_per_s, kBandwidthHow, report);
  }
  for (const engine::InstructionLimit& limit : limits.instructions) {
    add_rate(fmt::format("instruction_ops_per_s.{}.threads_{}", name_part(limit.instruction->name),
                         limit.num_threads),
             "ops/s", limit.ops_per_s, kInstructionHow, report);
  }
  for (const engine::PeakLimit& limit : limits.peaks) {
    add_rate(fmt::format("peak_flops_per_s.{}.{}.{}.threads_{}", kernels::isa_name(limit.of.isa),
                         weight_format_name(limit.of.weights),
                         activation_format_name(limit.of.activations), limit.num_threads),
             "flop/s", limit.flops_per_s, kPeakHow, report);
  }
}

std::vector<report::Column> with_rate_columns(std::vector<report::Column> columns,
                                              const std::string& name, const std::string& unit) {
  columns.push_back({name, unit});
  columns.push_back({name + "_free_cores", unit});
  columns.push_back({name + "_shared_cores", unit});
  columns.push_back({"samples", "1"});
  columns.push_back({"free_samples", "1"});
  columns.push_back({"shared_samples", "1"});
  return columns;
}

void push_rate(const engine::RateByState& rate, std::vector<report::Cell>& row) {
  row.emplace_back(rate.best);
  row.push_back(rate.num_free > 0 ? report::Cell(rate.best_free) : report::Cell());
  row.push_back(rate.num_shared > 0 ? report::Cell(rate.best_shared) : report::Cell());
  row.push_back(count_cell(rate.num_samples));
  row.push_back(count_cell(rate.num_free));
  row.push_back(count_cell(rate.num_shared));
}

int run_limits(const LimitsArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::int32_t num_threads =
      args.num_threads > 0 ? static_cast<std::int32_t>(args.num_threads) : num_usable_threads();
  engine::LimitsOptions options = limits_options(num_threads);
  options.peaks = engine::all_peak_cases();
  options.has_instructions = true;
  options.seconds_per_figure = args.seconds_per_figure;
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  engine::CoreWatch watch;
  const engine::MachineLimits limits =
      engine::measure_machine_limits(options, watch, clock, progress, *context.interrupt);

  report::Report& report = session.report();
  report.subject["kind"] = "machine";
  report.subject["name"] = sysinfo::read_cpu().model.value_or("unknown processor");
  report.subject["content_hash"] = nullptr;
  report.settings["command"] = "limits";
  report.settings["threads"] = num_threads;
  report.settings["seconds_per_figure"] = args.seconds_per_figure;
  add_metrics(limits, report);
  add_limits_tables(limits, report);
  add_core_table(watch.reference(), report);
  session.add_finding("machine.core_state", report::Severity::kInfo, watch.reference().describe(),
                      "");
  if (limits.is_partial) {
    report.validity.partial = true;
    report.validity.reasons.emplace_back("interrupted");
  }
  if (limits.bandwidth.empty() && limits.peaks.empty()) {
    session.invalidate("nothing was measured");
    return session.finish(kExitNothingMeasured, std::nullopt, std::nullopt);
  }
  return session.finish(limits.is_partial ? kExitRuntime : kExitOk, std::nullopt, std::nullopt);
}

}  // namespace

engine::LimitsOptions limits_options(std::int32_t num_threads) {
  engine::LimitsOptions options;
  options.thread_counts = {1};
  if (num_threads > 1) options.thread_counts.push_back(num_threads);
  const sysinfo::CpuInfo cpu = sysinfo::read_cpu();
  options.l2_bytes = cache_bytes(cpu, 2);
  options.l3_bytes = cache_bytes(cpu, 3);
  options.dram_buffer_bytes =
      engine::dram_buffer_bytes(options.l3_bytes, engine::available_memory_bytes());
  return options;
}

void add_limits_tables(const engine::MachineLimits& limits, report::Report& report) {
  report::Table bandwidth =
      make_table("Limits of this machine: reading memory",
                 with_rate_columns({{"level", ""}, {"threads", "1"}, {"buffer_bytes", "bytes"}},
                                   "read_bytes_per_s", "bytes/s"));
  for (const engine::BandwidthLimit& limit : limits.bandwidth) {
    std::vector<report::Cell> row = {std::string(engine::memory_level_name(limit.level)),
                                     count_cell(limit.num_threads), count_cell(limit.buffer_bytes)};
    push_rate(limit.bytes_per_s, row);
    bandwidth.rows.push_back(std::move(row));
  }
  report::Table instruction = make_table(
      "Limits of this machine: multiplying in registers",
      with_rate_columns({{"instruction", ""}, {"operands", ""}, {"isa", ""}, {"threads", "1"}},
                        "ops_per_s", "ops/s"));
  for (const engine::InstructionLimit& limit : limits.instructions) {
    std::vector<report::Cell> row = {
        std::string(limit.instruction->name), std::string(limit.instruction->operands),
        std::string(kernels::isa_name(limit.instruction->isa)), count_cell(limit.num_threads)};
    push_rate(limit.ops_per_s, row);
    instruction.rows.push_back(std::move(row));
  }
  report::Table peak = make_table(
      "Limits of this machine: kernels multiplying from the cache",
      with_rate_columns(
          {{"isa", ""}, {"weights", ""}, {"activations", ""}, {"threads", "1"}, {"tokens", "1"}},
          "flops_per_s", "flop/s"));
  for (const engine::PeakLimit& limit : limits.peaks) {
    std::vector<report::Cell> row = {std::string(kernels::isa_name(limit.of.isa)),
                                     std::string(weight_format_name(limit.of.weights)),
                                     std::string(activation_format_name(limit.of.activations)),
                                     count_cell(limit.num_threads), count_cell(limit.num_rows)};
    push_rate(limit.flops_per_s, row);
    peak.rows.push_back(std::move(row));
  }
  if (!bandwidth.rows.empty()) report.tables["limits_bandwidth"] = bandwidth;
  if (!instruction.rows.empty()) report.tables["limits_instruction"] = instruction;
  if (!peak.rows.empty()) report.tables["limits_peak"] = peak;
}

void add_core_table(const engine::WidthReference& cores, report::Report& report) {
  report::Table table =
      make_table("Is a core ours alone? Additions a cycle, by processor", {{"processor", ""},
                                                                           {"widest", "1"},
                                                                           {"narrowest", "1"},
                                                                           {"readings", "1"},
                                                                           {"shared_readings", "1"},
                                                                           {"state", ""}});
  for (const auto& [cpu, range] : cores.processors()) {
    const std::int64_t shared = range.num_below(engine::WidthReference::kFreeShare * range.most);
    // Of the processor as a whole: what most of its readings were.
    const engine::CoreState widest = cores.state(engine::WidthReading{range.most, cpu});
    const engine::CoreState state =
        2 * shared > range.num_readings ? engine::CoreState::kShared : widest;
    table.rows.push_back({fmt::format("cpu {}", cpu), range.most, range.least,
                          count_cell(range.num_readings), count_cell(shared),
                          std::string(engine::core_state_name(state))});
  }
  if (!table.rows.empty()) report.tables["core_state"] = std::move(table);
}

void add_limits_command(CommandLine& line, const ToolContext& context) {
  auto args = std::make_shared<LimitsArgs>();
  Options& options =
      line.add_command("limits", "Measures memory bandwidth and peak rates of this machine",
                       [args, &context] { return run_limits(*args, context); });
  options.group("How to measure");
  options.integer("--threads", args->num_threads, {0, 4096}, "Threads besides one; 0 takes all",
                  "all that the process may use");
  options.duration("--time-per-figure", args->seconds_per_figure, "Time spent on each figure");
  add_output_options(options, args->output);
}

}  // namespace moe::app
