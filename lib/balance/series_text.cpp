#include "lib/balance/series_text.hpp"

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"

namespace moe::balance {
namespace {

constexpr std::size_t kMaxFields = std::size_t{1} << 24;

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const auto comma = line.find(',');
    fields.push_back(trim(line.substr(0, comma)));
    if (comma == std::string_view::npos) return fields;
    line = line.substr(comma + 1);
  }
}

double number_of(std::string_view field, const std::string& place) {
  const auto value = parse_number<double>(field);
  if (!value) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected a number, found \"{}\"", place, printable(field)));
  }
  return *value;
}

// The rows behind the header, split, with their line numbers.
struct Table {
  std::vector<std::string_view> header;
  std::vector<std::vector<std::string_view>> rows;
  std::vector<std::size_t> lines;
};

Table read_table(std::string_view text, const std::string& where) {
  Table table;
  std::size_t line_number = 0;
  std::size_t num_fields = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++line_number;
    if (line.empty()) continue;
    std::vector<std::string_view> fields = split(line);
    num_fields += fields.size();
    if (num_fields > kMaxFields) {
      throw Error(ErrorCode::kInput, fmt::format("{}: more than {} fields", where, kMaxFields));
    }
    if (table.header.empty()) {
      table.header = std::move(fields);
      continue;
    }
    if (fields.size() != table.header.size()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: line {}: {} fields, the header has {}", where,
                                                 line_number, fields.size(), table.header.size()));
    }
    table.rows.push_back(std::move(fields));
    table.lines.push_back(line_number);
  }
  return table;
}

}  // namespace

Series read_series(std::string_view text, const std::string& where) {
  const Table table = read_table(text, where);
  if (table.header.size() < 2 || table.header.front() != "time_s") {
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: expected a header \"time_s,NAME,...\" of at least one series", where));
  }
  Series series;
  series.names.assign(table.header.begin() + 1, table.header.end());
  series.values.resize(series.names.size());
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::string place = fmt::format("{}: line {}", where, table.lines[row]);
    const double time_s = number_of(table.rows[row].front(), place);
    if (!series.time_s.empty() && time_s < series.time_s.back()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: time runs backwards: {} after {}", place,
                                                 time_s, series.time_s.back()));
    }
    series.time_s.push_back(time_s);
    for (std::size_t i = 0; i < series.names.size(); ++i) {
      const std::string_view field = table.rows[row][i + 1];
      series.values[i].push_back(field.empty() ? std::nullopt
                                               : std::optional<double>(number_of(field, place)));
    }
  }
  return series;
}

std::vector<AlarmLabel> read_labels(std::string_view text, const std::string& where) {
  const Table table = read_table(text, where);
  if (table.header.size() != 2 || table.header[0] != "begin_s" || table.header[1] != "end_s") {
    throw Error(ErrorCode::kInput, fmt::format("{}: expected the header \"begin_s,end_s\"", where));
  }
  std::vector<AlarmLabel> labels;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::string place = fmt::format("{}: line {}", where, table.lines[row]);
    const AlarmLabel label = {number_of(table.rows[row][0], place),
                              number_of(table.rows[row][1], place)};
    if (label.end_s < label.begin_s) {
      throw Error(ErrorCode::kInput, fmt::format("{}: the stretch ends before it begins", place));
    }
    labels.push_back(label);
  }
  return labels;
}

}  // namespace moe::balance
