// nccl-tests and OSU as text.

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"
#include "lib/topology/results.hpp"
#include "lib/topology/topo_text.hpp"

namespace moe::topology {
namespace {

constexpr std::size_t kMaxResultBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxRows = 100000;

// Columns of one side (out of place or in place), by place after the leading ones.
struct Side {
  std::size_t time = 0;
  std::size_t busbw = 0;
  std::size_t wrong = 0;
};

struct Layout {
  bool has_root = false;
  std::vector<Side> sides;
};

// From the heading line: everything from the first "time" on is one column a word.
std::optional<Layout> read_layout(const std::vector<std::string_view>& words) {
  const auto time = std::find_if(words.begin(), words.end(), [](std::string_view word) {
    return word == "time" || word == "cputime";
  });
  const bool has_size = std::find(words.begin(), words.end(), "size") != words.end();
  if (time == words.end() || !has_size) return std::nullopt;
  Layout layout;
  layout.has_root = std::find(words.begin(), time, "root") != time;
  for (auto word = time; word != words.end(); ++word) {
    const std::size_t place = static_cast<std::size_t>(word - time);
    if (*word == "time" || *word == "cputime") layout.sides.push_back({place, place, place});
    if (*word == "busbw") layout.sides.back().busbw = place;
    if (*word == "#wrong" || *word == "error") layout.sides.back().wrong = place;
  }
  return layout;
}

// Words of a data row from the first time on. The reduction is empty for an all-to-all in older
// generations, so the words before are told apart by what they look like.
std::vector<std::string_view> values_of(const std::vector<std::string_view>& words,
                                        const Layout& layout) {
  std::size_t at = 3;                                               // size, count, type
  if (at < words.size() && !parse_number<double>(words[at])) ++at;  // redop
  const bool is_root = at < words.size() && layout.has_root &&
                       words[at].find_first_not_of("-0123456789") == std::string_view::npos;
  if (is_root) ++at;
  return {words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end()};
}

class NcclText {
 public:
  NcclText(const std::string& where, const ResultOptions& options)
      : where_(where), options_(options) {
    results_.tool = "nccl-tests text";
    results_.size_semantics = "bytes that one rank sends in all";
    results_.is_complete = false;
  }

  BenchmarkResults read(std::string_view text) {
    std::int32_t line_number = 0;
    for (const std::string& line : clean_lines(text)) {
      ++line_number;
      const std::vector<std::string_view> words = split_words(line);
      if (words.empty()) continue;
      if (words[0].front() == '#') {
        read_comment(line, words);
      } else if (layout_ && parse_number<double>(words[0])) {
        read_row(words, line_number);
      }
    }
    return finish();
  }

 private:
  void read_comment(const std::string& line, std::vector<std::string_view> words) {
    if (words[0] == "#") words.erase(words.begin());
    if (words.empty()) return;
    if (const auto layout = read_layout(words)) layout_ = layout;
    if (words[0] == "Rank" && words.size() > 1) {
      const std::optional<double> rank = parse_number<double>(words[1]);
      if (rank) ranks_.insert(static_cast<std::int64_t>(*rank));
      const auto on = std::find(words.begin(), words.end(), "on");
      if (on != words.end() && on + 1 != words.end()) hosts_.insert(std::string(*(on + 1)));
    }
    const auto has = [&](const char* part) { return line.find(part) != std::string::npos; };
    if (has("Collective test starting:")) {
      const std::string name = std::string(words.back());
      results_.operation = printable(name.substr(0, name.find("_perf")));
      results_.operation.erase(0, results_.operation.rfind('/') + 1);
    }
    if (has("Out of bounds values")) {
      results_.is_data_ok = !has("FAILED");
      results_.is_complete = true;
    }
    if (has("Reducing maxBytes")) {
      results_.remarks.push_back({"result.max_bytes_reduced",
                                  Weight::kWarning,
                                  "the largest size was lowered: the buffers did not fit",
                                  "Use fewer ranks a device or ask for smaller sizes",
                                  {},
                                  0});
    }
  }

  void read_row(const std::vector<std::string_view>& words, std::int32_t line) {
    const std::vector<std::string_view> values = values_of(words, *layout_);
    const std::optional<double> bytes = parse_number<double>(words[0]);
    for (std::size_t side = 0; side < layout_->sides.size(); ++side) {
      const Side& places = layout_->sides[side];
      if (places.busbw >= values.size()) {
        if (side == 0) {
          results_.remarks.push_back({"result.row_cut",
                                      Weight::kWarning,
                                      fmt::format("line {}: a row with {} of {} values", line,
                                                  values.size(), layout_->sides.back().wrong + 1),
                                      "",
                                      {},
                                      line});
        }
        return;
      }
      const std::optional<double> time = parse_number<double>(values[places.time]);
      const std::optional<double> busbw = parse_number<double>(values[places.busbw]);
      if (!time || !busbw || *time <= 0.0) continue;
      ResultRow row;
      row.bytes = *bytes;
      row.time_s = *time * 1e-6;
      row.busbw_bytes_per_s = *busbw * 1e9;
      row.is_in_place = side > 0;
      if (places.wrong < values.size()) {
        if (const auto wrong = parse_number<double>(values[places.wrong])) {
          row.num_wrong = static_cast<std::int64_t>(std::ceil(std::min(*wrong, 1e15)));
        }
      }
      if (results_.rows.size() < kMaxRows) results_.rows.push_back(row);
    }
  }

