// Traces as CSV. Columns are found by name, so that a newer release of a trace with more columns
// still reads.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/workload/length_distribution.hpp"
#include "lib/workload/trace_parts.hpp"

namespace moe::workload {
namespace {

struct CsvFormat {
  std::string_view time;
  std::string_view input;
  std::string_view output;
  bool is_date = false;  // the time is a date, else seconds
  bool zero_output_is_failed = false;
};

CsvFormat columns_of(TraceFormat format) {
  if (format == TraceFormat::kAzure) {
    return {"TIMESTAMP", "ContextTokens", "GeneratedTokens", true, false};
  }
  if (format == TraceFormat::kBurstGpt) {
    return {"Timestamp", "Request tokens", "Response tokens", false, true};
  }
  return {"arrival_s", "input_tokens", "output_tokens", false, false};
}

// Fields of one line; quotes around a field are taken off, a quoted field cannot hold a comma here.
std::string_view field_at(std::string_view line, std::size_t index) {
  for (std::size_t i = 0; i < index; ++i) {
    const std::size_t comma = line.find(',');
    if (comma == std::string_view::npos) return {};
    line.remove_prefix(comma + 1);
  }
  line = line.substr(0, line.find(','));
  while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
  while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
  if (line.size() >= 2 && line.front() == '"' && line.back() == '"') {
    line = line.substr(1, line.size() - 2);
  }
  return line;
}

std::size_t column_index(std::string_view header, std::string_view name, const TraceSink& sink) {
  const auto columns = static_cast<std::size_t>(std::count(header.begin(), header.end(), ',')) + 1;
  for (std::size_t i = 0; i < columns; ++i) {
    if (field_at(header, i) == name) return i;
  }
  fail_at(sink.where(), 1,
          fmt::format("expected a column \"{}\", found \"{}\"", name, printable(header)));
}

std::int64_t tokens_of(std::string_view field, std::string_view column, std::int64_t line,
                       const TraceSink& sink) {
  // BurstGPT and spreadsheets write whole numbers as "123.0" at times.
  const std::optional<double> number = parse_number<double>(field);
  const bool is_count = number && *number >= 0.0 && *number <= static_cast<double>(kMaxTokens) &&
                        std::floor(*number) == *number;
  if (!is_count) {
    fail_at(sink.where(), line,
            fmt::format("expected a number of tokens in \"{}\", found \"{}\"", column,
                        printable(field)));
  }
  return static_cast<std::int64_t>(*number);
}

double time_of(std::string_view field, const CsvFormat& format, std::int64_t line,
               const TraceSink& sink) {
  const std::optional<double> time =
      format.is_date ? parse_timestamp_s(field) : parse_number<double>(field);
  if (!time) {
    fail_at(
        sink.where(), line,
        fmt::format("expected {} in \"{}\", found \"{}\"",
                    format.is_date ? "a date and time" : "seconds", format.time, printable(field)));
  }
  return *time;
}

}  // namespace

std::optional<double> parse_timestamp_s(std::string_view text) {
  const auto digits = [&](std::size_t at, std::size_t count) -> std::int64_t {
    std::int64_t value = -1;
    if (at + count > text.size()) return -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + count, value);
    return error == std::errc() && end == text.data() + at + count ? value : -1;
  };
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' ||
      (text[10] != ' ' && text[10] != 'T') || text[13] != ':' || text[16] != ':') {
    return std::nullopt;
  }
  const std::array<std::int64_t, 6> part = {digits(0, 4),  digits(5, 2),  digits(8, 2),
                                            digits(11, 2), digits(14, 2), digits(17, 2)};
  const auto& [year, month, day, hour, minute, second] = part;
  if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 ||
      minute < 0 || minute > 59 || second < 0 || second > 60) {
    return std::nullopt;
  }
  text.remove_prefix(19);
  double fraction = 0.0;
  if (!text.empty() && text.front() == '.') {
    double scale = 0.1;
    text.remove_prefix(1);
    for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1)) {
      fraction += scale * (text.front() - '0');
      scale *= 0.1;
    }
  }
  if (!text.empty() && text != "Z" && text != "+00:00") return std::nullopt;
  // Days since 1970 of a Gregorian date (Howard Hinnant, "chrono-compatible low-level date
  // algorithms"): years begin in March, so a leap day is the last of its year.
  const std::int64_t y = month <= 2 ? year - 1 : year;
  const std::int64_t era = y / 400;
  const std::int64_t year_of_era = y - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const std::int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  const std::int64_t days = era * 146097 + day_of_era - 719468;
  return static_cast<double>(days * 86400 + hour * 3600 + minute * 60 + second) + fraction;
}

void read_csv_trace(std::string_view text, TraceSink& sink, TraceFormat format) {
  const CsvFormat columns = columns_of(format);
  std::string_view line;
  if (!next_line(text, line)) fail_at(sink.where(), 1, "expected a header line, found nothing");
  const std::size_t time_column = column_index(line, columns.time, sink);
  const std::size_t input_column = column_index(line, columns.input, sink);
  const std::size_t output_column = column_index(line, columns.output, sink);
  for (std::int64_t number = 2; next_line(text, line); ++number) {
    if (line.empty()) continue;
    const double time_s = time_of(field_at(line, time_column), columns, number, sink);
    const std::int64_t input = tokens_of(field_at(line, input_column), columns.input, number, sink);
    const std::int64_t output =
        tokens_of(field_at(line, output_column), columns.output, number, sink);
    if (columns.zero_output_is_failed && output == 0) {
      sink.add_failed();
      continue;
    }
    if (!sink.add(time_s, input, output)) return;
  }
}

}  // namespace moe::workload
