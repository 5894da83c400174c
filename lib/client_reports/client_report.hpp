#pragma once

// Reports that other benchmark clients wrote, read into one form: vllm bench serve, vllm bench
// throughput, AIPerf, GuideLLM, inference-perf. Figures keep their samples where a file has them,
// so that they are summarized by our definitions; where it has none, the tool's own summary stays
// beside its name. What the tool means by a word is not always what we mean by it: differences are
// listed, and what the file itself gives away as wrong is a doubt.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/json/read.hpp"

namespace moe::client_reports {

enum class Tool : std::uint8_t { kVllmServe, kVllmThroughput, kAiperf, kGuidellm, kInferencePerf };
[[nodiscard]] const char* tool_name(Tool tool);

// One latency. Seconds.
struct Latency {
  std::string their_name;
  std::vector<double> samples_s;
  // The tool's own summary; absent where it gives none.
  std::optional<std::int64_t> count;
  std::optional<double> mean_s;
  std::optional<double> stdev_s;
  std::optional<double> min_s;
  std::optional<double> max_s;
  std::vector<std::pair<std::string, double>> percentiles_s;  // "p99" and the value

  [[nodiscard]] bool is_empty() const { return samples_s.empty() && !mean_s; }
};

enum class DoubtLevel : std::uint8_t { kInfo, kWarning, kError };

// A difference of definitions, or something that the file itself shows to be wrong.
struct Doubt {
  std::string code;  // "import.truncated_counted", stable
  DoubtLevel level = DoubtLevel::kInfo;
  std::string message;
  std::string advice;
};

struct ClientReport {
  Tool tool = Tool::kVllmServe;
  std::string version;
  std::string model;
  std::string target;  // the server's address, as the file has it
  std::string date;
  std::string load;  // "4 streams", "8 requests/s"; empty: not said
  std::optional<std::int64_t> completed;
  std::optional<std::int64_t> failed;
  std::optional<std::int64_t> dropped;  // planned, and neither completed nor failed
  std::optional<double> duration_s;
  std::optional<std::int64_t> input_tokens;
  std::optional<std::int64_t> output_tokens;
  std::optional<double> requests_per_s;
  std::optional<double> output_tokens_per_s;
  std::optional<double> total_tokens_per_s;
  // By our names: ttft_s, ttfvt_s, itl_s, icl_s, tpot_s, e2el_s, queue_s.
  std::map<std::string, Latency> latencies;
  std::vector<Doubt> doubts;
  bool has_results = true;  // false: nothing valid was measured
};

// Throws Error(kInput) for a file that is none of these, or is broken. `records` is the file of
// single requests that AIPerf (profile_export.jsonl) and inference-perf write beside the summary;
// empty: none.
[[nodiscard]] std::vector<ClientReport> read_client_reports(
    const std::filesystem::path& file, const std::filesystem::path& records = {});

// The same from documents. GuideLLM has one report a benchmark, the others one a file.
[[nodiscard]] std::vector<ClientReport> parse_client_reports(const json::Json& document,
                                                             const std::string& where);

// Samples of single requests: an array (inference-perf) or one object a line (AIPerf).
void add_records(const std::vector<json::Json>& records, const std::string& where,
                 ClientReport& report);

}  // namespace moe::client_reports
