#include "lib/client_reports/client_report.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/client_reports/json_values.hpp"
#include "lib/client_reports/readers.hpp"

namespace moe::client_reports {
namespace {

using json::Json;

constexpr std::int64_t kMaxFileBytes = std::int64_t{512} << 20;
constexpr std::size_t kMaxRecords = 10'000'000;

void finish(ClientReport& report) {
  add_common_doubts(report);
  add_definitions(report);
}

std::string_view text_of(const FileMap& map) {
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

json::ReadLimits limits() {
  json::ReadLimits limits;
  limits.max_bytes = kMaxFileBytes;
  return limits;
}

// An array in one document, or one object a line.
std::vector<Json> read_records(const std::filesystem::path& file) {
  const FileMap map(file);
  std::string_view text = text_of(map);
  std::vector<Json> records;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[') {
    Json array = json::parse(text, file.string(), limits());
    for (Json& one : array) records.push_back(std::move(one));
    return records;
  }
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (records.size() == kMaxRecords) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: more than {} records", file.string(), kMaxRecords));
    }
    records.push_back(json::parse(line, fmt::format("{}:{}", file.string(), number)));
  }
  return records;
}

std::optional<double> record_seconds(const Json& record, const char* metric) {
  const std::optional<double> value = number(record, {"metrics", metric, "value"});
  const std::string unit = text(record, {"metrics", metric, "unit"});
  if (!value || (unit != "ms" && unit != "sec" && unit != "s")) return std::nullopt;
  return unit == "ms" ? *value * 1e-3 : *value;
}

RequestFigures aiperf_record(const Json& record) {
  RequestFigures figures;
  figures.ttft_s = record_seconds(record, "time_to_first_token");
  figures.ttfvt_s = record_seconds(record, "time_to_first_output_token");
  figures.latency_s = record_seconds(record, "request_latency");
  figures.output_tokens = count(record, {"metrics", "output_sequence_length", "value"});
  return figures;
}

RequestFigures inference_perf_record(const Json& record) {
  RequestFigures figures;
  const std::optional<double> start_s = number(record, {"start_time"});
  const std::initializer_list<const char*> at = {"info", "response_metrics"};
  const Json* response = member(record, at);
  if (!start_s || response == nullptr) return figures;
  std::vector<double> times = numbers(*response, {"output_token_times"});
  if (times.empty()) times = numbers(*response, {"chunk_times"});
  if (!times.empty()) {
    figures.ttft_s = times.front() - *start_s;
    figures.latency_s = times.back() - *start_s;
  } else if (const auto end_s = number(record, {"end_time"})) {
    figures.latency_s = *end_s - *start_s;
  }
  figures.output_tokens = count(*response, {"output_tokens"});
  const Json* request = member(record, {"request"});
  if (request != nullptr && request->is_string()) {
    const Json body = Json::parse(request->get_ref<const std::string&>(), nullptr, false);
    if (!body.is_discarded()) figures.asked_tokens = count(body, {"max_tokens"});
  }
  return figures;
}

bool is_failed(const Json& record) {
  const Json* error = member(record, {"error"});
  const Json* cancelled = member(record, {"metadata", "was_cancelled"});
  return (error != nullptr && !error->is_null()) || (cancelled != nullptr && *cancelled == true);
}

// Warm-up requests of AIPerf are in the file too.
bool is_warmup(const Json& record) {
  return text(record, {"metadata", "benchmark_phase"}) == "warmup";
}

}  // namespace

void add_records(const std::vector<Json>& records, const std::string& where, ClientReport& report) {
  const bool is_aiperf = report.tool == Tool::kAiperf;
  if (!is_aiperf && report.tool != Tool::kInferencePerf) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {} keeps single requests in its own file, give "
                                               "that alone",
                                               where, tool_name(report.tool)));
  }
  std::vector<RequestFigures> requests;
  std::int64_t num_short = 0;
  std::int64_t num_known = 0;
  for (const Json& record : records) {
    const bool is_right = record.is_object() && record.contains(is_aiperf ? "metrics" : "info");
    if (!is_right) {
      throw Error(ErrorCode::kInput, fmt::format("{}: not a file of single requests of {}", where,
                                                 tool_name(report.tool)));
    }
    if (is_failed(record) || is_warmup(record)) continue;
    requests.push_back(is_aiperf ? aiperf_record(record) : inference_perf_record(record));
    const RequestFigures& last = requests.back();
    if (!last.asked_tokens || !last.output_tokens) continue;
    ++num_known;
    if (*last.output_tokens < *last.asked_tokens) ++num_short;
  }
  for (const RequestFigures& request : requests) add_request(request, "single requests", report);
  add_short_outputs(num_short, num_known, report);
  const auto number_of = static_cast<std::int64_t>(requests.size());
  if (report.completed && number_of != *report.completed) {
    report.doubts.push_back(
        {"import.records_differ", DoubtLevel::kWarning,
         fmt::format("{} holds {} requests that succeeded, the summary counts {}", where, number_of,
                     *report.completed),
         "give the two files of one run"});
  }
}

std::vector<ClientReport> parse_client_reports(const Json& document, const std::string& where) {
  std::vector<ClientReport> reports;
  if (!document.is_object()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected a JSON object", where));
  }
  if (document.contains("benchmarks")) {
    reports = read_guidellm(document, where);
  } else if (document.contains("aiperf_version") ||
             member(document, {"request_latency", "avg"}) != nullptr) {
    reports.push_back(read_aiperf(document));
  } else if (document.contains("successes") && document.contains("load_summary")) {
    reports.push_back(read_inference_perf(document));
  } else if (document.contains("request_throughput") && document.contains("completed")) {
    reports.push_back(read_vllm_serve(document));
  } else if (document.contains("elapsed_time") && document.contains("requests_per_second")) {
    reports.push_back(read_vllm_throughput(document));
  } else {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: not a report of vllm bench serve, vllm bench throughput, AIPerf, "
                            "GuideLLM or inference-perf",
                            where));
  }
  for (ClientReport& report : reports) finish(report);
  return reports;
}

std::vector<ClientReport> read_client_reports(const std::filesystem::path& file,
                                              const std::filesystem::path& records) {
  const FileMap map(file);
  const Json document = json::parse(text_of(map), file.string(), limits());
  std::vector<ClientReport> reports = parse_client_reports(document, file.string());
  if (records.empty()) return reports;
  ClientReport& report = reports.front();
  add_records(read_records(records), records.string(), report);
  const auto is_no_samples = [](const Doubt& doubt) { return doubt.code == "import.no_samples"; };
  std::erase_if(report.doubts, is_no_samples);
  return reports;
}

}  // namespace moe::client_reports
