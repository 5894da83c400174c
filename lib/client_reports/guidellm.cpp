// The JSON of GuideLLM: one or more benchmarks with their requests.

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/client_reports/json_values.hpp"
#include "lib/client_reports/readers.hpp"

namespace moe::client_reports {
namespace {

using json::Json;

constexpr std::size_t kMaxBenchmarks = 1000;

void add_latency(const Json& benchmark, const char* theirs, const char* ours, double scale,
                 ClientReport& report) {
  const std::initializer_list<const char*> at = {"metrics", theirs, "successful"};
  const Json* summary = member(benchmark, at);
  const std::optional<std::int64_t> samples =
      summary == nullptr ? std::nullopt : count(*summary, {"count"});
  const std::optional<double> mean = summary == nullptr ? std::nullopt : number(*summary, {"mean"});
  // Without samples its means are zeros.
  if (!mean || samples.value_or(0) == 0) return;
  Latency latency;
  latency.their_name = theirs;
  latency.count = samples;
  latency.mean_s = *mean * scale;
  const auto scaled = [&](std::initializer_list<const char*> path) -> std::optional<double> {
    const std::optional<double> value = number(*summary, path);
    return value ? std::optional(*value * scale) : std::nullopt;
  };
  latency.stdev_s = scaled({"std_dev"});
  latency.min_s = scaled({"min"});
  latency.max_s = scaled({"max"});
  for (const char* p : {"p50", "p90", "p95", "p99"}) {
    if (const auto value = scaled({"percentiles", p}))
      latency.percentiles_s.emplace_back(p, *value);
  }
  report.latencies[ours] = std::move(latency);
}

// The body of the request is JSON inside a text.
std::optional<std::int64_t> asked_tokens(const Json& request) {
  const Json* arguments = member(request, {"request_args"});
  if (arguments == nullptr || !arguments->is_string()) return std::nullopt;
  const Json parsed = Json::parse(arguments->get_ref<const std::string&>(), nullptr, false);
  if (parsed.is_discarded()) return std::nullopt;
  const auto tokens = count(parsed, {"body", "max_tokens"});
  return tokens ? tokens : count(parsed, {"body", "max_completion_tokens"});
}

void add_requests(const Json& benchmark, ClientReport& report) {
  const Json* requests = member(benchmark, {"requests", "successful"});
  if (requests == nullptr || !requests->is_array()) return;
  std::int64_t num_short = 0;
  std::int64_t num_known = 0;
  bool is_cleared = false;
  for (const Json& request : *requests) {
    RequestFigures figures;
    if (const auto ms = number(request, {"time_to_first_token_ms"})) figures.ttft_s = *ms * 1e-3;
    if (const auto ms = number(request, {"time_to_first_output_token_ms"})) {
      figures.ttfvt_s = *ms * 1e-3;
    }
    // To the last token: its own latency runs to the end of the stream.
    const auto last_s = number(request, {"info", "timings", "last_token_iteration"});
    const auto start_s = number(request, {"info", "timings", "request_start"});
    figures.latency_s = last_s && start_s ? std::optional(*last_s - *start_s)
                                          : number(request, {"request_latency"});
    figures.output_tokens = count(request, {"output_tokens"});
    figures.asked_tokens = asked_tokens(request);
    if (figures.asked_tokens && figures.output_tokens) {
      ++num_known;
      if (*figures.output_tokens < *figures.asked_tokens) ++num_short;
    }
    if (!is_cleared) report.latencies.clear();
    is_cleared = true;
    add_request(figures, "requests.successful", report);
  }
  add_short_outputs(num_short, num_known, report);
}

std::string load_of(const Json& benchmark) {
  const std::string kind = text(benchmark, {"config", "strategy", "type_"});
  if (const auto streams = count(benchmark, {"config", "strategy", "streams"})) {
    return fmt::format("{} streams", *streams);
  }
  if (const auto rate = number(benchmark, {"config", "strategy", "rate"})) {
    return fmt::format("{} requests/s, {}", *rate, kind);
  }
  return kind;
}

ClientReport read_benchmark(const Json& benchmark) {
  ClientReport report;
  report.tool = Tool::kGuidellm;
  report.model = text(benchmark, {"config", "backend", "model"});
  report.target = text(benchmark, {"config", "backend", "target"});
  report.load = load_of(benchmark);
  report.completed = count(benchmark, {"metrics", "request_totals", "successful"});
  report.failed = count(benchmark, {"metrics", "request_totals", "errored"});
  report.dropped = count(benchmark, {"metrics", "request_totals", "incomplete"});
  report.duration_s = number(benchmark, {"duration"});
  const bool has_any = report.completed.value_or(0) > 0;
  const auto total = [&](const char* name) {
    return has_any ? count(benchmark, {"metrics", name, "successful", "total_sum"}) : std::nullopt;
  };
  report.input_tokens = total("prompt_token_count");
  report.output_tokens = total("output_token_count");
  const auto rate = [&](const char* name) {
    return has_any ? number(benchmark, {"metrics", name, "successful", "mean"}) : std::nullopt;
  };
  report.requests_per_s = rate("requests_per_second");
  report.output_tokens_per_s = rate("output_tokens_per_second");
  report.total_tokens_per_s = rate("tokens_per_second");
  add_latency(benchmark, "time_to_first_token_ms", "ttft_s", 1e-3, report);
  add_latency(benchmark, "time_to_first_output_token_ms", "ttfvt_s", 1e-3, report);
  add_latency(benchmark, "inter_token_latency_ms", "tpot_s", 1e-3, report);
  add_latency(benchmark, "request_latency", "e2el_s", 1.0, report);
  add_requests(benchmark, report);
  const Json* warnings = member(benchmark, {"warnings"});
  if (warnings != nullptr && warnings->is_array()) {
    for (const Json& warning : *warnings) {
      report.doubts.push_back({"import.client_warned", DoubtLevel::kWarning,
                               fmt::format("GuideLLM warns about itself: {} {}",
                                           text(warning, {"code"}), text(warning, {"message"})),
                               "the client may have been the bottleneck"});
    }
  }
  return report;
}

}  // namespace

std::vector<ClientReport> read_guidellm(const Json& document, const std::string& where) {
  const Json* benchmarks = member(document, {"benchmarks"});
  if (benchmarks == nullptr || !benchmarks->is_array() || benchmarks->empty() ||
      benchmarks->size() > kMaxBenchmarks) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected an array of 1 to {} benchmarks", where, kMaxBenchmarks));
  }
  std::vector<ClientReport> reports;
  for (const Json& benchmark : *benchmarks) {
    ClientReport report = read_benchmark(benchmark);
    report.version = text(document, {"metadata", "guidellm_version"});
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace moe::client_reports
