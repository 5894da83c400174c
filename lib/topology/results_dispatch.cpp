// MoE dispatch and combine as DeepEP and programs like it print them: Markdown tables of their
// documents, and lines of their tests.

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/results.hpp"
#include "lib/topology/topo_text.hpp"

namespace moe::topology {
namespace {

constexpr std::size_t kMaxSamples = 1000000;
constexpr std::int64_t kMaxRanks = 1 << 20;
constexpr double kMaxRate = 1e18;

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// One printed figure.
struct Sample {
  std::string phase;
  std::string dtype;
  std::string scope;
  std::int64_t num_ranks = 0;
  std::optional<std::int64_t> rank;
  double bytes_per_s = 0.0;
  std::optional<double> time_s;
};

std::optional<double> parse_rate(std::string_view text) {
  const std::optional<double> value = parse_number<double>(text);
  return value && *value >= 0.0 && *value < kMaxRate ? value : std::nullopt;
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  const std::optional<double> value = parse_rate(text);
  const bool is_count =
      value && *value == std::floor(*value) && *value <= static_cast<double>(kMaxRanks);
  return is_count ? std::optional<std::int64_t>(static_cast<std::int64_t>(*value)) : std::nullopt;
}

// The number that ends at `end`, blanks between left out.
std::optional<double> number_before(std::string_view text, std::size_t end) {
  while (end > 0 && text[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  return begin == end ? std::nullopt : parse_rate(text.substr(begin, end - begin));
}

// The first number of a text.
std::optional<double> first_number(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size() && !is_digit(text[begin])) ++begin;
  std::size_t end = begin;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
  return begin == end ? std::nullopt : parse_rate(text.substr(begin, end - begin));
}

std::string scope_of(std::string_view text) {
  const std::string lower = lower_case(text);
  // SO and SU: scale-out and scale-up, DeepEP's second generation.
  if (has(lower, "rdma") || has(lower, "(so)")) return "RDMA";
  if (has(lower, "nvl") || has(lower, "(su)")) return "NVLink";
  return "";
}

std::string phase_of(std::string_view text) {
  const std::string lower = lower_case(text);
  if (has(lower, "dispatch + combine") || has(lower, "dispatch+combine")) {
    return "dispatch + combine";
  }
  for (const char* phase :
       {"expanded dispatch", "cached dispatch", "reduced combine", "dispatch", "combine"}) {
    if (has(lower, phase)) return phase;
  }
  return "";
}

std::string dtype_of(std::string_view text) {
  const std::string lower = lower_case(text);
  for (const char* name : {"FP8", "BF16", "FP4", "LogFMT"}) {
    if (has(lower, "(" + lower_case(name))) return name;
  }
  return "";
}

// "EP 8 x 2" -> 16, "EP8" -> 8, "64" -> 64.
std::int64_t ranks_of(std::string_view text) {
  std::int64_t product = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    const std::optional<std::int64_t> value = parse_count(text.substr(at, end - at));
    if (!value || *value == 0) return 0;
    product = product == 0 ? *value : product * *value;
    if (product > kMaxRanks) return 0;
    at = end;
  }
  return product;
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  std::size_t begin = line.find('|') + 1;
  while (begin < line.size()) {
    const std::size_t end = std::min(line.find('|', begin), line.size());
    std::string_view cell = line.substr(begin, end - begin);
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
    cells.emplace_back(cell);
    begin = end + 1;
  }
  return cells;
}

enum class ColumnKind : std::uint8_t { kOther, kRanks, kTime, kRate };

struct TableColumn {
  ColumnKind kind = ColumnKind::kOther;
  std::string phase;
};

// Empty: no heading of such a table.
std::vector<TableColumn> read_heading(const std::vector<std::string>& cells) {
  std::vector<TableColumn> columns;
  std::string phase;
  bool has_rate = false;
  for (const std::string& cell : cells) {
    const std::string lower = lower_case(cell);
    if (!phase_of(cell).empty()) phase = phase_of(cell);
    TableColumn column;
    column.phase = phase;
    const bool is_ranks = has(lower, "#ep") || lower == "ep" || lower == "topo" ||
                          lower == "ranks" || has(lower, "number of gpus") || lower == "gpus";
    const bool is_rate = has(lower, "bandwidth") || has(lower, "gb/s") || has(lower, " bw");
    const bool is_time = has(lower, "latency") || has(lower, "(us)") || has(lower, "time");
    column.kind = is_ranks  ? ColumnKind::kRanks
                  : is_rate ? ColumnKind::kRate
                  : is_time ? ColumnKind::kTime
                            : ColumnKind::kOther;
    has_rate = has_rate || (is_rate && !phase.empty());
    columns.push_back(column);
  }
  return has_rate ? columns : std::vector<TableColumn>();
}

class DispatchReader {
 public:
  DispatchReader(const std::string& where, const ResultOptions& options)
      : where_(where), options_(options) {}

