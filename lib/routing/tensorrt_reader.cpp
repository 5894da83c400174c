// TensorRT-LLM's expert statistic: one safetensors file a rank, tensors "<iteration>_<layer>",
// either counts [experts] or, in the raw form, chosen experts [tokens, k]. meta_info.json beside
// them says how many experts there are.

#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"
#include "lib/json/read.hpp"
#include "lib/routing/array_sources.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"

namespace moe::routing {
namespace {

struct Meta {
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  std::int32_t ep_size = 0;
};

// The rank in "rank3.safetensors", "x_rank3_raw.safetensors"; -1 when there is none.
std::int32_t rank_of(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  const std::size_t at = name.rfind("rank");
  if (at == std::string::npos) return -1;
  std::int32_t rank = -1;
  const auto result = std::from_chars(name.data() + at + 4, name.data() + name.size(), rank);
  return result.ec == std::errc() && rank >= 0 && rank < 65536 ? rank : -1;
}

std::int32_t meta_count(const json::Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return 0;
  const auto value = found->get<std::int64_t>();
  return value > 0 && value <= 65536 ? static_cast<std::int32_t>(value) : 0;
}

// meta_info.json, or a file whose name ends so, in the same folder.
Meta read_meta(const std::filesystem::path& statistic) {
  Meta meta;
  std::filesystem::path folder = statistic.parent_path();
  if (folder.empty()) folder = ".";
  std::set<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().ends_with("meta_info.json")) found.insert(entry.path());
  }
  if (found.empty()) return meta;
  const json::Json object = json::parse_file(found.begin()->string());
  if (!object.is_object()) fail_input(found.begin()->string(), "expected an object");
  meta.num_experts = meta_count(object, "num_experts");
  meta.top_k = meta_count(object, "num_experts_per_token");
  meta.ep_size = meta_count(object, "ep_size");
  return meta;
}

class StatisticReader {
 public:
  explicit StatisticReader(const ReaderRequest& request) : request_(request) {}

  RoutingInput read() {
    for (const SharedMap& map : request_.maps) collect(map);
    const ArrayView& first = parts_.begin()->second.front().second;
    const bool is_raw = first.rank() == 2;
    const Meta meta = read_meta(request_.maps.front()->path());
    RoutingInput input;
    InputInfo& info = input.info;
    info.format = is_raw ? Format::kTensorRtRaw : Format::kTensorRtStatistic;
    info.layers.assign(layers_.begin(), layers_.end());
    info.top_k = request_.options.top_k.value_or(meta.top_k);
    if (!ranks_.contains(-1)) info.ranks.assign(ranks_.begin(), ranks_.end());
    if (meta.ep_size > 1) info.num_gpus = meta.ep_size;
    info.num_experts = request_.options.num_experts.value_or(
        meta.num_experts > 0 || is_raw ? meta.num_experts
                                       : static_cast<std::int32_t>(first.shape[0]));
    if (is_raw && info.num_experts == 0) {
      fail_input(request_.where(),
                 "raw statistics do not say how many experts there are: put "
                 "meta_info.json beside them or give --experts");
    }
    check_shape(request_.where(), info.num_layers(), info.num_experts);
    check_parts(info, is_raw);
    if (is_raw) {
      make_tokens(input, first.shape[1]);
    } else {
      make_counts(input);
    }
    observe_gaps(input);
    return input;
  }

 private:
  using Part = std::pair<std::int32_t, ArrayView>;  // layer number, values

  void collect(const SharedMap& map) {
    const ArrayFile file = open_safetensors(map);
    ranks_.insert(rank_of(map->path()));
    for (const ArrayView& array : file.arrays) {
      const std::size_t bar = array.name.find('_');
      std::int64_t iteration = -1;
      std::int32_t layer = -1;
      if (bar != std::string::npos) {
        const char* text = array.name.data();
        const char* end = text + array.name.size();
        const auto first = std::from_chars(text, text + bar, iteration);
        const auto second = std::from_chars(text + bar + 1, end, layer);
        if (first.ptr != text + bar || second.ptr != end) iteration = -1;
      }
      if (iteration < 0 || layer < 0 || layer > 65535) {
        fail_input(map->path().string(),
                   fmt::format("tensor {}: expected a name <iteration>_<layer>",
                               array.name.substr(0, 80)));
      }
      if (!is_integer(array.type) || array.rank() < 1 || array.rank() > 2) {
        fail_input(
            map->path().string(),
            fmt::format("tensor {}: expected counts [experts] or ids [tokens, k], found {} {}",
                        array.name, element_name(array.type), array.shape_text()));
      }
      parts_[iteration].emplace_back(layer, array);
      layers_.insert(layer);
    }
    if (parts_.empty()) {
      fail_input(map->path().string(),
                 "no statistics in the file; a worker that was killed before its "
                 "last iteration writes none");
    }
  }

