// ESFT's expert scores: a text file per layer, expert_weights_<layer>.txt, a line per sequence with
// the ids of all its tokens, an empty column, then as many weights, all separated by tabs.

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/base/text.hpp"
#include "lib/routing/id_cleaner.hpp"
#include "lib/routing/readers.hpp"
#include "lib/routing/text_lines.hpp"

namespace moe::routing {
namespace {

constexpr std::size_t kMaxEsftTopK = 16;
constexpr std::string_view kFileWord = "expert_weights_";

struct Sequence {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Sequence parse_sequence(std::string_view line, const std::string& place) {
  Sequence sequence;
  bool is_weight = false;
  for (const std::string_view part : split(line, '\t')) {
    const std::string_view text = trim(part);
    if (text.empty()) {
      is_weight = !sequence.ids.empty();
      continue;
    }
    if (is_weight) {
      const auto weight = to_real(text);
      if (!weight.has_value()) throw Error(ErrorCode::kInput, place + ": a weight is no number");
      sequence.weights.push_back(static_cast<float>(*weight));
      continue;
    }
    const auto id = to_integer(text);
    if (!id.has_value() || !std::in_range<std::int32_t>(*id)) {
      throw Error(ErrorCode::kInput, place + ": expected expert ids separated by tabs");
    }
    sequence.ids.push_back(static_cast<std::int32_t>(*id));
  }
  if (sequence.ids.empty() || sequence.ids.size() != sequence.weights.size()) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: expected as many weights as ids after an empty column, found {} "
                            "ids and {} weights",
                            place, sequence.ids.size(), sequence.weights.size()));
  }
  return sequence;
}

// True when every group of k ids names k experts.
bool are_groups_distinct(const std::vector<std::int32_t>& ids, std::size_t k) {
  if (ids.size() % k != 0) return false;
  std::vector<std::int32_t> group(k);
  for (std::size_t begin = 0; begin < ids.size(); begin += k) {
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(begin), k, group.begin());
    std::sort(group.begin(), group.end());
    if (std::adjacent_find(group.begin(), group.end()) != group.end()) return false;
  }
  return true;
}

class EsftSource final : public TokenSource {
 public:
  EsftSource(InputInfo info, const std::vector<SharedMap>& maps, std::int64_t block_tokens)
      : info_(std::move(info)), block_tokens_(block_tokens), cleaner_(info_, std::nullopt) {
    for (const SharedMap& map : maps) files_.emplace_back(map);
    layers_.resize(files_.size());
  }

  void rewind() override {
    observations_.clear();
    for (TextLines& lines : files_) lines.rewind();
    num_tokens_ = 0;
    offset_ = 0;
    request_ = -1;
  }

  bool next(TokenBlock& block) override {
    if (offset_ == num_tokens_ && !read_sequence()) return false;
    const std::int64_t count = std::min(block_tokens_, num_tokens_ - offset_);
    block.resize(count, info_);
    const std::int64_t top_k = info_.top_k;
    for (std::int64_t t = 0; t < count; ++t) {
      const auto i = static_cast<std::size_t>(t);
      block.step[i] = request_;
      block.request[i] = request_;
      block.token[i] = offset_ + t;
      for (std::size_t l = 0; l < layers_.size(); ++l) {
        const auto layer = static_cast<std::int64_t>(l);
        const std::int64_t to = (t * block.num_layers + layer) * top_k;
        std::int32_t* ids = block.ids.data() + to;
        std::copy_n(layers_[l].ids.data() + (offset_ + t) * top_k, top_k, ids);
        std::copy_n(layers_[l].weights.data() + (offset_ + t) * top_k, top_k,
                    block.weights.data() + to);
        cleaner_.clean(layer, std::span(ids, static_cast<std::size_t>(top_k)));
      }
    }
    cleaner_.report(observations_);
    offset_ += count;
    return true;
  }