  BenchmarkResults read(std::string_view text) {
    for (const std::string& line : clean_lines(text)) {
      const std::size_t first = line.find_first_not_of(" \t");
      if (first != std::string::npos && line[first] == '|') {
        read_table_line(line);
      } else {
        heading_.clear();
        read_log_line(line);
      }
    }
    return finish();
  }

 private:
  void read_table_line(const std::string& line) {
    const std::vector<std::string> cells = cells_of(line);
    std::vector<TableColumn> heading = read_heading(cells);
    if (!heading.empty()) {
      heading_ = std::move(heading);
      return;
    }
    std::map<std::string, std::int64_t> ranks;  // by phase
    std::map<std::string, double> times_us;
    std::int64_t any_ranks = 0;
    for (std::size_t i = 0; i < std::min(cells.size(), heading_.size()); ++i) {
      const TableColumn& column = heading_[i];
      if (column.kind == ColumnKind::kRanks) {
        any_ranks = ranks_of(cells[i]);
        ranks[column.phase] = any_ranks;
      }
      const std::optional<double> value = first_number(cells[i]);
      if (column.kind == ColumnKind::kTime && value) times_us[column.phase] = *value;
    }
    for (std::size_t i = 0; i < std::min(cells.size(), heading_.size()); ++i) {
      const TableColumn& column = heading_[i];
      const std::optional<double> rate = first_number(cells[i]);
      if (column.kind != ColumnKind::kRate || column.phase.empty() || !rate) continue;
      Sample sample;
      sample.phase = column.phase;
      sample.scope = scope_of(cells[i]);
      const auto own = ranks.find(column.phase);
      sample.num_ranks = own != ranks.end() ? own->second : any_ranks;
      sample.bytes_per_s = *rate * 1e9;
      const auto time = times_us.find(column.phase);
      if (time != times_us.end()) sample.time_s = time->second * 1e-6;
      add(std::move(sample));
    }
  }

  // "[rank 3] Dispatch bandwidth: 98 GB/s, avg_t=77 us | Combine ...", "[tuning] Best dispatch
  // (FP8): ...", "* EP:   3/16 | dispatch: 90 GB/s (SO), 120 GB/s (SU), 800 us, ...".
  void read_log_line(const std::string& line) {
    if (!has(line, "GB/s")) return;
    if (has(line, "[tuning]") && !has(line, "Best")) return;
    std::optional<std::int64_t> rank;
    std::int64_t num_ranks = 0;
    const std::size_t tag = line.find("[rank ");
    if (tag != std::string::npos) {
      const std::size_t end = std::min(line.find(']', tag), line.size());
      rank = parse_count(std::string_view(line).substr(tag + 6, end - tag - 6));
    }
    const std::size_t ep = line.find("EP:");
    if (ep != std::string::npos) {
      const std::size_t slash = line.find('/', ep);
      const std::size_t bar = std::min(line.find('|', ep), line.size());
      if (slash < bar) {
        const std::optional<double> number = number_before(line, slash);
        if (number) rank = static_cast<std::int64_t>(*number);
        num_ranks = ranks_of(std::string_view(line).substr(slash, bar - slash));
      }
    }
    if (rank) highest_rank_ = std::max(highest_rank_, *rank);
    std::size_t begin = 0;
    while (begin < line.size()) {
      const std::size_t end = std::min(line.find('|', begin), line.size());
      read_segment(std::string_view(line).substr(begin, end - begin), rank, num_ranks);
      begin = end + 1;
    }
  }

