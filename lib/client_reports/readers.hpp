#pragma once

// The reader of each tool, and the doubts that all of them share.

#include <string>
#include <vector>

#include "lib/client_reports/client_report.hpp"

namespace moe::client_reports {

[[nodiscard]] ClientReport read_vllm_serve(const json::Json& document);
[[nodiscard]] ClientReport read_vllm_throughput(const json::Json& document);
[[nodiscard]] ClientReport read_aiperf(const json::Json& document);
[[nodiscard]] std::vector<ClientReport> read_guidellm(const json::Json& document,
                                                      const std::string& where);
[[nodiscard]] ClientReport read_inference_perf(const json::Json& document);

// One request as far as a file of single requests tells.
struct RequestFigures {
  std::optional<double> ttft_s;
  std::optional<double> ttfvt_s;
  std::optional<double> latency_s;
  std::optional<std::int64_t> output_tokens;
  std::optional<std::int64_t> asked_tokens;
};

// Adds ttft_s, ttfvt_s, e2el_s and tpot_s by our definitions; tpot_s needs two tokens.
void add_request(const RequestFigures& figures, const std::string& source, ClientReport& report);

// How the tool's definitions differ from ours; the same for every file of the tool.
void add_definitions(ClientReport& report);
// What any file can give away: failures, nothing measured, too few samples for a tail.
void add_common_doubts(ClientReport& report);
// Outputs that end before what was asked for, among the successes.
void add_short_outputs(std::int64_t num_short, std::int64_t num_known, ClientReport& report);

}  // namespace moe::client_reports