 private:
  bool read_sequence() {
    std::size_t num_ended = 0;
    for (std::size_t l = 0; l < files_.size(); ++l) {
      const auto line = files_[l].next();
      if (!line.has_value()) {
        ++num_ended;
        continue;
      }
      layers_[l] = parse_sequence(*line, files_[l].place());
      if (layers_[l].ids.size() % static_cast<std::size_t>(info_.top_k) != 0) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: {} ids are no multiple of {} a token", files_[l].place(),
                                layers_[l].ids.size(), info_.top_k));
      }
      if (l > 0 && layers_[l].ids.size() != layers_[0].ids.size()) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{}: {} ids, the first layer has {} for the same "
                                "sequence",
                                files_[l].place(), layers_[l].ids.size(), layers_[0].ids.size()));
      }
    }
    if (num_ended == files_.size()) return false;
    if (num_ended > 0) {
      throw Error(ErrorCode::kInput, info_.name +
                                         ": the layers' files hold different numbers of "
                                         "sequences; is one cut off?");
    }
    num_tokens_ = static_cast<std::int64_t>(layers_[0].ids.size()) / info_.top_k;
    offset_ = 0;
    ++request_;
    return true;
  }

  InputInfo info_;
  std::int64_t block_tokens_;
  std::vector<TextLines> files_;
  std::vector<Sequence> layers_;  // the sequence at hand, a layer each
  IdCleaner cleaner_;
  std::int64_t num_tokens_ = 0;
  std::int64_t offset_ = 0;
  std::int64_t request_ = -1;
};

std::int32_t layer_of(const SharedMap& map) {
  const std::string name = map->path().filename().string();
  const std::size_t at = name.find(kFileWord);
  if (at == std::string::npos) return -1;
  const std::size_t begin = at + kFileWord.size();
  const std::size_t end = name.find_first_not_of("0123456789", begin);
  const auto number = to_integer(std::string_view(name).substr(begin, end - begin));
  return number.has_value() && *number < 65536 ? static_cast<std::int32_t>(*number) : -1;
}

// The most experts a token can have: all groups of so many ids are distinct in every sequence.
std::int32_t infer_top_k(const SharedMap& map) {
  std::vector<bool> fits(kMaxEsftTopK + 1, true);
  TextLines lines(map);
  while (const auto line = lines.next()) {
    const Sequence sequence = parse_sequence(*line, lines.place());
    for (std::size_t k = 1; k <= kMaxEsftTopK; ++k) {
      if (fits[k]) fits[k] = are_groups_distinct(sequence.ids, k);
    }
  }
  for (std::size_t k = kMaxEsftTopK; k > 1; --k) {
    if (fits[k]) return static_cast<std::int32_t>(k);
  }
  return 1;
}

}  // namespace

RoutingInput open_esft(const ReaderRequest& request) {
  std::map<std::int32_t, SharedMap> by_layer;
  for (const SharedMap& map : request.maps) {
    const std::int32_t layer =
        request.maps.size() == 1 ? std::max(layer_of(map), 0) : layer_of(map);
    if (layer < 0 || !by_layer.emplace(layer, map).second) {
      throw Error(ErrorCode::kInput, map->path().string() +
                                         ": expected names expert_weights_<layer>.txt, each layer "
                                         "once");
    }
  }
  RoutingInput input;
  InputInfo& info = input.info;
  info.format = Format::kEsftText;
  info.has_tokens = true;
  info.has_weights = true;
  info.has_requests = true;
  info.name = request.maps.front()->path().stem().string();
  info.num_shared_experts = request.options.num_shared_experts;
  std::vector<SharedMap> maps;
  for (const auto& [layer, map] : by_layer) {
    info.layers.push_back(layer);
    maps.push_back(map);
  }
  info.top_k = request.options.top_k.value_or(0);
  if (info.top_k == 0) {
    info.top_k = infer_top_k(maps.front());
    add_observation(input.observations, "top_k.inferred", info.top_k,
                    fmt::format("the text does not say where a token ends: {} experts a token is "
                                "the most that never repeats one (--top-k says it)",
                                info.top_k));
  }
  info.num_experts = request.options.num_experts.value_or(0);
  if (info.num_experts == 0) {
    std::int32_t largest = -1;
    for (const SharedMap& map : maps) {
      TextLines lines(map);
      while (const auto line = lines.next()) {
        const Sequence sequence = parse_sequence(*line, lines.place());
        largest = std::max(largest, *std::max_element(sequence.ids.begin(), sequence.ids.end()));
      }
    }
    check_shape(request.where(), info.num_layers(), std::int64_t{largest} + 1);
    info.num_experts = largest + 1;
    add_observation(input.observations, "experts.inferred", info.num_experts,
                    fmt::format("the text does not say how many experts there are: {} from the "
                                "largest id (--experts says it)",
                                info.num_experts));
  }
  check_shape(request.where(), info.num_layers(), info.num_experts);
  input.tokens = std::make_unique<EsftSource>(info, maps, request.options.block_tokens);
  return input;
}

}  // namespace moe::routing
