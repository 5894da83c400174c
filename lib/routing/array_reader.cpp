// Arrays that say little about themselves: chosen experts, counts or router scores in .npy, .npz or
// safetensors. What they hold follows from type and shape, a file of the same name with .json
// beside it, or the user's word.

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/base/parse_number.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/array_sources.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"

namespace moe::routing {
namespace {

// No model routes a token to more experts; a longer last axis holds counts.
constexpr std::int64_t kMaxArrayTopK = 16;
constexpr std::int64_t kMaxArrayLayers = 65536;
constexpr std::int64_t kMaxExpertId = 65535;

std::int32_t parse_count(const std::string& text) {
  return std::max(parse_number<std::int32_t>(text).value_or(0), 0);
}

// Facts about an array from its metadata or the file beside it.
struct Facts {
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  std::optional<std::int32_t> first_layer;
  std::string model;
  std::vector<std::int64_t> sequence_tokens;
};

std::int32_t count_in(const json::Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  const auto value = found->get<std::int64_t>();
  return value > 0 && value <= 65536 ? static_cast<std::int32_t>(value) : 0;
}

void read_neighbour(const std::filesystem::path& array, Facts& facts) {
  std::filesystem::path file = array;
  file.replace_extension(".json");
  if (file == array || !std::filesystem::is_regular_file(file)) return;
  const json::Json object = json::parse_file(file.string());
  if (!object.is_object()) return;
  facts.num_experts = count_in(object, "num_experts");
  facts.top_k = count_in(object, "top_k");
  if (object.contains("model") && object["model"].is_string()) {
    facts.model = object["model"].get<std::string>();
  }
  if (object.contains("layer_ids") && object["layer_ids"].is_string()) {
    const auto text = object["layer_ids"].get<std::string>();  // "1..26"
    std::int32_t first = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), first);
    if (result.ec == std::errc() && first >= 0) facts.first_layer = first;
  }
  if (!object.contains("sequence_lengths") || !object["sequence_lengths"].is_array()) return;
  for (const json::Json& length : object["sequence_lengths"]) {
    if (!length.is_number_integer() || length.get<std::int64_t>() < 1) {
      fail_input(file.string(), "sequence_lengths: expected whole numbers of 1 or more");
    }
    facts.sequence_tokens.push_back(length.get<std::int64_t>());
  }
}

// Largest id of an id array, unused slots aside.
std::int32_t largest_id(const std::vector<ArrayView>& layers, const FileMap* map) {
  std::int32_t sentinel = std::numeric_limits<std::int32_t>::max();
  if (layers.front().type == ElementType::kU8) sentinel = 255;
  if (layers.front().type == ElementType::kU16) sentinel = 65535;
  std::int32_t largest = -1;
  std::vector<std::int32_t> ids;
  for (const ArrayView& rows : layers) {
    constexpr std::int64_t kRows = 4096;
    PageReleaser releaser(map);
    for (std::int64_t t = 0; t < rows.shape[0]; t += kRows) {
      const std::int64_t count = std::min(kRows, rows.shape[0] - t);
      ids.assign(static_cast<std::size_t>(count * rows.shape[1]), 0);
      read_id_rows(rows, t, count, rows.shape[1], ids.data());
      for (const std::int32_t id : ids) {
        if (id < sentinel) largest = std::max(largest, id);
      }
      releaser.used_up_to(rows.at(t).bytes.data());
    }
  }
  return largest;
}

class ArrayReader {
 public:
  ArrayReader(const ReaderRequest& request, const ArrayFile& file)
      : request_(request), options_(request.options), file_(file) {
    facts_.num_experts = parse_count(file.metadata_text("num_experts"));
    facts_.top_k = parse_count(file.metadata_text("top_k"));
    facts_.model = file.metadata_text("model");
    if (facts_.num_experts == 0) read_neighbour(file.map->path(), facts_);
  }

  RoutingInput read() {
    // A safetensors file of chosen experts: "ids" [layers, tokens, k].
    const ArrayView* ids = file_.find("ids");
    if (ids != nullptr && is_integer(ids->type) && ids->rank() == 3) {
      return read_ids(layers_first(*ids));
    }
    if (file_.arrays.size() == 1) return read_single(file_.arrays.front());
    std::vector<ArrayView> layers = layers_by_number();
    if (layers.empty()) refuse();
    if (is_integer(layers.front().type)) return read_ids(std::move(layers));
    return read_scores(std::move(layers));
  }

 private:
  [[noreturn]] void refuse() const {
    std::string found;
    for (std::size_t i = 0; i < file_.arrays.size() && i < 4; ++i) {
      const ArrayView& array = file_.arrays[i];
      found += fmt::format("{}{} {} {}", i > 0 ? ", " : "", array.name, element_name(array.type),
                           array.shape_text());
    }
    fail_input(where(),
               "expected ids [tokens, layers, k], counts [layers, experts] or scores [tokens, "
               "experts] per layer, found " +
                   (found.empty() ? "no array" : found) + "; --layout says what an array holds");
  }

  [[nodiscard]] std::string where() const { return request_.where(); }