  BenchmarkResults finish() {
    if (!layout_) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: expected the output of nccl-tests, found no line that names its "
                              "columns",
                              where_));
    }
    results_.num_hosts = static_cast<std::int64_t>(hosts_.size());
    results_.num_ranks = static_cast<std::int64_t>(ranks_.size());
    if (results_.num_ranks == 0) results_.num_ranks = options_.num_ranks;
    if (results_.num_ranks == 0) {
      throw Error(ErrorCode::kInput,
                  fmt::format("{}: the file does not list its ranks; give --ranks", where_));
    }
    if (!results_.is_complete) {
      results_.remarks.push_back({"result.no_end",
                                  Weight::kWarning,
                                  "the file has no \"Out of bounds values\" line: the run was "
                                  "stopped or the output cut",
                                  "",
                                  {},
                                  0});
    }
    // Times have four digits or more, bandwidths as few as three: one is worked out of the other.
    const double n = static_cast<double>(results_.num_ranks);
    if (results_.operation == "alltoall" || results_.operation.empty()) {
      for (ResultRow& row : results_.rows) {
        row.busbw_bytes_per_s = row.bytes / row.time_s * (n - 1.0) / n;
      }
    }
    return std::move(results_);
  }

  const std::string& where_;
  const ResultOptions& options_;
  BenchmarkResults results_;
  std::optional<Layout> layout_;
  std::set<std::int64_t> ranks_;
  std::set<std::string> hosts_;
};

}  // namespace

BenchmarkResults read_nccl_tests_text(std::string_view text, const std::string& where,
                                      const ResultOptions& options) {
  return NcclText(where, options).read(text);
}

BenchmarkResults read_osu(std::string_view text, const std::string& where,
                          const ResultOptions& options) {
  if (options.num_ranks < 2) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: an OSU file does not say how many ranks it had, and its sizes are "
                            "for one peer; give --ranks",
                            where));
  }
  BenchmarkResults results;
  results.tool = "OSU micro-benchmarks";
  results.operation = "alltoall";
  results.size_semantics = "bytes for one peer";
  results.num_ranks = options.num_ranks;
  const double n = static_cast<double>(options.num_ranks);
  for (const std::string& line : clean_lines(text)) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.size() < 2 || words[0].front() == '#') continue;
    const std::optional<double> peer_bytes = parse_number<double>(words[0]);
    const std::optional<double> time = parse_number<double>(words[1]);
    if (!peer_bytes || !time || *time <= 0.0 || results.rows.size() >= kMaxRows) continue;
    ResultRow row;
    row.bytes = *peer_bytes * n;
    row.time_s = *time * 1e-6;
    row.busbw_bytes_per_s = row.bytes / row.time_s * (n - 1.0) / n;
    results.rows.push_back(row);
  }
  return results;
}

BenchmarkResults read_results(std::string_view text, const std::string& where,
                              const ResultOptions& options) {
  if (text.size() > kMaxResultBytes) {
    throw Error(ErrorCode::kInput, fmt::format("{}: {} bytes; at most {} are read", where,
                                               text.size(), kMaxResultBytes));
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    throw Error(ErrorCode::kInput, fmt::format("{}: the file is empty", where));
  }
  if (text[first] == '{') return read_results_json(text, where, options);
  const bool is_osu = text.find("# OSU") != std::string_view::npos;
  if (!is_osu && looks_like_dispatch(text)) return read_dispatch(text, where, options);
  return is_osu ? read_osu(text, where, options) : read_nccl_tests_text(text, where, options);
}

std::optional<double> half_bandwidth_of(const BenchmarkResults& results) {
  std::vector<std::pair<double, double>> sweep;  // size, rate
  double best = 0.0;
  for (const ResultRow& row : results.rows) {
    if (row.is_in_place) continue;
    sweep.emplace_back(row.bytes, row.busbw_bytes_per_s);
    best = std::max(best, row.busbw_bytes_per_s);
  }
  std::sort(sweep.begin(), sweep.end());
  if (sweep.size() < 3 || sweep.front().second * 2.0 >= best) return std::nullopt;
  for (const auto& [bytes, rate] : sweep) {
    if (rate * 2.0 >= best) return bytes;
  }
  return std::nullopt;
}

std::vector<Dip> find_dips(const BenchmarkResults& results, double share) {
  std::vector<ResultRow> rows;
  for (const ResultRow& row : results.rows) {
    if (!row.is_in_place) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ResultRow& a, const ResultRow& b) { return a.bytes < b.bytes; });
  std::vector<Dip> dips;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double before = rows[i - 1].busbw_bytes_per_s;
    if (rows[i].busbw_bytes_per_s < before * (1.0 - share)) {
      dips.push_back({rows[i].bytes, rows[i].busbw_bytes_per_s, before});
    }
  }
  return dips;
}

}  // namespace moe::topology
