#include "lib/topology/measured_points.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/file_map.hpp"
#include "lib/base/fnv1a.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/base/text.hpp"

namespace moe::topology {
namespace {

constexpr double kMicro = 1e-6;

// A CSV without quoting, row by row, with cells by column name.
class Csv {
 public:
  Csv(std::string_view text, const std::string& where) : rest_(text), where_(where) {
    if (!next_line()) fail("expected a line of column names, found nothing");
    names_ = cells_;
  }

  bool next_row() {
    do {
      if (!next_line()) return false;
    } while (cells_.size() == 1 && cells_[0].empty());
    if (cells_.size() != names_.size()) {
      fail(fmt::format("{} cells under {} columns", cells_.size(), names_.size()));
    }
    if (++num_rows_ > kMaxPoints) fail(fmt::format("more than {} rows", kMaxPoints));
    return true;
  }

  [[nodiscard]] std::size_t column(std::string_view name) const {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) {
      throw Error(ErrorCode::kInput, fmt::format("{}: no column \"{}\"", where_, name));
    }
    return static_cast<std::size_t>(at - names_.begin());
  }

  [[nodiscard]] std::string text(std::size_t column) const { return printable(cells_[column]); }

  [[nodiscard]] std::int64_t integer(std::size_t column, std::int64_t min, std::int64_t max) const {
    const std::string_view cell = cells_[column];
    const auto value = parse_number<std::int64_t>(cell);
    if (!value || *value < min || *value > max) {
      fail(fmt::format("{} \"{}\" is no integer from {} to {}", names_[column], printable(cell),
                       min, max));
    }
    return *value;
  }

  [[nodiscard]] double positive(std::size_t column) const {
    const std::string_view cell = cells_[column];
    const auto value = parse_number<double>(cell);
    if (!value || *value <= 0.0 || *value > 1e15) {
      fail(fmt::format("{} \"{}\" is no positive number", names_[column], printable(cell)));
    }
    return *value;
  }

 private:
  bool next_line() {
    if (rest_.empty()) return false;
    ++line_;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    cells_.clear();
    std::size_t begin = 0;
    for (;;) {
      const std::size_t comma = std::min(line.find(',', begin), line.size());
      cells_.push_back(line.substr(begin, comma - begin));
      if (cells_.size() > 1000) fail("more than 1000 columns");
      if (comma == line.size()) return true;
      begin = comma + 1;
    }
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorCode::kInput, fmt::format("{}: line {}: {}", where_, line_, message));
  }

  std::string_view rest_;
  const std::string& where_;
  std::int64_t line_ = 0;
  std::size_t num_rows_ = 0;
  std::vector<std::string_view> names_;
  std::vector<std::string_view> cells_;
};

constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;

template <typename Point>
std::vector<Point> read_points(const std::filesystem::path& path,
                               std::vector<Point> (*parse)(std::string_view, const std::string&)) {
  const FileMap file(path);
  return parse({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
               path.string());
}

}  // namespace

std::vector<CollectivePoint> parse_collective_points(std::string_view text,
                                                     const std::string& where) {
  Csv csv(text, where);
  const std::size_t gpu = csv.column("gpu");
  const std::size_t library = csv.column("library");
  const std::size_t version = csv.column("version");
  const std::size_t op = csv.column("op");
  const std::size_t dtype = csv.column("dtype");
  const std::size_t ranks = csv.column("num_gpus");
  const std::size_t bytes = csv.column("bytes");
  const std::size_t time = csv.column("time_us");
  std::vector<CollectivePoint> points;
  while (csv.next_row()) {
    CollectivePoint point;
    point.gpu = csv.text(gpu);
    point.library = csv.text(library);
    point.version = csv.text(version);
    point.op = csv.text(op);
    point.dtype = csv.text(dtype);
    point.num_ranks = csv.integer(ranks, 2, 1000000);
    point.bytes = csv.integer(bytes, 1, std::int64_t{1} << 50);
    point.time_s = csv.positive(time) * kMicro;
    points.push_back(std::move(point));
  }
  return points;
}

std::vector<MoePoint> parse_moe_points(std::string_view text, const std::string& where) {
  Csv csv(text, where);
  const std::size_t gpu = csv.column("gpu");
  const std::size_t library = csv.column("library");
  const std::size_t version = csv.column("version");
  const std::size_t api = csv.column("api");
  const std::size_t phase = csv.column("phase");
  const std::size_t dtype = csv.column("dtype");
  const std::size_t ranks = csv.column("ep");
  const std::size_t nodes = csv.column("nodes");
  const std::size_t hidden = csv.column("hidden");
  const std::size_t top_k = csv.column("topk");
  const std::size_t experts = csv.column("experts");
  const std::size_t tokens = csv.column("tokens_per_rank");
  const std::size_t sms = csv.column("sms");
  const std::size_t time = csv.column("time_us");
  std::vector<MoePoint> points;
  while (csv.next_row()) {
    MoePoint point;
    point.gpu = csv.text(gpu);
    point.library = csv.text(library);
    point.version = csv.text(version);
    point.api = csv.text(api);
    point.phase = csv.text(phase);
    point.dtype = csv.text(dtype);
    point.num_ranks = csv.integer(ranks, 2, 1000000);
    point.num_nodes = csv.integer(nodes, 1, 1000000);
    point.hidden = csv.integer(hidden, 1, 1000000);
    point.top_k = csv.integer(top_k, 1, 100000);
    point.num_experts = csv.integer(experts, 1, 1000000);
    point.tokens_per_rank = csv.integer(tokens, 1, kMaxCount);
    point.num_sms = csv.integer(sms, 0, 100000);
    point.time_s = csv.positive(time) * kMicro;
    points.push_back(std::move(point));
  }
  return points;
}

std::vector<CollectivePoint> read_collective_points(const std::filesystem::path& path) {
  return read_points<CollectivePoint>(path, &parse_collective_points);
}

std::vector<MoePoint> read_moe_points(const std::filesystem::path& path) {
  return read_points<MoePoint>(path, &parse_moe_points);
}

bool is_moe_csv(std::string_view csv) {
  const std::string_view first = csv.substr(0, csv.find('\n'));
  return first.find("tokens_per_rank") != std::string_view::npos;
}

bool is_held_out(std::string_view key, std::uint64_t divisor) {
  std::uint64_t hash = fnv1a64(key);
  hash ^= hash >> 32;  // the low bits of FNV alone follow the last characters
  return (hash * 0x9e3779b97f4a7c15ULL >> 32) % divisor == 0;
}

}  // namespace moe::topology
