#pragma once

// Readers of recorded traffic: who sent how many tokens when. Files of any size are read in one
// pass with flat memory; a row is refused with its line when it is not what the format says.
//
// Formats:
//   azure      CSV TIMESTAMP,ContextTokens,GeneratedTokens; timestamps are dates (2023 and 2024)
//   burstgpt   CSV with the columns Timestamp (seconds), Request tokens, Response tokens; a row
//              with 0 response tokens is a request that failed
//   mooncake   JSON lines: timestamp (milliseconds), input_length, output_length, hash_ids (one
//              for each 512 tokens of the prompt)
//   sharegpt   JSON array of conversations; lengths only, no times: the first human turn and the
//              answer to it
//   plain      CSV arrival_s,input_tokens,output_tokens

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moe::workload {

enum class TraceFormat : std::uint8_t { kAzure, kBurstGpt, kMooncake, kShareGpt, kPlain };

[[nodiscard]] const char* name_of(TraceFormat format);
[[nodiscard]] std::optional<TraceFormat> parse_trace_format(std::string_view name);
[[nodiscard]] const std::vector<std::string>& trace_format_names();

// Tokens of prefix that one Mooncake block id stands for.
inline constexpr std::int64_t kMooncakeBlockTokens = 512;

struct Request {
  std::optional<double> arrival_s;  // since the first request; absent in datasets without times
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
  std::span<const std::uint64_t> prefix_blocks;  // valid during the visit only
};

struct TraceOptions {
  std::optional<TraceFormat> format;  // nullopt: found from the first bytes
  std::int64_t max_requests = 0;      // 0: all
  // Tokens of a text, for datasets that hold text. Without one, four bytes count as a token, and
  // TraceInfo says so.
  std::function<std::int64_t(std::string_view)> count_tokens;
};

struct TraceInfo {
  TraceFormat format = TraceFormat::kPlain;
  std::int64_t requests = 0;      // visited
  std::int64_t failed = 0;        // rows of failed requests, left out
  std::int64_t incomplete = 0;    // conversations without a question and an answer, left out
  std::int64_t out_of_order = 0;  // requests earlier than the one before
  bool has_times = false;
  bool is_token_estimate = false;  // lengths are bytes / 4
};

using RequestVisitor = std::function<void(const Request&)>;

// Throws Error(kInput) with the line or the number of the record. Times earlier than the first
// request's count as 0 and as out of order.
TraceInfo visit_trace(const std::filesystem::path& path, const TraceOptions& options,
                      const RequestVisitor& visit);

// The same over text in memory; `where` names it in messages.
TraceInfo visit_trace_text(std::string_view text, const std::string& where,
                           const TraceOptions& options, const RequestVisitor& visit);

// nullopt when the first bytes are those of no format.
[[nodiscard]] std::optional<TraceFormat> detect_trace_format(std::string_view text);

}  // namespace moe::workload
