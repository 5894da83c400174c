#pragma once

// What the readers of single trace formats share.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/workload/trace.hpp"

namespace moe::workload {

// Counts and hands on; every reader ends in add().
class TraceSink {
 public:
  TraceSink(std::string where, const TraceOptions& options, const RequestVisitor& visit,
            TraceFormat format)
      : where_(std::move(where)), options_(options), visit_(visit) {
    info_.format = format;
  }

  // `absolute_s`: in any epoch; the first one becomes 0. False when enough were read.
  [[nodiscard]] bool add(std::optional<double> absolute_s, std::int64_t input_tokens,
                         std::int64_t output_tokens, std::span<const std::uint64_t> blocks = {});
  void add_failed() { ++info_.failed; }
  void add_incomplete() { ++info_.incomplete; }

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const TraceOptions& options() const { return options_; }
  [[nodiscard]] TraceInfo& info() { return info_; }

 private:
  std::string where_;
  const TraceOptions& options_;
  const RequestVisitor& visit_;
  TraceInfo info_;
  std::optional<double> first_s_;
  double last_s_ = 0.0;
};

// Throws Error(kInput): "WHERE:LINE: WHAT".
[[noreturn]] void fail_at(const std::string& where, std::int64_t line, const std::string& what);

// The next line without its ending, moving `text` behind it. False at the end.
[[nodiscard]] bool next_line(std::string_view& text, std::string_view& line);

// Seconds since 1970 of "2023-11-16 18:17:03.9799600" or "2024-05-10 00:00:00.009930+00:00".
// nullopt for anything else.
[[nodiscard]] std::optional<double> parse_timestamp_s(std::string_view text);

void read_csv_trace(std::string_view text, TraceSink& sink, TraceFormat format);
void read_mooncake_trace(std::string_view text, TraceSink& sink);
void read_sharegpt_trace(std::string_view text, TraceSink& sink);

}  // namespace moe::workload