  RoutingInput read_single(const ArrayView& array) {
    const ArrayLayout layout = layout_of(array);
    if (layout == ArrayLayout::kTokenIds && array.rank() == 3) return read_ids(tokens_first(array));
    if (layout == ArrayLayout::kTokenIds && array.rank() == 2) return read_ids({array});
    if (layout == ArrayLayout::kTopOne && array.rank() == 2) {
      ArrayView with_k = array;
      with_k.shape.push_back(1);
      with_k.strides.push_back(1);
      return read_ids(tokens_first(with_k));
    }
    if (layout == ArrayLayout::kLogits && array.rank() == 2) return read_scores({array});
    if (layout == ArrayLayout::kLogits && array.rank() == 3)
      return read_scores(layers_first(array));
    if (layout == ArrayLayout::kCounts) return read_counts(array);
    refuse();
  }

  ArrayLayout layout_of(const ArrayView& array) const {
    if (options_.layout != ArrayLayout::kAuto) return options_.layout;
    if (array.rank() == 3 && is_integer(array.type) && array.shape[2] <= kMaxArrayTopK) {
      return has_large_numbers(array) ? ArrayLayout::kCounts : ArrayLayout::kTokenIds;
    }
    // Half precision is what a router writes, and a negative number is a score, not a count.
    const bool is_half = array.type == ElementType::kF16 || array.type == ElementType::kBf16;
    if (is_half || has_scores(array)) return ArrayLayout::kLogits;
    return ArrayLayout::kCounts;
  }

  // Numbers above any expert's, in the first rows of an integer array [.., .., few].
  static bool has_large_numbers(const ArrayView& array) {
    if (element_bytes(array.type) < 4 || array.num_elements() == 0) return false;
    std::vector<std::int64_t> values(static_cast<std::size_t>(array.shape[2]));
    const ArrayView first = array.at(0);
    for (std::int64_t l = 0; l < std::min<std::int64_t>(first.shape[0], kMaxArrayLayers); ++l) {
      read_integers(first.at(l), 0, std::span(values));
      for (const std::int64_t value : values) {
        if (value > kMaxExpertId) return true;
      }
    }
    return false;
  }

  // Floats below zero, or fractions, in the first rows.
  static bool has_scores(const ArrayView& array) {
    if (is_integer(array.type) || array.num_elements() == 0) return false;
    ArrayView row = array;
    while (row.rank() > 1) row = row.at(0);
    if (row.rank() != 1) return false;
    std::vector<double> values(static_cast<std::size_t>(row.shape[0]));
    read_reals(row, 0, values);
    return std::any_of(values.begin(), values.end(), [](double value) {
      return value < 0.0 || value != static_cast<double>(
                                         static_cast<std::int64_t>(std::clamp(value, -1e15, 1e15)));
    });
  }

  // [tokens, layers, k] -> one [tokens, k] per layer.
  std::vector<ArrayView> tokens_first(const ArrayView& array) const {
    if (array.shape[1] > kMaxArrayLayers) refuse();
    std::vector<ArrayView> layers;
    for (std::int64_t l = 0; l < array.shape[1]; ++l) {
      ArrayView rows = array;
      rows.shape = {array.shape[0], array.shape[2]};
      rows.strides = {array.strides[0], array.strides[2]};
      const std::int64_t offset = l * array.strides[1] * element_bytes(array.type);
      rows.bytes =
          array.bytes.subspan(std::min(static_cast<std::size_t>(offset), array.bytes.size()));
      layers.push_back(std::move(rows));
    }
    return layers;
  }

  std::vector<ArrayView> layers_first(const ArrayView& array) const {
    if (array.shape[0] > kMaxArrayLayers) refuse();
    std::vector<ArrayView> layers;
    for (std::int64_t l = 0; l < array.shape[0]; ++l) layers.push_back(array.at(l));
    return layers;
  }

  // Several arrays of two dimensions, one a layer; the last number of a name is the layer's.
  std::vector<ArrayView> layers_by_number() {
    std::map<std::int32_t, ArrayView> by_number;
    for (const ArrayView& array : file_.arrays) {
      if (array.rank() != 2) return {};
      const std::size_t last = array.name.find_last_of("0123456789");
      if (last == std::string::npos) return {};
      std::size_t begin = array.name.find_last_not_of("0123456789", last);
      begin = begin == std::string::npos ? 0 : begin + 1;
      std::int32_t number = 0;
      const auto result =
          std::from_chars(array.name.data() + begin, array.name.data() + last + 1, number);
      if (result.ec != std::errc() || !by_number.emplace(number, array).second) return {};
    }
    std::vector<ArrayView> layers;
    for (const auto& [number, array] : by_number) {
      const ArrayView& first = by_number.begin()->second;
      if (array.shape != first.shape || is_integer(array.type) != is_integer(first.type)) {
        fail_input(where(), fmt::format("array {}: expected {} as in the first layer, found {}",
                                        array.name, first.shape_text(), array.shape_text()));
      }
      numbers_.push_back(number);
      layers.push_back(array);
    }
    return layers;
  }