  void check_parts(const InputInfo& info, bool is_raw) const {
    const std::size_t rank = is_raw ? 2 : 1;
    const std::int64_t top_k = parts_.begin()->second.front().second.shape.back();
    for (const auto& [iteration, parts] : parts_) {
      for (const auto& [layer, values] : parts) {
        const bool fits =
            values.rank() == rank && values.shape.back() == (is_raw ? top_k : info.num_experts);
        if (fits) continue;
        fail_input(request_.where(),
                   fmt::format("tensor {}_{}: expected {} numbers a row, found {}", iteration,
                               layer, is_raw ? top_k : info.num_experts, values.shape_text()));
      }
    }
  }

  [[nodiscard]] std::int64_t layer_idx(std::int32_t layer) const {
    return std::distance(layers_.begin(), layers_.find(layer));
  }

  void make_counts(RoutingInput& input) {
    auto steps = std::make_shared<std::vector<std::pair<std::int64_t, std::vector<CountPart>>>>();
    for (const auto& [iteration, parts] : parts_) {
      std::vector<CountPart> of_step;
      for (const auto& [layer, values] : parts) of_step.push_back({layer_idx(layer), values});
      steps->push_back({iteration, std::move(of_step)});
    }
    CountPlan plan;
    plan.num_steps = static_cast<std::int64_t>(steps->size());
    plan.fill = [steps](std::int64_t step_idx, std::vector<CountPart>& parts) {
      const auto& [iteration, of_step] = (*steps)[static_cast<std::size_t>(step_idx)];
      parts = of_step;
      return iteration;
    };
    plan.maps = request_.maps;
    input.counts = make_count_source(input.info, std::move(plan));
  }

  void make_tokens(RoutingInput& input, std::int64_t top_k) {
    InputInfo& info = input.info;
    if (top_k < 1 || top_k > info.num_experts) {
      fail_input(request_.where(), fmt::format("raw statistics name {} experts a token", top_k));
    }
    info.has_tokens = true;
    info.top_k = static_cast<std::int32_t>(top_k);
    auto segments = std::make_shared<std::vector<TokenSegment>>();
    std::int64_t num_tokens = 0;
    for (const auto& [iteration, parts] : parts_) {
      // The n-th array of a layer in one iteration is the n-th rank's.
      std::map<std::int32_t, std::size_t> seen;
      const std::size_t begin = segments->size();
      for (const auto& [layer, values] : parts) {
        const std::size_t at = begin + seen[layer]++;
        if (at == segments->size()) {
          TokenSegment segment;
          segment.step = iteration;
          segment.num_tokens = values.shape[0];
          segment.rows.resize(layers_.size());
          num_tokens += segment.num_tokens;
          segments->push_back(std::move(segment));
        }
        TokenSegment& segment = (*segments)[at];
        if (values.shape[0] != segment.num_tokens) {
          fail_input(request_.where(),
                     fmt::format("tensor {}_{}: {} tokens, other layers have {}", iteration, layer,
                                 values.shape[0], segment.num_tokens));
        }
        segment.rows[static_cast<std::size_t>(layer_idx(layer))] = values;
      }
    }
    SegmentPlan plan;
    plan.num_segments = static_cast<std::int64_t>(segments->size());
    plan.num_tokens = num_tokens;
    plan.fill = [segments](std::int64_t segment_idx, TokenSegment& segment) {
      segment = (*segments)[static_cast<std::size_t>(segment_idx)];
    };
    plan.maps = request_.maps;
    input.tokens = make_segment_source(info, std::move(plan), request_.options.block_tokens);
  }

  void observe_gaps(RoutingInput& input) const {
    const std::int64_t first = parts_.begin()->first;
    const std::int64_t last = parts_.rbegin()->first;
    const std::int64_t missing = last - first + 1 - static_cast<std::int64_t>(parts_.size());
    if (missing > 0) {
      add_observation(
          input.observations, "steps.gap", missing,
          fmt::format("{} of the iterations {} to {} are there", parts_.size(), first, last));
    }
    if (input.info.ranks.empty()) return;
    const std::int64_t expected =
        std::max<std::int64_t>(input.info.ranks.back() + 1, input.info.num_gpus);
    const std::int64_t absent = expected - static_cast<std::int64_t>(input.info.ranks.size());
    if (absent > 0) {
      add_observation(input.observations, "ranks.missing", absent,
                      fmt::format("files of {} of {} ranks", input.info.ranks.size(), expected));
    }
  }

  const ReaderRequest& request_;
  std::map<std::int64_t, std::vector<Part>> parts_;  // by iteration, in the order of the files
  std::set<std::int32_t> layers_;
  std::set<std::int32_t> ranks_;
};

}  // namespace

RoutingInput open_tensorrt(const ReaderRequest& request) {
  return StatisticReader(request).read();
}

}  // namespace moe::routing
