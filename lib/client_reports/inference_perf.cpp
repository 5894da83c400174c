// summary_lifecycle_metrics.json and stage_N_lifecycle_metrics.json of inference-perf: seconds.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/client_reports/json_values.hpp"
#include "lib/client_reports/readers.hpp"

namespace moe::client_reports {
namespace {

using json::Json;

void add_latency_summary(const Json& document, const char* theirs, const char* ours,
                         ClientReport& report) {
  const Json* summary = member(document, {"successes", "latency", theirs});
  if (summary == nullptr) return;
  const std::optional<double> mean = number(*summary, {"mean"});
  if (!mean) return;
  Latency latency;
  latency.their_name = theirs;
  latency.count = report.completed;
  latency.mean_s = mean;
  latency.min_s = number(*summary, {"min"});
  latency.max_s = number(*summary, {"max"});
  if (const auto median = number(*summary, {"median"})) {
    latency.percentiles_s.emplace_back("p50", *median);
  }
  for (const char* p : {"p90", "p95", "p99"}) {
    if (const auto value = number(*summary, {p})) latency.percentiles_s.emplace_back(p, *value);
  }
  report.latencies[ours] = std::move(latency);
}

}  // namespace

ClientReport read_inference_perf(const Json& document) {
  ClientReport report;
  report.tool = Tool::kInferencePerf;
  report.completed = count(document, {"successes", "count"});
  report.failed = count(document, {"failures", "count"});
  const std::optional<std::int64_t> planned = count(document, {"load_summary", "count"});
  if (planned && report.completed && report.failed) {
    report.dropped = std::max<std::int64_t>(*planned - *report.completed - *report.failed, 0);
  }
  report.duration_s = number(document, {"benchmark_time_seconds"});
  if (const auto streams = count(document, {"load_summary", "concurrency"})) {
    report.load = fmt::format("{} streams", *streams);
  } else if (const auto rate = number(document, {"load_summary", "requested_rate"})) {
    report.load = fmt::format("{} requests/s", *rate);
  }
  report.input_tokens = count(document, {"successes", "prompt_tokens", "total"});
  report.output_tokens = count(document, {"successes", "output_tokens", "total"});
  const std::initializer_list<const char*> at = {"successes", "throughput"};
  if (const Json* throughput = member(document, at)) {
    report.requests_per_s = number(*throughput, {"requests_per_sec"});
    report.output_tokens_per_s = number(*throughput, {"output_tokens_per_sec"});
    report.total_tokens_per_s = number(*throughput, {"total_tokens_per_sec"});
  }
  add_latency_summary(document, "time_to_first_token", "ttft_s", report);
  add_latency_summary(document, "time_per_output_token", "tpot_s", report);
  add_latency_summary(document, "inter_token_latency", "itl_s", report);
  add_latency_summary(document, "request_latency", "e2el_s", report);
  const bool has_successes = report.completed.value_or(0) > 0;
  if (has_successes && report.output_tokens_per_s.value_or(0.0) <= 0.0) {
    report.has_results = false;
    report.doubts.push_back(
        {"import.empty_successes", DoubtLevel::kError,
         fmt::format("{} successes without a single output token: the client did not understand "
                     "the stream (CRLF line ends, or no blank after \"data:\")",
                     *report.completed),
         "measure again with moe-bench serve"});
  }
  const auto itl = report.latencies.find("itl_s");
  if (itl != report.latencies.end() && itl->second.mean_s.value_or(0.0) > 0.0 &&
      !itl->second.percentiles_s.empty() && itl->second.percentiles_s.front().second <= 0.0) {
    report.doubts.push_back(
        {"import.bundled_tokens", DoubtLevel::kWarning,
         "half of the gaps are zero: events held several tokens, and the tool writes the time of "
         "an event as one gap and zeros",
         "read tpot_s; percentiles of itl_s mean nothing here"});
  }
  return report;
}

}  // namespace moe::client_reports