  InputInfo info_of(Format format, std::int64_t num_layers) const {
    InputInfo info;
    info.format = format;
    info.model = facts_.model;
    info.layers = number_layers(num_layers, facts_.first_layer.value_or(options_.first_layer));
    if (!numbers_.empty()) info.layers = numbers_;
    info.num_shared_experts = options_.num_shared_experts;
    return info;
  }

  RoutingInput read_ids(std::vector<ArrayView> layers) {
    if (layers.empty() || layers.front().shape[1] == 0) refuse();
    if (layers.front().shape[1] > 4096) refuse();
    RoutingInput input;
    InputInfo& info = input.info;
    info = info_of(Format::kTokenIds, static_cast<std::int64_t>(layers.size()));
    info.has_tokens = true;
    info.top_k = static_cast<std::int32_t>(layers.front().shape[1]);
    info.num_experts = options_.num_experts.value_or(facts_.num_experts);
    if (info.num_experts == 0) {
      info.num_experts = largest_id(layers, file_.map.get()) + 1 - options_.num_shared_experts;
      add_observation(input.observations, "experts.inferred", info.num_experts,
                      fmt::format("the file does not say how many experts there are: {} from the "
                                  "largest id (--experts says it)",
                                  info.num_experts));
    }
    check_shape(where(), info.num_layers(), info.num_experts);
    info.has_requests = !facts_.sequence_tokens.empty();
    const std::int64_t num_tokens = layers.front().shape[0];
    std::int64_t sum = 0;
    for (const std::int64_t tokens : facts_.sequence_tokens) sum += tokens;
    if (info.has_requests && sum != num_tokens) {
      fail_input(where(),
                 fmt::format("the file beside it names sequences of {} tokens together, the "
                             "array holds {}",
                             sum, num_tokens));
    }
    SegmentPlan plan = one_segment(std::move(layers));
    input.tokens = make_segment_source(info, std::move(plan), options_.block_tokens);
    return input;
  }

  RoutingInput read_scores(std::vector<ArrayView> layers) {
    RoutingInput input;
    InputInfo& info = input.info;
    info = info_of(Format::kRouterLogits, static_cast<std::int64_t>(layers.size()));
    info.has_tokens = true;
    info.has_weights = true;
    if (layers.empty()) refuse();
    const std::int64_t num_experts = layers.front().shape[1];
    check_shape(where(), info.num_layers(), num_experts);
    info.num_experts = static_cast<std::int32_t>(num_experts);
    info.top_k = options_.top_k.value_or(facts_.top_k);
    if (info.top_k < 1 || info.top_k > info.num_experts) {
      fail_input(where(),
                 fmt::format("router scores of {} experts: how many a token takes is not in the "
                             "file; give --top-k",
                             num_experts));
    }
    SegmentPlan plan = one_segment(std::move(layers));
    plan.is_scores = true;
    input.tokens = make_segment_source(info, std::move(plan), options_.block_tokens);
    return input;
  }

  SegmentPlan one_segment(std::vector<ArrayView> layers) const {
    SegmentPlan plan;
    plan.num_segments = 1;
    plan.num_tokens = layers.front().shape[0];
    plan.fill = [layers = std::move(layers), lengths = facts_.sequence_tokens](
                    std::int64_t, TokenSegment& segment) {
      segment.num_tokens = layers.front().shape[0];
      segment.rows = layers;
      segment.sequence_tokens = lengths;
    };
    plan.maps = {file_.map};
    return plan;
  }

  RoutingInput read_counts(ArrayView array) {
    if (array.rank() != 2 && array.rank() != 3) refuse();
    if (array.rank() == 2) {
      array.shape = {1, array.shape[0], array.shape[1]};
      array.strides = {0, array.strides[0], array.strides[1]};
    }
    RoutingInput input;
    InputInfo& info = input.info;
    info = info_of(Format::kCountMatrix, array.shape[1]);
    check_shape(where(), array.shape[1], array.shape[2]);
    info.num_experts = static_cast<std::int32_t>(array.shape[2]);
    if (options_.num_experts.has_value() && *options_.num_experts != info.num_experts) {
      fail_input(where(), fmt::format("--experts {} does not fit counts of shape {}",
                                      *options_.num_experts, array.shape_text()));
    }
    info.top_k = options_.top_k.value_or(facts_.top_k);
    CountPlan plan;
    plan.num_steps = array.shape[0];
    plan.fill = [array](std::int64_t step_idx, std::vector<CountPart>& parts) {
      const ArrayView step = array.at(step_idx);
      for (std::int64_t l = 0; l < step.shape[0]; ++l) parts.push_back({l, step.at(l)});
      return step_idx;
    };
    plan.maps = {file_.map};
    input.counts = make_count_source(info, std::move(plan));
    return input;
  }

  const ReaderRequest& request_;
  const OpenOptions& options_;
  const ArrayFile& file_;
  Facts facts_;
  std::vector<std::int32_t> numbers_;  // layers named by their arrays
};

}  // namespace

RoutingInput open_arrays(const ReaderRequest& request, const ArrayFile& file) {
  return ArrayReader(request, file).read();
}

}  // namespace moe::routing
