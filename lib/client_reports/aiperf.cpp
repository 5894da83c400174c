// profile_export_aiperf.json and profile_export.jsonl of AIPerf.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/client_reports/json_values.hpp"
#include "lib/client_reports/readers.hpp"

namespace moe::client_reports {
namespace {

using json::Json;

// Its units are words; everything else than these is left out.
std::optional<double> seconds_per(const std::string& unit) {
  if (unit == "ms") return 1e-3;
  if (unit == "s" || unit == "sec") return 1.0;
  if (unit == "us") return 1e-6;
  if (unit == "ns") return 1e-9;
  return std::nullopt;
}

void add_latency(const Json& document, const char* theirs, const char* ours, ClientReport& report) {
  const std::optional<double> scale = seconds_per(text(document, {theirs, "unit"}));
  const std::optional<double> mean = number(document, {theirs, "avg"});
  if (!scale || !mean) return;
  Latency latency;
  latency.their_name = theirs;
  latency.mean_s = *mean * *scale;
  const auto scaled = [&](const char* key) -> std::optional<double> {
    const std::optional<double> value = number(document, {theirs, key});
    return value ? std::optional(*value * *scale) : std::nullopt;
  };
  latency.count = count(document, {theirs, "count"});
  latency.stdev_s = scaled("std");
  latency.min_s = scaled("min");
  latency.max_s = scaled("max");
  for (const char* p : {"p50", "p90", "p95", "p99"}) {
    if (const auto value = scaled(p)) latency.percentiles_s.emplace_back(p, *value);
  }
  report.latencies[ours] = std::move(latency);
}

std::string first_item(const Json& document, std::initializer_list<const char*> path,
                       const char* key) {
  const Json* items = member(document, path);
  if (items == nullptr || !items->is_array() || items->empty()) return {};
  const Json& first = items->front();
  if (first.is_string()) return first.get<std::string>();
  return text(first, {key});
}

}  // namespace

ClientReport read_aiperf(const Json& document) {
  ClientReport report;
  report.tool = Tool::kAiperf;
  report.version = text(document, {"aiperf_version"});
  report.model = first_item(document, {"input_config", "models", "items"}, "name");
  report.target = first_item(document, {"input_config", "endpoint", "urls"}, "");
  report.date = text(document, {"start_time"});
  report.completed = count(document, {"request_count", "avg"});
  report.failed = count(document, {"error_request_count", "avg"});
  if (!report.failed && report.completed) report.failed = 0;
  report.duration_s = number(document, {"benchmark_duration", "avg"});
  report.input_tokens = count(document, {"total_isl", "avg"});
  report.output_tokens = count(document, {"total_osl", "avg"});
  report.requests_per_s = number(document, {"request_throughput", "avg"});
  report.output_tokens_per_s = number(document, {"output_token_throughput", "avg"});
  report.total_tokens_per_s = number(document, {"total_token_throughput", "avg"});
  const Json* phases = member(document, {"input_config", "phases"});
  if (phases != nullptr && phases->is_array() && !phases->empty()) {
    const Json& phase = phases->back();
    if (const auto streams = count(phase, {"concurrency"})) {
      report.load = fmt::format("{} streams", *streams);
    } else if (const auto rate = number(phase, {"rate"})) {
      report.load = fmt::format("{} requests/s", *rate);
    }
  }
  add_latency(document, "time_to_first_token", "ttft_s", report);
  add_latency(document, "time_to_first_output_token", "ttfvt_s", report);
  add_latency(document, "inter_token_latency", "tpot_s", report);
  add_latency(document, "inter_chunk_latency", "icl_s", report);
  add_latency(document, "request_latency", "e2el_s", report);
  const std::optional<std::int64_t> mismatched = count(document, {"osl_mismatch_count", "avg"});
  const std::optional<double> by_percent = number(document, {"osl_mismatch_diff_pct", "avg"});
  if (mismatched && report.completed && by_percent.value_or(-1.0) < 0.0) {
    add_short_outputs(*mismatched, *report.completed, report);
  }
  const std::optional<std::int64_t> differing = count(document, {"usage_discrepancy_count", "avg"});
  if (differing && *differing > 0) {
    report.doubts.push_back(
        {"import.token_count_differs", DoubtLevel::kWarning,
         fmt::format("in {} requests the client's count of tokens differs from the server's; rates "
                     "rest on the client's",
                     *differing),
         "run it again with --use-server-token-count"});
  }
  return report;
}

}  // namespace moe::client_reports