  void read_segment(std::string_view segment, std::optional<std::int64_t> rank,
                    std::int64_t num_ranks) {
    Sample sample;
    sample.phase = phase_of(segment);
    if (sample.phase.empty()) return;
    sample.dtype = dtype_of(segment);
    sample.rank = rank;
    sample.num_ranks = num_ranks;
    const std::size_t average = segment.find("avg_t=");
    const std::size_t us = segment.find(" us", average == std::string_view::npos ? 0 : average);
    if (us != std::string_view::npos) {
      const std::optional<double> time = number_before(segment, us);
      if (time) sample.time_s = *time * 1e-6;
    }
    for (std::size_t at = segment.find("GB/s"); at != std::string_view::npos;
         at = segment.find("GB/s", at + 4)) {
      const std::optional<double> rate = number_before(segment, at);
      if (!rate) continue;
      Sample one = sample;
      one.bytes_per_s = *rate * 1e9;
      const std::string_view after = segment.substr(at + 4);
      one.scope = scope_of(after.substr(0, std::min(after.find(','), after.size())));
      add(std::move(one));
    }
  }

  void add(Sample sample) {
    // A rate of 0 is one that does not apply: no scale-out traffic on one node.
    if (sample.bytes_per_s > 0.0 && samples_.size() < kMaxSamples) {
      samples_.push_back(std::move(sample));
    }
  }

  BenchmarkResults finish() {
    if (samples_.empty()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: no row of dispatch or combine with a bandwidth", where_));
    }
    using Key = std::tuple<std::int64_t, std::string, std::string, std::string>;
    std::map<Key, std::vector<Sample>> groups;
    for (Sample& sample : samples_) {
      // Tables say it row by row; logs of one run may leave it to the option.
      if (sample.num_ranks == 0) sample.num_ranks = options_.num_ranks;
      const bool is_whole = highest_rank_ > 0 && sample.rank;
      if (sample.num_ranks == 0 && is_whole) sample.num_ranks = highest_rank_ + 1;
      groups[{sample.num_ranks, sample.phase, sample.dtype, sample.scope}].push_back(sample);
    }
    BenchmarkResults results;
    results.tool = "DeepEP-style text";
    results.operation = "dispatch and combine";
    results.size_semantics =
        "logical: bytes of all selected token copies, those that stay on the rank included";
    for (auto& [key, samples] : groups) results.dispatch_rows.push_back(summarise(samples));
    for (const DispatchRow& row : results.dispatch_rows) {
      results.num_ranks = std::max(results.num_ranks, row.num_ranks);
    }
    return results;
  }

  // Rows of a table that differ in what is not read (SMs, NICs) count as one with a worst.
  static DispatchRow summarise(std::vector<Sample>& samples) {
    std::stable_sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
      return a.bytes_per_s < b.bytes_per_s;
    });
    const Sample& middle = samples[samples.size() / 2];
    DispatchRow row;
    row.phase = middle.phase;
    row.dtype = middle.dtype;
    row.scope = middle.scope;
    row.num_ranks = middle.num_ranks;
    row.logical_bytes_per_s = middle.bytes_per_s;
    row.worst_bytes_per_s = samples.front().bytes_per_s;
    row.worst_rank = samples.front().rank;
    row.time_s = middle.time_s;
    return row;
  }

  const std::string& where_;
  const ResultOptions& options_;
  std::vector<TableColumn> heading_;
  std::vector<Sample> samples_;
  std::int64_t highest_rank_ = 0;
};

}  // namespace

bool looks_like_dispatch(std::string_view text) {
  const bool is_nccl_tests = has(text, "busbw") && has(text, "algbw");
  if (is_nccl_tests || !has(text, "GB/s")) return false;
  const std::string lower = lower_case(text);
  return has(lower, "dispatch") || has(lower, "combine");
}

BenchmarkResults read_dispatch(std::string_view text, const std::string& where,
                               const ResultOptions& options) {
  return DispatchReader(where, options).read(text);
}

}  // namespace moe::topology
