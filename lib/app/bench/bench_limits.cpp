// moe-bench limits: what this machine can do at best.

#include "lib/app/bench/bench_limits.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/app/bench/bench_commands.hpp"
#include "lib/app/bench/engine_setup.hpp"
#include "lib/app/bench/format_names.hpp"
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

void add_metrics(const engine::MachineLimits& limits, report::Report& report) {
  for (const engine::BandwidthLimit& limit : limits.bandwidth) {
    std::string level = engine::memory_level_name(limit.level);
    std::transform(level.begin(), level.end(), level.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    report.metrics[fmt::format("{}_read_bytes_per_s.threads_{}", level, limit.num_threads)] =
        value_metric(report::MetricKind::kMeasured, "bytes/s", limit.bytes_per_s, kBandwidthHow);
  }
  for (const engine::PeakLimit& limit : limits.peaks) {
    report.metrics[fmt::format("peak_flops_per_s.{}.{}.{}.threads_{}", kernels::isa_name(limit.isa),
                               weight_format_name(limit.weights),
                               activation_format_name(limit.activations), limit.num_threads)] =
        value_metric(report::MetricKind::kMeasured, "flop/s", limit.flops_per_s, kPeakHow);
  }
}

int run_limits(const LimitsArgs& args, const ToolContext& context) {
  ReportSession session(context, args.output);
  const std::int32_t num_threads =
      args.num_threads > 0 ? static_cast<std::int32_t>(args.num_threads) : num_usable_threads();
  engine::LimitsOptions options = limits_options(num_threads);
  options.peaks = engine::all_peak_cases();
  options.seconds_per_figure = args.seconds_per_figure;
  const SteadyClock clock;
  ProgressTerminal progress(progress_style(args.output.is_quiet), clock);
  const engine::MachineLimits limits =
      engine::measure_machine_limits(options, clock, progress, *context.interrupt);

  report::Report& report = session.report();
  report.subject["kind"] = "machine";
  report.subject["name"] = sysinfo::read_cpu().model.value_or("unknown processor");
  report.subject["content_hash"] = nullptr;
  report.settings["command"] = "limits";
  report.settings["threads"] = num_threads;
  report.settings["seconds_per_figure"] = args.seconds_per_figure;
  add_metrics(limits, report);
  add_limits_tables(limits, report);
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
      make_table("Limits of this machine: reading memory", {{"level", ""},
                                                            {"threads", "1"},
                                                            {"read_bytes_per_s", "bytes/s"},
                                                            {"buffer_bytes", "bytes"},
                                                            {"samples", "1"}});
  for (const engine::BandwidthLimit& limit : limits.bandwidth) {
    bandwidth.rows.push_back({std::string(engine::memory_level_name(limit.level)),
                              count_cell(limit.num_threads), limit.bytes_per_s,
                              count_cell(limit.buffer_bytes), count_cell(limit.num_samples)});
  }
  report::Table peak =
      make_table("Limits of this machine: multiplying from the cache", {{"isa", ""},
                                                                        {"weights", ""},
                                                                        {"activations", ""},
                                                                        {"threads", "1"},
                                                                        {"flops_per_s", "flop/s"},
                                                                        {"tokens", "1"}});
  for (const engine::PeakLimit& limit : limits.peaks) {
    peak.rows.push_back(
        {std::string(kernels::isa_name(limit.isa)), std::string(weight_format_name(limit.weights)),
         std::string(activation_format_name(limit.activations)), count_cell(limit.num_threads),
         limit.flops_per_s, count_cell(limit.num_rows)});
  }
  if (!bandwidth.rows.empty()) report.tables["limits_bandwidth"] = bandwidth;
  if (!peak.rows.empty()) report.tables["limits_peak"] = peak;
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
