// CSV: a matrix of counts (a row per layer), counts in long form (layer,expert,count), or a log of
// chosen experts (layer_id,expert_ids with the ids between blanks).

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/routing/array_sources.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"
#include "lib/routing/row_group.hpp"
#include "lib/routing/text_lines.hpp"

namespace moe::routing {
namespace {

constexpr double kMaxCsvCount = 9.0e18;

char separator_of(std::string_view line) {
  for (const char c : {',', ';', '\t'}) {
    if (line.find(c) != std::string_view::npos) return c;
  }
  return ',';
}

// Column of a name in a header row, any case; -1 when not there.
std::ptrdiff_t column_of(const std::vector<std::string_view>& header,
                         std::initializer_list<std::string_view> names) {
  for (std::size_t i = 0; i < header.size(); ++i) {
    std::string text(trim(header[i]));
    for (char& c : text) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (std::find(names.begin(), names.end(), text) != names.end()) {
      return static_cast<std::ptrdiff_t>(i);
    }
  }
  return -1;
}

std::vector<std::int32_t> parse_ids(std::string_view text, const std::string& place) {
  std::vector<std::int32_t> ids;
  text = trim(text);
  if (text.starts_with('"') && text.ends_with('"') && text.size() >= 2) {
    text = text.substr(1, text.size() - 2);
  }
  for (const std::string_view part : split(text, ' ')) {
    if (trim(part).empty()) continue;
    const auto id = to_integer(trim(part));
    if (!id.has_value() || !std::in_range<std::int32_t>(*id)) {
      fail_input(place, "expected expert ids between blanks, found " + printable(part));
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

// Where the columns of a log of ids stand.
struct LogColumns {
  char separator = ',';
  std::size_t layer = 0;
  std::size_t ids = 1;
};

struct LogRow {
  std::int32_t layer = 0;
  std::vector<std::int32_t> ids;
};

LogRow parse_log_row(std::string_view line, const LogColumns& columns, const std::string& place) {
  const std::vector<std::string_view> parts = split(line, columns.separator);
  if (parts.size() <= std::max(columns.layer, columns.ids))
    fail_input(place, "a column is missing");
  const auto layer = to_integer(trim(parts[columns.layer]));
  if (!layer.has_value() || *layer < 0 || *layer > 65535) {
    fail_input(place, "expected a layer number, found " + printable(parts[columns.layer]));
  }
  return {static_cast<std::int32_t>(*layer), parse_ids(parts[columns.ids], place)};
}

class IdLogSource final : public TokenSource {
 public:
  IdLogSource(InputInfo info, SharedMap map, const LogColumns& columns, std::int64_t block_tokens)
      : info_(std::move(info)),
        lines_(std::move(map)),
        columns_(columns),
        block_tokens_(block_tokens),
        cleaner_(info_, std::nullopt),
        group_(info_) {
    rewind();
  }

  void rewind() override {
    observations_.clear();
    lines_.rewind();
    (void)lines_.next();  // the header
    group_.clear();
    token_of_layer_.clear();
    pending_.reset();
  }

  bool next(TokenBlock& block) override {
    return group_.next_block(block, block_tokens_, [this] { fill_group(); });
  }

 private:
  void fill_group() {
    const auto top_k = static_cast<std::size_t>(info_.top_k);
    std::vector<std::int32_t> ids(top_k);
    while (true) {
      if (!pending_.has_value()) {
        const auto line = lines_.next();
        if (!line.has_value()) break;
        pending_ = parse_log_row(*line, columns_, lines_.place());
      }
      RowGroup::Row row;
      row.layer_idx = std::distance(
          info_.layers.begin(),
          std::lower_bound(info_.layers.begin(), info_.layers.end(), pending_->layer));
      if (group_.is_next_group(row)) break;
      row.token = token_of_layer_[row.layer_idx]++;
      std::fill(ids.begin(), ids.end(), kUnusedSlot);
      std::copy_n(pending_->ids.begin(), std::min(pending_->ids.size(), top_k), ids.begin());
      cleaner_.clean(row.layer_idx, std::span(ids).first(pending_->ids.size()));
      group_.add(row, ids.data(), nullptr);
      pending_.reset();
    }
    cleaner_.report(observations_);
  }

  InputInfo info_;
  TextLines lines_;
  LogColumns columns_;
  std::int64_t block_tokens_;
  IdCleaner cleaner_;
  RowGroup group_;
  std::optional<LogRow> pending_;
  std::unordered_map<std::int64_t, std::int64_t> token_of_layer_;
};

class CsvReader {
 public:
  explicit CsvReader(const ReaderRequest& request)
      : request_(request), lines_(request.maps.front()) {}

  RoutingInput read() {
    const auto first = lines_.next();
    if (!first.has_value()) fail_input(request_.where(), "the file is empty");
    separator_ = separator_of(*first);
    const std::vector<std::string_view> header = split(*first, separator_);
    const std::ptrdiff_t layer = column_of(header, {"layer", "layer_id", "layer_idx"});
    const std::ptrdiff_t ids = column_of(header, {"expert_ids", "topk_ids"});
    const std::ptrdiff_t expert = column_of(header, {"expert", "expert_id"});
    const std::ptrdiff_t count = column_of(header, {"count", "tokens", "load", "num_tokens"});
    if (layer >= 0 && ids >= 0) return read_id_log(layer, ids);
    if (layer >= 0 && expert >= 0 && count >= 0) return read_long(layer, expert, count);
    if (expert >= 0 && column_of(header, {"node", "gpu", "rank"}) >= 0) {
      fail_input(request_.where(), "holds a placement (expert, node), not a load");
    }
    return read_matrix(header, layer);
  }

 private:
  RoutingInput read_id_log(std::ptrdiff_t layer, std::ptrdiff_t ids) {
    LogColumns columns{separator_, static_cast<std::size_t>(layer), static_cast<std::size_t>(ids)};
    std::set<std::int32_t> layers;
    std::size_t top_k = 0;
    std::int32_t largest = -1;
    while (const auto line = lines_.next()) {
      const LogRow row = parse_log_row(*line, columns, lines_.place());
      layers.insert(row.layer);
      top_k = std::max(top_k, row.ids.size());
      for (const std::int32_t id : row.ids) largest = std::max(largest, id);
    }
    if (layers.empty() || top_k == 0 || top_k > 4096) {
      fail_input(request_.where(), "expected rows of layer and expert ids");
    }
    RoutingInput input;
    InputInfo& info = input.info;
    info.format = Format::kExpertIdCsv;
    info.has_tokens = true;
    info.top_k = static_cast<std::int32_t>(top_k);
    info.layers.assign(layers.begin(), layers.end());
    info.num_shared_experts = request_.options.num_shared_experts;
    const std::int64_t inferred = std::int64_t{largest} + 1 - info.num_shared_experts;
    const std::int64_t num_experts = request_.options.num_experts.value_or(
        static_cast<std::int32_t>(std::clamp<std::int64_t>(inferred, 0, 65537)));
    check_shape(request_.where(), info.num_layers(), num_experts);
    info.num_experts = static_cast<std::int32_t>(num_experts);
    info.name = request_.maps.front()->path().stem().string();
    if (!request_.options.num_experts.has_value()) {
      add_observation(input.observations, "experts.inferred", num_experts,
                      fmt::format("the file does not say how many experts there are: {} from the "
                                  "largest id (--experts says it)",
                                  num_experts));
    }
    input.tokens = std::make_unique<IdLogSource>(info, request_.maps.front(), columns,
                                                 request_.options.block_tokens);
    return input;
  }

  RoutingInput read_long(std::ptrdiff_t layer, std::ptrdiff_t expert, std::ptrdiff_t count) {
    std::map<std::int32_t, std::map<std::int32_t, std::int64_t>> cells;
    std::int32_t num_experts = 0;
    RoutingInput input;
    while (const auto line = lines_.next()) {
      const std::vector<std::string_view> parts = split(*line, separator_);
      const auto number = [&](std::ptrdiff_t column, std::int64_t max) {
        const auto i = static_cast<std::size_t>(column);
        const auto value = i < parts.size() ? to_integer(trim(parts[i])) : std::nullopt;
        if (!value.has_value() || *value < 0 || *value > max) {
          fail_input(lines_.place(), fmt::format("column {}: expected 0 to {}", column + 1, max));
        }
        return *value;
      };
      const auto l = static_cast<std::int32_t>(number(layer, 65535));
      const auto e = static_cast<std::int32_t>(number(expert, 65535));
      const auto i = static_cast<std::size_t>(count);
      if (i >= parts.size()) fail_input(lines_.place(), "a column is missing");
      std::int64_t& cell = cells[l][e];
      const std::int64_t value = count_of(trim(parts[i]), input);
      if (value > std::numeric_limits<std::int64_t>::max() - cell) {
        fail_input(lines_.place(), "the counts of one expert pass 2^63");
      }
      cell += value;
      num_experts = std::max(num_experts, e + 1);
    }
    std::vector<std::int32_t> layers;
    for (const auto& [l, row] : cells) layers.push_back(l);
    check_shape(request_.where(), static_cast<std::int64_t>(layers.size()), num_experts);
    CountStep step;
    step.step = 0;
    for (const auto& [l, row] : cells) {
      for (std::int32_t e = 0; e < num_experts; ++e) {
        const auto found = row.find(e);
        step.counts.push_back(found == row.end() ? 0 : found->second);
      }
    }
    return finish(std::move(input), std::move(layers), num_experts, std::move(step));
  }

  RoutingInput read_matrix(const std::vector<std::string_view>& header, std::ptrdiff_t layer) {
    RoutingInput input;
    const bool has_header = !to_real(trim(header.front())).has_value();
    std::vector<std::int32_t> layers;
    std::size_t num_columns = 0;
    CountStep step;
    step.step = 0;
    const auto add_row = [&](const std::vector<std::string_view>& parts) {
      const std::size_t skipped = layer == 0 ? 1 : 0;
      if (num_columns == 0) num_columns = parts.size();
      if (parts.size() != num_columns || num_columns <= skipped) {
        fail_input(lines_.place(),
                   fmt::format("expected {} columns, found {}", num_columns, parts.size()));
      }
      std::int64_t number = request_.options.first_layer + static_cast<std::int64_t>(layers.size());
      if (skipped == 1) number = to_integer(trim(parts[0])).value_or(-1);
      if (number < 0 || number > 65535 || (!layers.empty() && number <= layers.back())) {
        fail_input(lines_.place(), "expected ascending layer numbers in the first column");
      }
      layers.push_back(static_cast<std::int32_t>(number));
      for (std::size_t i = skipped; i < parts.size(); ++i) {
        step.counts.push_back(count_of(trim(parts[i]), input));
      }
      check_shape(request_.where(), static_cast<std::int64_t>(layers.size()),
                  static_cast<std::int64_t>(num_columns - skipped));
    };
    if (!has_header) add_row(header);
    while (const auto line = lines_.next()) add_row(split(*line, separator_));
    if (layers.empty()) fail_input(request_.where(), "no rows of counts");
    const auto num_experts = static_cast<std::int64_t>(step.counts.size() / layers.size());
    return finish(std::move(input), std::move(layers), num_experts, std::move(step));
  }

  std::int64_t count_of(std::string_view text, RoutingInput& input) const {
    if (const auto count = to_integer(text)) {
      if (*count >= 0) return *count;
      add_observation(
          input.observations, "counts.negative", 1,
          fmt::format("{} in {}: a 32-bit counter that wrapped around", *count, lines_.place()));
      return 0;
    }
    const auto real = to_real(text);
    if (!real.has_value() || *real < 0.0 || *real > kMaxCsvCount) {
      fail_input(lines_.place(), "expected counts of 0 or more, found " + printable(text));
    }
    const std::int64_t rounded = std::llround(*real);
    if (static_cast<double>(rounded) != *real) {
      add_observation(input.observations, "counts.fractional", 1,
                      fmt::format("{} became {}", *real, rounded));
    }
    return rounded;
  }

  RoutingInput finish(RoutingInput input, std::vector<std::int32_t> layers,
                      std::int64_t num_experts, CountStep step) const {
    input.info.format = Format::kCountMatrix;
    input.info.layers = std::move(layers);
    input.info.num_experts = static_cast<std::int32_t>(num_experts);
    input.info.top_k = request_.options.top_k.value_or(0);
    std::vector<CountStep> steps;
    steps.push_back(std::move(step));
    input.counts = make_memory_count_source(std::move(steps));
    return input;
  }

  const ReaderRequest& request_;
  TextLines lines_;
  char separator_ = ',';
};

}  // namespace

RoutingInput open_csv(const ReaderRequest& request) {
  return CsvReader(request).read();
}

}  // namespace moe::routing
