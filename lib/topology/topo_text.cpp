#include "lib/topology/topo_text.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/topo_matrix.hpp"

namespace moe::topology {
namespace {

constexpr std::string_view kSpaces = " \t";

struct Code {
  std::string_view text;
  PathKind path;
};
// SOC is what SYS was called at first.
constexpr Code kCodes[] = {{"X", PathKind::kSelf},    {"PIX", PathKind::kPix},
                           {"PXB", PathKind::kPxb},   {"PHB", PathKind::kPhb},
                           {"NODE", PathKind::kNode}, {"SYS", PathKind::kSys},
                           {"SOC", PathKind::kSys}};

bool is_numbered(std::string_view token, std::string_view prefix) {
  if (!token.starts_with(prefix) || token.size() == prefix.size()) return false;
  return std::all_of(token.begin() + static_cast<std::ptrdiff_t>(prefix.size()), token.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

struct Headings {
  bool has_numa = false;
  bool has_gpu_numa = false;
};

std::vector<std::string_view> split_tabs(std::string_view text) {
  std::vector<std::string_view> fields;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = std::min(text.find('\t', begin), text.size());
    std::string_view field = text.substr(begin, end - begin);
    while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
    while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
    fields.push_back(field);
    if (end == text.size()) return fields;
    begin = end + 1;
  }
}

// Between tabs each value has its place, though the last two stand behind empty fields.
void read_tabbed_affinity(std::string_view rest, const Headings& headings, TopoRow& row) {
  std::vector<std::string_view> fields = split_tabs(rest);
  // What stands before the first tab belongs to the last cell.
  fields.erase(fields.begin());
  if (fields.empty()) return;
  row.cpus = fields.front();
  fields.erase(fields.begin());
  if (headings.has_gpu_numa && fields.size() >= 2) {
    row.gpu_numa = fields.back();
    fields.pop_back();
  }
  const auto numa = std::find_if(fields.begin(), fields.end(),
                                 [](std::string_view field) { return !field.empty(); });
  if (headings.has_numa && numa != fields.end()) row.numa = *numa;
}

// Without tabs a value's place is lost when another is empty: only a full set, or one that cannot
// be misread, is taken.
void read_spaced_affinity(std::string_view rest, const Headings& headings, TopoRow& row) {
  const std::vector<std::string_view> words = split_words(rest);
  const std::size_t expected =
      1 + (headings.has_numa ? 1U : 0U) + (headings.has_gpu_numa ? 1U : 0U);
  if (words.size() == expected) {
    row.cpus = words[0];
    if (headings.has_numa) row.numa = words[1];
    if (headings.has_gpu_numa) row.gpu_numa = words.back();
  } else if (!words.empty() && words.front() != "N/A" &&
             words.front().find('-') != std::string_view::npos) {
    row.cpus = words.front();
  }
}

TopoRow read_row(const std::string& line, std::size_t num_columns, const Headings& headings,
                 std::int32_t line_number, TopoText& text) {
  TopoRow row;
  row.line = line_number;
  std::string_view rest = line;
  const auto next_word = [&rest]() {
    const std::size_t begin = std::min(rest.find_first_not_of(kSpaces), rest.size());
    const std::size_t end = std::min(rest.find_first_of(kSpaces, begin), rest.size());
    return std::pair(rest.substr(begin, end - begin), end);
  };
  const auto [name, name_end] = next_word();
  row.name = name;
  rest.remove_prefix(name_end);
  while (row.cells.size() < num_columns) {
    const auto [word, end] = next_word();
    const std::optional<TopoCell> cell = parse_topo_cell(word);
    if (!cell) {
      text.remarks.push_back(
          {"matrix.row_cut",
           Weight::kWarning,
           fmt::format("line {}: row {} has {} of {} cells; column {} holds \"{}\"", line_number,
                       printable(row.name), row.cells.size(), num_columns,
                       printable(text.columns[row.cells.size()]), printable(word)),
           "Copy the whole output of nvidia-smi topo -m",
           {row.name},
           line_number});
      return row;
    }
    row.cells.push_back(*cell);
    rest.remove_prefix(end);
  }
  const bool has_tabs = rest.find('\t') != std::string_view::npos;
  if (has_tabs) {
    read_tabbed_affinity(rest, headings, row);
  } else {
    read_spaced_affinity(rest, headings, row);
  }
  return row;
}

Headings read_header(const std::string& line, TopoText& text) {
  for (const std::string_view word : split_words(line)) {
    if (word == "CPU") break;
    text.columns.emplace_back(word);
  }
  Headings headings;
  headings.has_numa = line.find("NUMA Affinity") != std::string::npos;
  headings.has_gpu_numa = line.find("GPU NUMA ID") != std::string::npos;
  return headings;
}

// "NIC0: mlx5_0".
std::optional<NicLegend> parse_legend(const std::string& line) {
  const std::vector<std::string_view> words = split_words(line);
  if (words.size() != 2 || words[0].size() < 2 || words[0].back() != ':') return std::nullopt;
  const std::string_view name = words[0].substr(0, words[0].size() - 1);
  if (!is_numbered(name, "NIC")) return std::nullopt;
  return NicLegend{std::string(name), std::string(words[1])};
}

}  // namespace

std::optional<TopoCell> parse_topo_cell(std::string_view token) {
  for (const Code& code : kCodes) {
    if (token == code.text) return TopoCell{code.path, 0};
  }
  if (!is_numbered(token, "NV") || token.size() > 5) return std::nullopt;
  std::int32_t count = 0;
  std::from_chars(token.data() + 2, token.data() + token.size(), count);
  if (count == 0) return std::nullopt;
  return TopoCell{PathKind::kNvlink, count};
}

bool is_gpu_name(std::string_view token) {
  return is_numbered(token, "GPU");
}

std::vector<std::string> clean_lines(std::string_view text) {
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\x1b' && i + 1 < text.size() && text[i + 1] == '[') {
      // A terminal code ends with a letter.
      i += 2;
      while (i < text.size() && !((text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z')) ++i;
    } else if (c == '\n') {
      lines.emplace_back();
    } else if (c != '\r') {
      lines.back() += c;
    }
  }
  return lines;
}

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t begin = line.find_first_not_of(kSpaces);
  while (begin != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(kSpaces, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kSpaces, end);
  }
  return words;
}

std::optional<std::size_t> find_topo_header(const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string_view> words = split_words(lines[i]);
    // A row begins with the same word, but goes on with a code.
    const bool is_header =
        words.size() >= 2 && is_gpu_name(words[0]) &&
        (is_gpu_name(words[1]) || words[1] == "CPU" ||
         words[1].find('_') != std::string_view::npos || is_numbered(words[1], "NIC"));
    if (is_header) return i;
  }
  return std::nullopt;
}

TopoText read_topo_text(std::string_view input, const std::string& where) {
  if (input.size() > kMaxTopoBytes) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {} bytes are no output of nvidia-smi topo -m",
                                               where, input.size()));
  }
  const std::vector<std::string> lines = clean_lines(input);
  const std::optional<std::size_t> header = find_topo_header(lines);
  if (!header) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected the output of nvidia-smi topo -m, found no line that "
                            "begins with GPU0 and names columns",
                            where));
  }
  TopoText text;
  text.header_line = static_cast<std::int32_t>(*header) + 1;
  const Headings headings = read_header(lines[*header], text);
  if (text.columns.size() > kMaxTopoDevices) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {} columns; at most {} are read", where,
                                               text.columns.size(), kMaxTopoDevices));
  }
  if (!std::is_partitioned(text.columns.begin(), text.columns.end(), is_gpu_name)) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: line {} names a GPU after a NIC", where, text.header_line));
  }
  for (std::size_t i = *header + 1; i < lines.size(); ++i) {
    const std::vector<std::string_view> words = split_words(lines[i]);
    if (words.empty()) continue;
    const bool is_row =
        std::find(text.columns.begin(), text.columns.end(), words[0]) != text.columns.end();
    if (is_row && text.rows.size() < text.columns.size()) {
      text.rows.push_back(read_row(lines[i], text.columns.size(), headings,
                                   static_cast<std::int32_t>(i) + 1, text));
    } else if (const auto legend = parse_legend(lines[i])) {
      if (text.legend.size() < kMaxTopoDevices) text.legend.push_back(*legend);
    }
  }
  if (text.rows.empty()) {
    throw Error(ErrorCode::kInput, fmt::format("{}: line {} names {} columns, but no row follows",
                                               where, text.header_line, text.columns.size()));
  }
  return text;
}

}  // namespace moe::topology
