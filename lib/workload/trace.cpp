#include "lib/workload/trace.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/text.hpp"
#include "lib/workload/length_distribution.hpp"
#include "lib/workload/trace_parts.hpp"

namespace moe::workload {
namespace {

constexpr std::array<std::pair<const char*, TraceFormat>, 5> kFormats = {
    {{"azure", TraceFormat::kAzure},
     {"burstgpt", TraceFormat::kBurstGpt},
     {"mooncake", TraceFormat::kMooncake},
     {"sharegpt", TraceFormat::kShareGpt},
     {"plain", TraceFormat::kPlain}}};

// Longest stretch of time a trace may cover: more is a damaged timestamp.
constexpr double kMaxTrace_s = 100.0 * 366.0 * 86400.0;

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  return text;
}

}  // namespace

const char* name_of(TraceFormat format) {
  for (const auto& [name, value] : kFormats) {
    if (value == format) return name;
  }
  return "";
}

std::optional<TraceFormat> parse_trace_format(std::string_view name) {
  for (const auto& [known, value] : kFormats) {
    if (name == known) return value;
  }
  return std::nullopt;
}

const std::vector<std::string>& trace_format_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const auto& [name, value] : kFormats) out.emplace_back(name);
    return out;
  }();
  return names;
}

void fail_at(const std::string& where, std::int64_t line, const std::string& what) {
  throw Error(ErrorCode::kInput, fmt::format("{}:{}: {}", where, line, what));
}

bool next_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const std::size_t end = std::min(text.find('\n'), text.size());
  line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

bool TraceSink::add(std::optional<double> absolute_s, std::int64_t input_tokens,
                    std::int64_t output_tokens, std::span<const std::uint64_t> blocks) {
  Request request;
  request.input_tokens = input_tokens;
  request.output_tokens = output_tokens;
  request.prefix_blocks = blocks;
  if (absolute_s) {
    if (!first_s_) first_s_ = absolute_s;
    const double since_first_s = *absolute_s - *first_s_;
    if (std::abs(since_first_s) > kMaxTrace_s) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: request {} is {:.3g} s away from the first one; a trace covers "
                              "100 years at most, so its timestamp is damaged",
                              where_, info_.requests + 1, since_first_s));
    }
    if (since_first_s < last_s_) ++info_.out_of_order;
    last_s_ = since_first_s;
    request.arrival_s = std::max(0.0, since_first_s);
    info_.has_times = true;
  }
  ++info_.requests;
  visit_(request);
  return options_.max_requests == 0 || info_.requests < options_.max_requests;
}

std::optional<TraceFormat> detect_trace_format(std::string_view text) {
  text = without_byte_order_mark(text);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n' || text.front() == '\r')) {
    text.remove_prefix(1);
  }
  if (text.empty()) return std::nullopt;
  if (text.front() == '[') return TraceFormat::kShareGpt;
  if (text.front() == '{') return TraceFormat::kMooncake;
  std::string_view header;
  if (!next_line(text, header)) return std::nullopt;
  if (header.find("ContextTokens") != std::string_view::npos) return TraceFormat::kAzure;
  if (header.find("Request tokens") != std::string_view::npos) return TraceFormat::kBurstGpt;
  if (header.find("input_tokens") != std::string_view::npos) return TraceFormat::kPlain;
  return std::nullopt;
}

TraceInfo visit_trace_text(std::string_view text, const std::string& where,
                           const TraceOptions& options, const RequestVisitor& visit) {
  text = without_byte_order_mark(text);
  const std::optional<TraceFormat> format =
      options.format ? options.format : detect_trace_format(text);
  if (!format) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: the beginning is that of none of the trace formats ({}): \"{}\"; "
                    "name the format if it is one of them",
                    where, fmt::join(trace_format_names(), ", "), printable(text.substr(0, 60))));
  }
  TraceSink sink(where, options, visit, *format);
  switch (*format) {
    case TraceFormat::kAzure:
    case TraceFormat::kBurstGpt:
    case TraceFormat::kPlain:
      read_csv_trace(text, sink, *format);
      break;
    case TraceFormat::kMooncake:
      read_mooncake_trace(text, sink);
      break;
    case TraceFormat::kShareGpt:
      read_sharegpt_trace(text, sink);
      break;
  }
  if (sink.info().requests == 0) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: no usable request in it ({} failed, {} incomplete)", where,
                            sink.info().failed, sink.info().incomplete));
  }
  return sink.info();
}

TraceInfo visit_trace(const std::filesystem::path& path, const TraceOptions& options,
                      const RequestVisitor& visit) {
  const FileMap file(path);
  const auto bytes = file.bytes();
  return visit_trace_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                          path.string(), options, visit);
}

}  // namespace moe::workload
